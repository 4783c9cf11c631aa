# SPDX-License-Identifier: Apache-2.0
"""Centered kernel alignment between all pairs of pixels as a stateful metric."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchmetrics.utilities import dim_zero_cat

from genmonitor._validation import check_count, check_min_samples
from genmonitor.functional._cka_taylor import MAX_DEGREE, choose_degree, cka_from_covariance, taylor_bound
from genmonitor.functional.cka import check_cka_arguments, check_patches, cka_images, pixel_cka, site_values
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.feature_maps import taylor_features, taylor_size
from genmonitor.linalg.precision import full_precision
from genmonitor.metrics._base import AnchoredMetric, KernelMetric, from_rank_zero


class PixelCKA(AnchoredMetric, KernelMetric):
    """Centered kernel alignment between all pairs of sites (pixels or patches) of the images seen.

    By default the metric streams: the Gaussian kernel of a site has few Taylor features, and their covariance is the
    whole state, whose size does not grow with the number of images. The images themselves are kept where that would
    take more than 128 MiB (large or color images), for other kernels, and for the mini-batch estimator.

    When the metric streams, the first `update` fixes gamma, the degree of the features and what is subtracted from the
    pixels. Under torch.distributed rank zero's choice holds for all, so every process must call the first `update`, if
    only with no images [0, C, H, W].

    Args:
        kernel: None for a Gaussian. An open gamma is resolved once, from whole images: the first
            1000 of all processes at the first `compute` where images are kept, else those of the first `update`.
        patch_size: side of a site in pixels; it divides the height and width of the images.
        tolerance: how far truncated features may take an entry from its exact value.
        batch_estimator: None for all images at once; m for the paper's mean over mini-batches of m.
        kwargs: those of torchmetrics.Metric.

    Raises:
        ValueError: if an argument is out of its range; by `update` if images are not finite or differ in shape.

    References:
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 11-13.

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

    is_differentiable: bool = False
    higher_is_better: None = None
    full_state_update: bool = False

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
        self._add_kernel("gamma", kernel or GaussianKernel())
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

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once that is known."""
        return self._kernel("gamma")

    def update(self, images: Tensor) -> None:
        """Add images.

        Args:
            images: [N, C, H, W]; integers are read as 0..255 and scaled to [0, 1].

        Raises:
            TypeError: if they are not a tensor of real numbers.
            ValueError: if they are not finite, differ in shape from those before, or are fewer than 2 in the first
                `update` of a streaming metric.
        """
        x = cka_images(images, self._fixed.get("shape"))
        check_patches("images", x, self.patch_size)
        values = site_values(x, self.patch_size)
        if not self._fixed:
            self._fixed = from_rank_zero(lambda: {"shape": tuple(x.shape[1:]), **self._choose_expansion(x, values)})
        if "degree" not in self._fixed:  # it does not stream
            self.images = [*self.images, x.detach()]  # a new list, since a compute group shares the old one
            return
        expansion = self._expansion()
        self.gamma.fill_(expansion.gamma)
        per_image = len(expansion.feature_shift) * expansion.feature_shift.element_size()
        for some in values.split(max(1, chunking.MEMORY_BUDGET // (4 * per_image)), dim=2):
            self._add(some, expansion)

    def compute(self) -> Tensor:
        """Return the matrix [d, d], float64, entries in [0, 1]; rows and columns of constant sites are zero."""
        if len(self.images):
            images = dim_zero_cat(self.images)
            return self._cka(images, self._resolved("gamma", images.flatten(1)))
        check_count("images", int(self.count) if self._fixed else 0, "update(images)")
        upper = (self.product_sum - torch.outer(self.feature_sum, self.feature_sum) / self.count) / self.count
        constant = (self.site_minimum == self.site_maximum).all(1)
        values = self.site_minimum.shape[1]
        out, linear_norm = cka_from_covariance(upper.triu() + upper.triu(1).T, constant, values)
        self._warn_if_inexact(~constant, linear_norm)
        return out

    def forward(self, images: Tensor) -> Tensor:  # type: ignore[override]
        """Add images and return the matrix of these alone; a gamma that `compute` has yet to take stays open.

        With `dist_sync_on_step` it is the matrix of the batches of all processes.

        Args:
            images: as for `update`.
        """
        self.product_sum = self.product_sum.clone()  # a compute group shares it, and `update` adds in place
        self.update(images)
        with self._batch_state(images=[cka_images(images).detach()]), self._synced_on_step():
            value = self._cka(dim_zero_cat(self.images), self.kernel)
        self._forward_cache = value  # type: ignore[assignment]
        return value

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the matrix, sites in reading order, constant ones left out.

        Args:
            val: what `compute` returned; None for `compute()`.
            ax: not supported: the figure has its own axes.

        Returns:
            A matplotlib Figure and its main axis.
        """
        if ax is not None:
            raise ValueError("Expected no `ax` for PixelCKA, but got one. Take the figure that it returns.")
        from genmonitor.plotting.pixel_clusters import cka_matrix

        matrix = self.compute() if val is None else val
        figure = cka_matrix(matrix, (matrix.diagonal() != 0).long())
        return figure, figure.axes[0]

    def _repr_html_(self) -> str:
        """Return the matrix of the last `compute` as a picture for a notebook."""
        if self._computed is None:
            return super()._repr_html_()
        from genmonitor._html import figure_html

        return figure_html(self.plot(self._computed)[0], "CKA between the sites")

    def _expansion(self) -> TaylorExpansion:
        """Return the expansion that a streaming metric sums about."""
        return TaylorExpansion(**{name: value for name, value in self._fixed.items() if name != "shape"})

    def _choose_expansion(self, x: Tensor, values: Tensor) -> dict[str, Any]:
        """Return the attributes of the expansion to stream about, none where the images are to be kept."""
        streams = self.kernel.has_taylor_features and self.batch_estimator is None
        if not streams or not fits(values, degree=2):
            return {}
        check_min_samples("images", x)
        expansion = TaylorExpansion.of(values, self.kernel.resolved(x.flatten(1)).resolved_gamma, self.tolerance)
        return vars(expansion) if expansion else {}

    def _add(self, values: Tensor, expansion: TaylorExpansion) -> None:
        """Add the moments of site values [d, V, N] to the state, of products the upper triangle only."""
        shifted = expansion.shifted(values)
        features = expansion.features(shifted)
        if self.product_sum.ndim == 0:
            self.product_sum = features.new_zeros(len(features), len(features))
        with full_precision():
            for start, stop in row_blocks(len(features), features.element_size()):
                self.product_sum[start:stop, start:].addmm_(features[start:stop], features[start:].T)
        self.feature_sum = self.feature_sum + features.sum(1)
        self.moment_sum = self.moment_sum + shifted.square().sum(1).pow(expansion.degree + 1).sum(1)
        self.count = self.count + values.shape[2]
        # one column more, so that a process without images has states of the same shape
        self.site_minimum = torch.minimum(self.site_minimum, pad(values.double(), (0, 1), value=math.inf).amin(2))
        self.site_maximum = torch.maximum(self.site_maximum, pad(values.double(), (0, 1), value=-math.inf).amax(2))

    def _cka(self, images: Tensor, kernel: Kernel) -> Tensor:
        return pixel_cka(
            images,
            kernel=kernel,
            patch_size=self.patch_size,
            tolerance=self.tolerance,
            batch_estimator=self.batch_estimator,
        )

    def _warn_if_inexact(self, varying: Tensor, linear_norm: Tensor) -> None:
        """Warn where later images spread further than the degree chosen by the first ones allows for."""
        if not varying.any():
            return
        moment, degree = (self.moment_sum / self.count)[varying], self._expansion().degree
        bound = taylor_bound(moment, linear_norm[varying], float(self.gamma), degree)
        if bound > self.tolerance:
            warnings.warn(
                f"PixelCKA is exact to {bound:.1e}, not to `tolerance`={self.tolerance:.1e}: the first batch did not "
                "show how far the pixels spread. Shuffle the images or start with a larger batch.",
                stacklevel=3,
            )


