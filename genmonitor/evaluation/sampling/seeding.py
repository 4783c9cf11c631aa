# SPDX-License-Identifier: Apache-2.0
"""Random numbers that belong to a sample: row i of whatever a model draws comes from a seed of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import dropout, gumbel_softmax
from torch.overrides import TorchFunctionMode

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
        if func in _COMPOSITE:
            return _COMPOSITE[func](self, *args, **kwargs)
        out = func(*args, **kwargs)
        if kwargs.get("generator") is not None or not isinstance(out, Tensor):
            return out
        if func in _BY_PARTS:
            return self._by_parts(out, func, *args, **kwargs)
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

    def _by_parts(self, out: Tensor, func: Any, *parameters: Tensor, **kwargs: Any) -> Tensor:
        """Draw from a distribution with a parameter for each entry, sample by sample."""
        n = len(self._generators)
        if not all(isinstance(x, Tensor) and x.ndim and len(x) % n == 0 and x.numel() for x in parameters):
            return out
        parts = zip(*(x.detach().cpu().chunk(n) for x in parameters), strict=True)
        rows = [func(*part, generator=g, **kwargs) for part, g in zip(parts, self._generators, strict=True)]
        return out.copy_(torch.cat(rows))

    def _uniform_like(self, x: Tensor) -> Tensor:
        with self:
            return torch.rand_like(x)

    def _gumbel_softmax(
        self, logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
    ) -> Tensor:
        exponential = -torch.log1p(-self._uniform_like(logits))
        soft = ((logits - exponential.clamp_min(eps).log()) / tau).softmax(dim)
        if not hard:
            return soft
        return torch.zeros_like(soft).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0) - soft.detach() + soft

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return input
        kept = (self._uniform_like(input) >= p) / (1 - p) if p < 1 else torch.zeros_like(input)
        return input.mul_(kept) if inplace else input * kept

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
    Tensor.log_normal_: _in_place("log_normal_"),
    Tensor.cauchy_: _in_place("cauchy_"),
    Tensor.geometric_: _in_place("geometric_"),
}
# what torch.distributions draws Gamma, Beta, Dirichlet, Student's t, chi-squared, Poisson and binomial numbers by
_BY_PARTS = (torch._standard_gamma, torch._sample_dirichlet, torch.poisson, torch.binomial)
_COMPOSITE: dict[Any, Callable[..., Tensor]] = {  # what they draw inside is out of sight
    gumbel_softmax: SeededRows._gumbel_softmax,
    dropout: SeededRows._dropout,
}


def sample_seed(seed: int, index: int) -> int:
    """Return the seed of sample `index` of the set with this seed."""
    # 63 bits, because torch.manual_seed refuses more on some versions
    return int(np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)[0]) >> 1
