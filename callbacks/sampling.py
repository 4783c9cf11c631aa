# SPDX-License-Identifier: Apache-2.0
"""Drawing the same samples at every check: sample i from a seed of its own, whatever the batch size or process."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from genmonitor._validation import check_images

try:
    from lightning.pytorch.utilities.memory import garbage_collection_cuda, is_oom_error
except ImportError:
    from pytorch_lightning.utilities.memory import garbage_collection_cuda, is_oom_error


SampleFn = Callable[[Any, int], Tensor]
Fill = Callable[[Tensor, torch.Generator], Any]


class SeededRows(TorchFunctionMode):
    """Let row i of every random tensor of n rows come from generator i, inside a `with` block.

    A model that draws its noise with n rows for n samples, or with the same number of consecutive rows for each, as
    nearly all do, then gives the same sample i in any batch. The rows are drawn on the CPU, so they do not depend on
    the device either. Draws of another shape, or with a generator of the model's own, are left as they are.

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
        if kwargs.get("generator") is not None or not isinstance(out, Tensor):
            return out
        if func in _CHOICES:
            return self._choose(out, *args, **kwargs)
        if func not in _FILLS or out.ndim == 0 or not out.numel() or len(out) % len(self._generators):
            return out
        fill = _FILLS[func](*args, **kwargs)
        coins = func in _COINS
        rows = torch.empty(out.shape, dtype=torch.float32 if coins else out.dtype)
        for row, generator in zip(rows.view(len(self._generators), -1), self._generators, strict=True):
            fill(row, generator)
        drawn = rows.to(out.device)
        if func is torch.normal:
            mean, std = _mean_and_std(*args, **kwargs)
            drawn = mean + std * drawn
        elif coins:
            drawn = drawn < _COINS[func](*args, **kwargs)
        out.detach().copy_(drawn)  # detached: it may be a leaf that requires grad
        return out

    def _choose(self, out: Tensor, input: Tensor, num_samples: int, replacement: bool = False, **kwargs: Any) -> Tensor:
        n = len(self._generators)
        probabilities = input.detach().cpu()
        if replacement and num_samples == n and probabilities.numel() == probabilities.shape[-1]:
            # one distribution and a draw from it for each sample
            rows = [torch.multinomial(probabilities.flatten(), 1, generator=g) for g in self._generators]
        elif probabilities.ndim == 2 and len(probabilities) % n == 0:
            rows = [
                torch.multinomial(part, num_samples, replacement, generator=g)
                for part, g in zip(probabilities.chunk(n), self._generators, strict=True)
            ]
        else:
            return out
        return out.copy_(torch.cat(rows).reshape(out.shape))


def _standard_normal(*args: Any, **kwargs: Any) -> Fill:
    return lambda row, g: row.normal_(generator=g)


def _standard_uniform(*args: Any, **kwargs: Any) -> Fill:
    return lambda row, g: row.uniform_(generator=g)


def _in_place(name: str) -> Callable[..., Fill]:
    def fill(_: Tensor, *args: Any, **kwargs: Any) -> Fill:
        kwargs.pop("generator", None)
        return lambda row, g: getattr(row, name)(*args, **kwargs, generator=g)

    return fill


def _integers(*args: Any, low: Any = 0, high: Any = None, **kwargs: Any) -> Fill:
    bounds = [int(a) for a in args if isinstance(a, Integral) or (isinstance(a, Tensor) and a.ndim == 0)]
    bounds += [] if high is None else [int(high)]
    start, stop = bounds if len(bounds) == 2 else (int(low), bounds[0])
    return lambda row, g: row.random_(start, stop, generator=g)


def _mean_and_std(mean: Any, std: Any = 1.0, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return mean, std


_COINS: dict[Any, Callable[..., Any]] = {
    torch.bernoulli: lambda input, p=None, **_: input if p is None else p,
    Tensor.bernoulli: lambda input, p=None, **_: input if p is None else p,
    Tensor.bernoulli_: lambda input, p=0.5, **_: p,
}
_CHOICES = (torch.multinomial, Tensor.multinomial)
_FILLS: dict[Any, Callable[..., Fill]] = {
    torch.randn: _standard_normal,
    torch.randn_like: _standard_normal,
    torch.normal: _standard_normal,
    torch.rand: _standard_uniform,
    torch.rand_like: _standard_uniform,
    **dict.fromkeys(_COINS, _standard_uniform),
    torch.randint: _integers,
    torch.randint_like: _integers,
    Tensor.random_: _in_place("random_"),
    Tensor.normal_: _in_place("normal_"),
    Tensor.uniform_: _in_place("uniform_"),
    Tensor.exponential_: _in_place("exponential_"),
}


def sampler(sample_fn: SampleFn | None, pl_module: Any) -> Callable[[int], Tensor]:
    """Return the function from n to n images that the user gave or the module has."""
    if sample_fn is not None:
        return lambda n: sample_fn(pl_module, n)
    method = getattr(pl_module, "sample", None)
    if not callable(method):
        raise ValueError(
            f"Expected a way to draw images, but {type(pl_module).__name__} has no method `sample(n)`. "
            "Add one, or give `sample_fn=` a function of (pl_module, n) that returns images [n, C, H, W]."
        )
    return method  # type: ignore[no-any-return]


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
        RuntimeError: if there is no memory for a single one.
    """
    return torch.cat([_draw_what_fits(sample, batch, seed) for batch in indices])


def _draw_what_fits(sample: Callable[[list[int]], Any], batch: list[int], seed: int) -> Tensor:
    """Draw a batch, in two halves where the memory does not suffice for the whole, and so on."""
    try:
        return _draw_batch(sample, batch, seed)
    except RuntimeError as error:
        if len(batch) == 1 or not is_oom_error(error):
            raise
    # not in the handler, whose traceback still holds what the failed attempt had allocated
    garbage_collection_cuda()
    half = len(batch) // 2
    warnings.warn(
        f"There is no memory for {len(batch)} samples at once, so they are drawn by {half}. "
        f"Give sample_batch_size={half} to save the attempts.",
        stacklevel=2,
    )
    return torch.cat([_draw_what_fits(sample, part, seed) for part in (batch[:half], batch[half:])])


def _draw_batch(sample: Callable[[list[int]], Any], batch: list[int], seed: int) -> Tensor:
    seeds = [_mixed(seed, i) for i in batch]
    seed_everything(seeds[0])
    with SeededRows(seeds):
        out = sample(batch)
    images = check_images("generated images", out)
    if len(images) != len(batch):
        raise ValueError(f"Expected {len(batch)} generated images, but got {len(images)}. Return as many as asked.")
    return images


def seed_everything(seed: int) -> None:
    """Set the random states of torch, numpy and python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def _mixed(seed: int, index: int) -> int:
    # 63 bits, because torch.manual_seed refuses more on some versions
    return int(np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)[0]) >> 1