@dataclass(frozen=True, eq=False)
class TaylorExpansion:
    """The Taylor features of the Gaussian kernel of every site, centered well enough for sums of their products.

    Attributes:
        gamma: of the kernel.
        degree: highest degree of the features.
        site_shift: subtracted from the values of the sites [d, V], float64.
        feature_shift: subtracted from the features [d · R], float64.
    """

    gamma: float
    degree: int
    site_shift: Tensor
    feature_shift: Tensor

    @classmethod
    def of(cls, values: Tensor, gamma: float, tolerance: float) -> TaylorExpansion | None:
        """Choose an expansion by the first images, or None where its covariance would exceed the memory budget.

        Args:
            values: of the sites [d, V, N].
            gamma: of the kernel.
            tolerance: how far an entry of the CKA may be off.
        """
        shift = values.mean(2, dtype=torch.float64)
        shifted = values.double() - shift[:, :, None]
        varying = (values.amax(2) != values.amin(2)).any(1)
        # one degree more than the first images need, for those to come
        degree = 1 + (choose_degree(shifted[varying], gamma, tolerance) if varying.any() else 1)
        if degree > MAX_DEGREE or not fits(values, degree):
            return None
        feature_shift = taylor_features(shifted, gamma, degree).mean(2).flatten()
        return cls(gamma, degree, shift.cpu(), feature_shift.cpu())

    def shifted(self, values: Tensor) -> Tensor:
        """Return values [d, V, N] less the shift, float64."""
        return values.double() - self.site_shift.to(values.device)[:, :, None]

    def features(self, shifted: Tensor) -> Tensor:
        """Return the features [d · R, N], less their shift, of shifted values [d, V, N]."""
        features = taylor_features(shifted, self.gamma, self.degree).flatten(0, 1)
        return features.sub_(self.feature_shift.to(features.device)[:, None])


def fits(values: Tensor, degree: int) -> bool:
    """Say whether the covariance of the features of values [d, V, N] fits in memory.

    It may take a quarter of the budget, since adding to it and reducing it take three times as much again.
    """
    sites, per_site, _ = values.shape
    return 8 * (sites * taylor_size(per_site, degree)) ** 2 <= chunking.MEMORY_BUDGET // 4
