# SPDX-License-Identifier: Apache-2.0
"""Random numbers that belong to a sample: each row that `randn`, `rand`, `randint` and `normal` draw has a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class SeededRows(TorchFunctionMode):
    """Draw row i of every random tensor of n rows from generator i, inside a `with` block.

    This holds for `torch.randn`, `rand`, `randint` and `normal`, their `_like` forms, `normal_`, `uniform_` and
    `random_`, and anything based on them, such as `torch.distributions.Normal`. A model whose noise has n rows for n
    samples, or the same number of consecutive rows for each, gives the same sample i in any batch. The rows are drawn
    on the CPU, so they do not depend on the device either. Other functions, draws of another shape, and draws from the
    model's own generator are unchanged.

    Args:
        seeds: Seeds, one per row.

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
        if func not in FILLS or kwargs.get("generator") is not None:
            return out
        if out.ndim == 0 or not out.numel() or len(out) % len(self._generators):
            return out
        rows = torch.empty(out.shape, dtype=out.dtype)
        for row, generator in zip(rows.view(len(self._generators), -1), self._generators, strict=True):
            FILLS[func](row, generator, *args, **kwargs)
        drawn = rows.to(out.device)
        if func is torch.normal:
            drawn = _scaled(drawn, *args, **kwargs)
        out.detach().copy_(drawn)  # detached: it may be a leaf that requires grad
        return out


def _standard_normal(row: Tensor, own: torch.Generator, /, *args: Any, **kwargs: Any) -> None:
    row.normal_(generator=own)


def _standard_uniform(row: Tensor, own: torch.Generator, /, *args: Any, **kwargs: Any) -> None:
    row.uniform_(generator=own)


def _integers(row: Tensor, own: torch.Generator, /, *args: Any, low: Any = 0, high: Any = None, **_: Any) -> None:
    numbers = [x for x in args if not isinstance(x, (tuple, list)) and getattr(x, "ndim", 0) == 0]
    bounds = [int(x) for x in (*numbers, high) if x is not None]
    start, stop = bounds if len(bounds) == 2 else (int(low), bounds[0])
    row.random_(start, stop, generator=own)


def _in_place(name: str) -> Callable[..., Any]:
    def fill(row: Tensor, own: torch.Generator, _: Tensor, /, *args: Any, **kwargs: Any) -> None:
        getattr(row, name)(*args, **(kwargs | {"generator": own}))

    return fill


def _scaled(standard: Tensor, mean: Any = 0.0, std: Any = 1.0, *args: Any, **kwargs: Any) -> Tensor:
    return mean + std * standard


FILLS: dict[Any, Callable[..., Any]] = {
    torch.randn: _standard_normal,
    torch.randn_like: _standard_normal,
    torch.normal: _standard_normal,
    torch.rand: _standard_uniform,
    torch.rand_like: _standard_uniform,
    torch.randint: _integers,
    torch.randint_like: _integers,
    Tensor.normal_: _in_place("normal_"),
    Tensor.uniform_: _in_place("uniform_"),
    Tensor.random_: _in_place("random_"),
}
"""Functions that fill a row from the arguments of the call, by the function that drew the tensor."""


def sample_seed(seed: int, index: int) -> int:
    """Return the seed of sample `index` of the set with this seed."""
    # 63 bits, because torch.manual_seed refuses more on some versions
    return int(np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)[0]) >> 1
