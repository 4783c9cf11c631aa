# SPDX-License-Identifier: Apache-2.0
"""Drawing the same samples at every check: sample i from a seed of its own, whatever the batch size or process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from genmonitor import checks

Fill = Callable[[Tensor, torch.Generator], Any]


class SeededRows(TorchFunctionMode):
    """Let row i of every random tensor of n rows come from generator i, inside a `with` block.

    A model that draws its noise with n rows for n samples, as nearly all do, then gives the same sample i in any batch.
    The rows are drawn on the CPU, so they do not depend on the device either. Draws of another shape, or with a
    generator of the model's own, are left as they are.

    Args:
        seeds: one per row.

    Example:
        >>> with SeededRows([3, 4]):
        ...     both = torch.randn(2, 5)
        >>> with SeededRows([4]):
        ...     second = torch.randn(1, 5)
        >>> torch.equal(both[1:], second)
        True
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func not in _FILLS or kwargs.get("generator") is not None or not isinstance(out, Tensor):
            return out
        if out.ndim == 0 or len(out) != len(self._generators):
            return out
        if func is torch.multinomial:
            probabilities = args[0].detach().cpu()
            rows = [
                torch.multinomial(p, *args[1:], **kwargs, generator=g)
                for p, g in zip(probabilities, self._generators, strict=True)
            ]
            return torch.stack(rows).to(out.device)
        fill = _FILLS[func](*args, **kwargs)
        rows = torch.empty(out.shape, dtype=torch.float32 if out.is_floating_point() else out.dtype)
        for row, generator in zip(rows.unsqueeze(-1), self._generators, strict=True):
            fill(row, generator)
        drawn = rows.to(out.device)
        if func is torch.normal:
            mean, std = (*args, kwargs.get("std", 1.0))[:2] if args else (kwargs["mean"], kwargs["std"])
            drawn = mean + std * drawn
        elif func in (torch.bernoulli, Tensor.bernoulli_):
            p = args[0] if func is torch.bernoulli else kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            drawn = drawn < p
        return out.copy_(drawn)


def _standard_normal(*args: Any, **kwargs: Any) -> Fill:
    return lambda row, g: row.normal_(generator=g)


def _standard_uniform(*args: Any, **kwargs: Any) -> Fill:
    return lambda row, g: row.uniform_(generator=g)


def _in_place(name: str) -> Callable[..., Fill]:
    def fill(_: Tensor, *args: Any, **kwargs: Any) -> Fill:
        kwargs.pop("generator", None)
        return lambda row, g: getattr(row, name)(*args, **kwargs, generator=g)

    return fill


def _integers(*args: Any, **kwargs: Any) -> Fill:
    bounds = [a for a in args if isinstance(a, int)]
    bounds = [kwargs[name] for name in ("low", "high") if name in kwargs] or bounds
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return lambda row, g: row.random_(low, high, generator=g)


_FILLS: dict[Any, Callable[..., Fill]] = {
    torch.randn: _standard_normal,
    torch.randn_like: _standard_normal,
    torch.normal: _standard_normal,
    torch.rand: _standard_uniform,
    torch.rand_like: _standard_uniform,
    torch.bernoulli: _standard_uniform,
    Tensor.bernoulli_: _standard_uniform,
    torch.randint: _integers,
    torch.randint_like: _integers,
    Tensor.random_: _in_place("random_"),
    Tensor.normal_: _in_place("normal_"),
    Tensor.uniform_: _in_place("uniform_"),
    Tensor.exponential_: _in_place("exponential_"),
    torch.multinomial: _standard_uniform,
}


def draw(sample: Callable[[list[int]], Any], indices: Iterable[list[int]], seed: int) -> Tensor:
    """Draw samples in batches, sample i from a seed made of `seed` and i.

    Args:
        sample: makes one image per index of a batch, float [n, C, H, W].
        indices: the batches.
        seed: of the whole set.

    Returns:
        Images [N, C, H, W], float32 or float64.

    Raises:
        TypeError, ValueError: if a batch is no tensor of that many finite images.
    """
    batches = []
    for batch in indices:
        seeds = [_mixed(seed, i) for i in batch]
        torch.manual_seed(seeds[0])
        np.random.seed(seeds[0] % 2**32)  # noqa: NPY002
        random.seed(seeds[0])
        with SeededRows(seeds):
            out = sample(batch)
        images = checks.images("generated images", out)
        if len(images) != len(batch):
            raise ValueError(f"Expected {len(batch)} generated images, but got {len(images)}. Return as many as asked.")
        batches.append(images)
    return torch.cat(batches)


def _mixed(seed: int, index: int) -> int:
    # 63 bits, because torch.manual_seed refuses more on some versions
    return int(np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)[0]) >> 1
