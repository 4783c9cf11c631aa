# SPDX-License-Identifier: Apache-2.0
"""Centered kernel alignment between all pairs of pixels as a stateful metric."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from genmonitor._validation import check_images, check_min_samples
from genmonitor._validation.arguments import check_cka_arguments, check_patches
from genmonitor.functional._cka_taylor import MAX_DEGREE, choose_degree, cka_from_covariance, taylor_bound
from genmonitor.functional.cka import pixel_cka, site_values
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.feature_maps import taylor_features, taylor_size
from genmonitor.linalg.precision import full_precision
from genmonitor.metrics._base import GenerativeMetric, from_rank_zero


class PixelCKA(GenerativeMetric):
    """Centered kernel alignment between all pairs of sites (pixels or patches) of the images seen.

    The default streams: the Gaussian kernel of a site has few Taylor features, and their covariance is the whole state,
    of a size that does not grow with the images. Where that would take more than 128 MiB (large or color images), for
    other kernels and for the mini-batch estimator, the images themselves are kept.

    When it streams, the first `update` fixes gamma, the degree and what is subtracted from the pixels. Under
    torch.distributed rank zero's choice holds for all, so the first `update` must be made by every process, if
    only with no images [0, C, H, W].

    Args:
        kernel: Gaussian or Laplacian; None for a Gaussian. A kernel without gamma takes it from whole images: the first
            1000 of all processes at the first `compute` where images are kept, else those of the first `update`.
        patch_size: side of a site in pixels; it divides the height and width of the images.
        tolerance: how far an entry may be from its exact value through truncated features.
        batch_estimator: None for all images at once; m for the paper's mean over mini-batches of m.
        kwargs: those of torchmetrics.Metric.

    Raises:
        ValueError: if an argument is out of its range; by `update` if images are not finite or differ in shape.

    Source:
        Gruber et al. 2024, Eq. 11-13.

    Example:
        >>> import torch
        >>> from genmonitor import PixelCKA
        >>> metric = PixelCKA()
        >>> metric.update(torch.tensor([[0.0, 0, 1], [1, 1, 1]]).reshape(2, 1, 1, 3))
        >>> metric.update(torch.tensor([[0.0, 0, 1], [1, 0, 1]]).reshape(2, 1, 1, 3))
        >>> metric.compute().round(decimals=3)
        tensor([[1.0000, 0.3330, 0.0000],
                [0.3330, 1.0000, 0.0000],
                [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """

    is_differentiable: ClassVar[bool] = False  # type: ignore[misc]
    higher_is_better: ClassVar[None] = None  # type: ignore[misc]
    full_state_update: ClassVar[bool] = False  # type: ignore[misc]

    images: list[Tensor]
    count: Tensor
    feature_sum: Tensor
    product_sum: Tensor
    moment_sum: Tensor
    site_minimum: Tensor
    site_maximum: Tensor
    gamma: Tensor

    def __init__(
        self,
        kernel: Kernel | None = None,
        patch_size: int = 1,
        tolerance: float = 1e-6,
        batch_estimator: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_cka_arguments(kernel, patch_size, tolerance, batch_estimator)
        self._kernel = kernel or GaussianKernel()
        self.patch_size = patch_size
        self.tolerance = tolerance
        self.batch_estimator = batch_estimator
        self.add_state("images", default=[], dist_reduce_fx="cat")
        zero = torch.zeros((), dtype=torch.float64)
        # scalars until the first batch gives them a shape
        for name in ("count", "feature_sum", "product_sum", "moment_sum"):
            self.add_state(name, default=zero.clone(), dist_reduce_fx="sum")
        self.add_state("site_minimum", default=zero + math.inf, dist_reduce_fx="min")
        self.add_state("site_maximum", default=zero - math.inf, dist_reduce_fx="max")
        gamma = math.nan if self._kernel.gamma is None else self._kernel.gamma
        self.register_buffer("gamma", torch.tensor(gamma, dtype=torch.float64))
        self._plan: dict[str, Any] | None = None

    def update(self, images: Tensor) -> None:
        """Add images.

        Args:
            images: [N, C, H, W]; integers are read as 0..255 and scaled to [0, 1].

        Raises:
            TypeError: if they are no tensor of real numbers.
            ValueError: if they are not finite, differ in shape from those before, or are fewer than 2 in the first
                `update` of a streaming metric.
        """
        x = check_images("images", images, None if self._plan is None else self._plan["shape"])
        check_patches("images", x, self.patch_size)
        values = site_values(x, self.patch_size)
        if self._plan is None:
            self._plan = from_rank_zero(lambda: self._choose_plan(x, values))
            if self._plan["degree"]:
                self.gamma.fill_(self._plan["gamma"])
        if not self._plan["degree"]:
            self.images = [*self.images, x.detach()]  # a new list, since a compute group shares the old one
            return
        per_image = 8 * len(values) * taylor_size(values.shape[1], self._plan["degree"])
        for some in values.split(max(1, chunking.MEMORY_BUDGET // (4 * per_image)), dim=2):
            self._add(some)

    def compute(self) -> Tensor:
        """Return the matrix [d, d], float64, entries in [0, 1]; rows and columns of constant sites are zero."""
        if len(self.images):
            images = dim_zero_cat(self.images)
            if self.gamma.isnan():
                self.gamma.fill_(self._kernel.resolved(images.flatten(1)).width)
            kernel = type(self._kernel)(gamma=float(self.gamma))
            return pixel_cka(
                images,
                kernel=kernel,
                patch_size=self.patch_size,
                tolerance=self.tolerance,
                batch_estimator=self.batch_estimator,
            )
        if self.count < 2 or self._plan is None:
            raise ValueError("Expected at least 2 images before `compute`. Call `update(images)`.")
        upper = (self.product_sum - torch.outer(self.feature_sum, self.feature_sum) / self.count) / self.count
        covariance = upper.triu() + upper.triu(1).T
        constant = (self.site_minimum == self.site_maximum).all(1)
        values = self.site_minimum.shape[1]
        out, linear_norm = cka_from_covariance(covariance, constant, values)
        varying = ~constant
        if varying.any():
            bound = taylor_bound(
                (self.moment_sum / self.count)[varying],
                linear_norm[varying],
                float(self.gamma),
                self._plan["degree"],
            )
            if bound > self.tolerance:
                warnings.warn(
                    f"PixelCKA is exact to {bound:.1e}, not to `tolerance`={self.tolerance:.1e}: the first batch did "
                    "not show how far the pixels spread. Shuffle the images or start with a larger batch.",
                    stacklevel=2,
                )
        return out

    def forward(self, images: Tensor) -> Tensor:  # type: ignore[override]
        """Add images and return the matrix of these alone; a gamma that `compute` has yet to take stays open."""
        self.product_sum = self.product_sum.clone()  # a compute group shares it, and `update` adds in place
        self.update(images)
        kernel = self._kernel if self.gamma.isnan() else type(self._kernel)(gamma=float(self.gamma))
        value = pixel_cka(
            images,
            kernel=kernel,
            patch_size=self.patch_size,
            tolerance=self.tolerance,
            batch_estimator=self.batch_estimator,
        )
        self._forward_cache = value  # type: ignore[assignment]
        return value

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the matrix, sites in reading order, constant ones left out.

        Args:
            val: what `compute` returned; None for `compute()`.
            ax: not taken: the figure has its own axes.

        Returns:
            A matplotlib Figure and its main axis.
        """
        if ax is not None:
            raise ValueError("Expected no `ax` for PixelCKA, but got one. Take the figure that it returns.")
        from genmonitor.plotting.pixel_clusters import cka_matrix

        matrix = self.compute() if val is None else val
        figure = cka_matrix(matrix, (matrix.diagonal() != 0).long())
        return figure, figure.axes[0]

    def get_extra_state(self) -> dict[str, Any]:
        """Return what the first `update` fixed."""
        return self._fixed()

    def _fixed(self) -> dict[str, Any]:
        return self._plan or {}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what the first `update` of a saved metric fixed."""
        self._plan = dict(state) or None

    def _choose_plan(self, x: Tensor, values: Tensor) -> dict[str, Any]:
        """Decide whether to stream, and about which point: degree 0 keeps the images."""
        plan = {"shape": tuple(x.shape[1:]), "degree": 0}
        d, per_site, _ = values.shape
        smallest = 8 * (d * taylor_size(per_site, 2)) ** 2
        gaussian = isinstance(self._kernel, GaussianKernel)
        if not gaussian or self.batch_estimator is not None or smallest > _state_budget():
            return plan
        check_min_samples("images", x)
        gamma = self._kernel.resolved(x.flatten(1)).width if self.gamma.isnan() else float(self.gamma)
        shift = values.mean(2, dtype=torch.float64)
        shifted = values.double() - shift[:, :, None]
        varying = (values.amax(2) != values.amin(2)).any(1)
        # one degree more than the first images need, for those to come
        degree = 1 + (choose_degree(shifted[varying], gamma, self.tolerance) if varying.any() else 1)
        if degree > MAX_DEGREE or 8 * (d * taylor_size(per_site, degree)) ** 2 > _state_budget():
            return plan
        feature_shift = taylor_features(shifted, gamma, degree).mean(2).flatten()
        shifts = {"site_shift": shift.cpu(), "feature_shift": feature_shift.cpu()}
        return plan | {"degree": degree, "gamma": gamma} | shifts

    def _add(self, values: Tensor) -> None:
        """Add the moments of site values [d, V, N] about the fixed point to the state, the upper triangle only."""
        assert self._plan is not None
        degree, shift = self._plan["degree"], self._plan["site_shift"].to(values.device)
        shifted = values.double() - shift[:, :, None]
        features = taylor_features(shifted, float(self.gamma), degree).flatten(0, 1)
        features -= self._plan["feature_shift"].to(values.device)[:, None]
        if self.product_sum.ndim == 0:
            self.product_sum = features.new_zeros(len(features), len(features))
        with full_precision():
            for start, stop in row_blocks(len(features), features.element_size()):
                self.product_sum[start:stop, start:].addmm_(features[start:stop], features[start:].T)
        self.feature_sum = self.feature_sum + features.sum(1)
        self.moment_sum = self.moment_sum + shifted.square().sum(1).pow(degree + 1).sum(1)
        self.count = self.count + values.shape[2]
        # one more column, so that a process without images has states of the same shape
        values = torch.nn.functional.pad(values.double(), (0, 1), value=math.inf)
        self.site_minimum = torch.minimum(self.site_minimum, values.amin(2))
        values[:, :, -1] = -math.inf
        self.site_maximum = torch.maximum(self.site_maximum, values.amax(2))


def _state_budget() -> int:
    """Return how many bytes the covariance may take: adding to it and reducing it take three times as much again."""
    return chunking.MEMORY_BUDGET // 4
