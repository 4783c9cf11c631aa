# SPDX-License-Identifier: Apache-2.0
"""Metrics of a kernel's spectrum: they stream the moments of its features where it has some, else keep the samples."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from genmonitor._validation import (
    check_at_least,
    check_count,
    check_features,
    check_min_samples,
    check_no_zero_rows,
    check_same_length,
)
from genmonitor.kernels import CosineKernel, Kernel
from genmonitor.kernels.covariance import FeatureMap, feature_map, has_features
from genmonitor.metrics._base import from_rank_zero
from genmonitor.metrics._moments import MomentMetric


class SpectralMetric(MomentMetric):
    """Streams second moments if every kernel has explicit features, and keeps the samples otherwise.

    Args:
        kernels: one for each of `gammas`.
        num_features: random Fourier features of each Gaussian kernel; None: it has no explicit features.
        seed: of the random Fourier features.
        kwargs: those of torchmetrics.Metric.
    """

    full_state_update: bool = False
    gammas: ClassVar[dict[str, str]]
    """Each side, a set of samples that `update` takes under that name, and the buffer that holds its gamma."""
    may_stream: ClassVar[bool] = True
    """Whether second moments of the sides' features are all that it takes."""

    count: Tensor
    products: Tensor
    feature_sum: Tensor
    dims: Tensor

    def __init__(self, kernels: list[Kernel], num_features: int | None, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_features = num_features
        self.seed = check_at_least("seed", seed, 0)
        # of the samples of each side; they give the random Fourier features, together with gamma and seed
        self.add_state("dims", default=torch.zeros(len(kernels), dtype=torch.int64), dist_reduce_fx="max")
        self.streams = self.may_stream and all(has_features(kernel, num_features) for kernel in kernels)
        if self.streams:
            self._add_moment_states()
        else:
            for side in self.gammas:
                self.add_state(side, default=[], dist_reduce_fx="cat")
        for gamma, kernel in zip(self.gammas.values(), kernels, strict=True):
            self._add_kernel(gamma, kernel)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value, of all processes' batches if `dist_sync_on_step` is set.

        The value carries the gradient of the batch where `is_differentiable`. Where samples are kept, a gamma that is
        open stays open.
        open stays open.
        """
        self._unshare_moments()
        self.update(*args, **kwargs)
        self._forward_cache = None
        with_gradient = torch.is_grad_enabled() and bool(self.is_differentiable)
        with torch.set_grad_enabled(with_gradient), self._gammas_preserved(), self._batch_state():
            type(self).update(self, *args, **kwargs)  # not torchmetrics' wrapper, which cuts the graph
            with self._synced_on_step():
                self._forward_cache = type(self).compute(self)
        return self._forward_cache

    def reset(self) -> None:
        """Forget the samples, but neither gamma nor the number of values that a sample has."""
        dims = self.dims
        super().reset()
        self.dims = dims

    def _checked(self, side: str, value: Tensor) -> Tensor:
        """Check samples of one side."""
        x = check_features(side, value, self._dim(side) or None)
        if isinstance(self._kernel(self.gammas[side]), CosineKernel):
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
            kernel = self._kernel(self.gammas[side])
            if kernel.takes_width and kernel.gamma is None:
                self._keep_gamma(self.gammas[side], from_rank_zero(partial(kernel.resolved, x)))
        self.dims = dims
        sides, maps = list(samples.values()), [self._features_of(side) for side in samples]
        self._add_moments(sides, maps)

    def _features_of(self, side: str) -> FeatureMap:
        """Return the explicit features of a side."""
        kernel, dim = self._kernel(self.gammas[side]), self._dim(side)

        def draw() -> FeatureMap:
            drawn = feature_map(kernel, dim, self.num_features, self.seed)
            return cast(FeatureMap, drawn)  # not None, since the metric streams

        return self._feature_map(side, (kernel, dim), draw)

    def _covariance(self) -> Tensor:
        """Return the covariance of the features of all sides, float64."""
        check_count("samples", int(self.count), f"update({', '.join(self.gammas)})")
        return self._mean_moments()[0]

    def _kept(self) -> list[tuple[Tensor, Kernel]]:
        """Return the samples and the kernel of each side; a gamma that was open is taken from the samples."""
        out = []
        for side, gamma in self.gammas.items():
            samples = getattr(self, side)
            if not len(samples):
                raise ValueError(
                    f"Expected {side} before `compute`, but got none. Call `update({', '.join(self.gammas)})`."
                )
            x = dim_zero_cat(samples)
            check_min_samples(side, x)
            out.append((x, self._resolved(gamma, x)))
        return out


class PromptedMetric(SpectralMetric):
    """A spectral metric of outputs and their prompts, row by row."""

    is_differentiable: bool = False
    higher_is_better: bool = True
    gammas: ClassVar[dict[str, str]] = {"outputs": "gamma", "prompts": "prompt_gamma"}

    outputs: list[Tensor]
    prompts: list[Tensor]
    gamma: Tensor
    prompt_gamma: Tensor

    @property
    def kernel(self) -> Kernel:
        """The kernel of outputs, with its gamma once that is known."""
        return self._kernel("gamma")

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once that is known."""
        return self._kernel("prompt_gamma")

    def update(self, outputs: Tensor, prompts: Tensor) -> None:
        """Add outputs and their prompts, row by row.

        Args:
            outputs: features [N, D].
            prompts: features [N, E].

        Raises:
            TypeError: if they are not tensors of real numbers.
            ValueError: if they differ in length, or as `VendiScore.update` does.
        """
        self._add(self._checked_pairs(outputs, prompts))

    def _checked_pairs(self, outputs: Tensor, prompts: Tensor) -> dict[str, Tensor]:
        samples = {"outputs": self._checked("outputs", outputs), "prompts": self._checked("prompts", prompts)}
        check_same_length("outputs", samples["outputs"], "prompts", samples["prompts"])
        return samples
