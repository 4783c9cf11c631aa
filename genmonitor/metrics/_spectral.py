# SPDX-License-Identifier: Apache-2.0
"""What metrics share that look at the spectrum of a kernel: they keep the moments of its features, or the samples."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from genmonitor._validation import check_at_least, check_features, check_min_samples, check_no_zero_rows
from genmonitor.kernels import CosineKernel, Kernel
from genmonitor.kernels.covariance import (
    FeatureMap,
    add_moments,
    feature_map,
    has_features,
    packed_size,
    rounding_of,
    unpack,
)
from genmonitor.metrics._base import GenerativeMetric, from_rank_zero


class SpectralMetric(GenerativeMetric):
    """Streams second moments where every kernel has explicit features, and keeps the samples otherwise.

    Args:
        kernels: one for each of `gammas`.
        num_features: random Fourier features of each Gaussian kernel; None: it has no explicit features.
        seed: of the random Fourier features.
        kwargs: those of torchmetrics.Metric.
    """

    full_state_update: ClassVar[bool] = False  # type: ignore[misc]
    gammas: ClassVar[dict[str, str]]
    """Each side, the set of samples that `update` takes under that name, and the buffer that holds its gamma."""

    count: Tensor
    products: Tensor
    feature_sum: Tensor
    rounding: Tensor
    dims: Tensor

    def __init__(self, kernels: list[Kernel], num_features: int | None, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_features = num_features
        self.seed = check_at_least("seed", seed, 0)
        self._kernels = dict(zip(self.gammas, kernels, strict=True))
        self._maps: dict[str, tuple[Kernel, torch.device, FeatureMap]] = {}
        # of the samples of each side; they give the random Fourier features, together with gamma and seed
        self.add_state("dims", default=torch.zeros(len(kernels), dtype=torch.int64), dist_reduce_fx="max")
        self.streams = all(has_features(kernel, num_features) for kernel in kernels)
        if self.streams:
            zero = torch.zeros((), dtype=torch.float64)
            # scalars until the first batch gives them a shape; `products` is a packed triangle
            for name in ("count", "products", "feature_sum"):
                self.add_state(name, default=zero.clone(), dist_reduce_fx="sum")
            self.add_state("rounding", default=zero.clone(), dist_reduce_fx="max")
        else:
            for side in self.gammas:
                self.add_state(side, default=[], dist_reduce_fx="cat")
        for side, kernel in self._kernels.items():
            gamma = math.nan if kernel.gamma is None else kernel.gamma
            self.register_buffer(self.gammas[side], torch.tensor(gamma, dtype=torch.float64))

    def _kernel_of(self, side: str) -> Kernel:
        """Return a side's kernel, with its gamma once data have set it."""
        gamma = float(getattr(self, self.gammas[side]))
        return self._kernels[side] if math.isnan(gamma) else type(self._kernels[side])(gamma=gamma)

    def _checked(self, side: str, value: Tensor) -> Tensor:
        """Check samples of one side."""
        x = check_features(side, value, self._dim(side) or None)
        if isinstance(self._kernels[side], CosineKernel):
            check_no_zero_rows(side, x)
        return x

    def _dim(self, side: str) -> int:
        """Return how many values a sample of a side has, 0 before the first."""
        return int(self.dims[list(self.gammas).index(side)])

    def _add(self, samples: dict[str, Tensor]) -> None:
        """Add checked samples of all sides."""
        dims = torch.tensor([x.shape[1] for x in samples.values()], device=self.device)
        if not self.streams:
            self.dims = dims
            for side, x in samples.items():
                # a new list, since a compute group shares the old one; a graph only for the value of one `forward`
                setattr(self, side, [*getattr(self, side), x if torch.is_grad_enabled() else x.detach()])
            return
        for side, x in samples.items():
            kernel = self._kernel_of(side)
            if kernel.takes_width and kernel.gamma is None:
                self._set_gamma(side, from_rank_zero(partial(_width, kernel, x)))
        self.dims = dims
        sides, maps = list(samples.values()), [self._features_of(side) for side in samples]
        dim = sum(side.size for side in maps)
        if self.products.ndim == 0:
            self.products = self.products.new_zeros(packed_size(dim))
        self.feature_sum = self.feature_sum + add_moments(self.products, sides, maps)
        self.count = self.count + len(sides[0])
        self.rounding = self.rounding.clamp_min(rounding_of(sides, dim))

    def _features_of(self, side: str) -> FeatureMap:
        """Return the explicit features of a side, made anew where gamma or the device changed."""
        kernel, known = self._kernel_of(side), self._maps.get(side)
        if known is None or known[:2] != (kernel, self.device):
            made = feature_map(kernel, self._dim(side), self.num_features, self.seed)
            assert made is not None
            known = (kernel, self.device, made.to(self.device))
            self._maps[side] = known
        return known[2]

    def _covariance(self) -> Tensor:
        """Return the covariance of the features of all sides, float64."""
        if self.count < 2:
            raise ValueError(
                f"Expected at least 2 samples before `compute`, but got {int(self.count)}. "
                f"Call `update({', '.join(self.gammas)})`."
            )
        return unpack(self.products, sum(self._features_of(side).size for side in self.gammas)) / self.count

    def _kept(self) -> list[tuple[Tensor, Kernel]]:
        """Return the samples and the kernel of each side, having taken gamma from them if it was open."""
        out = []
        for side in self.gammas:
            samples = getattr(self, side)
            if not len(samples):
                raise ValueError(
                    f"Expected {side} before `compute`, but got none. Call `update({', '.join(self.gammas)})`."
                )
            x = dim_zero_cat(samples)
            check_min_samples(side, x)
            kernel = self._kernel_of(side).resolved(x)
            if kernel.takes_width:
                self._set_gamma(side, kernel.width)
            out.append((x, kernel))
        return out

    def _set_gamma(self, side: str, gamma: float) -> None:
        getattr(self, self.gammas[side]).fill_(gamma)

    def _synced(self) -> Any:
        """Hold the states of all processes together, as `compute` does."""
        return self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return the value of that batch; where samples are kept, a gamma that is open stays open."""
        if self.streams:
            return super().forward(*args, **kwargs)
        open_gammas = {name: getattr(self, name).clone() for name in self.gammas.values()}
        try:
            return super().forward(*args, **kwargs)
        finally:
            for side, name in self.gammas.items():
                getattr(self, name).copy_(open_gammas[name])
                setattr(self, side, [x.detach() for x in getattr(self, side)])

    def reset(self) -> None:
        """Forget the samples, but neither gamma nor the number of values that a sample has."""
        dims = self.dims
        super().reset()
        self.dims = dims


def _width(kernel: Kernel, x: Tensor) -> float:
    return kernel.resolved(x).width
