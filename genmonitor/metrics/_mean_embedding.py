# SPDX-License-Identifier: Apache-2.0
"""Metrics that compare the mean embeddings of generated and real samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genmonitor._validation import check_bool, check_min_samples, check_whole_blocks
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.means import KernelMeans, check_estimator, kernel_means, region_columns
from genmonitor.metrics._kernel_width import KernelMetric
from genmonitor.metrics._real_fake import TwoSidedMetric
from genmonitor.partition import PixelPartition


class TwoSampleMetric(TwoSidedMetric, KernelMetric):
    """Averages a kernel over pairs of samples of both sides; a subclass computes its value from these means.

    Args:
        kernel: None for a Gaussian.
        partition: of the images, where the metric has one.
        block_size: samples per block; None for all at once.
        unbiased: leave out the pairs of a sample with itself.
        reset_real_features: whether `reset` forgets the real side too.
        kwargs: those of torchmetrics.Metric.
    """

    is_differentiable: bool = True

    gamma: Tensor

    def __init__(
        self,
        kernel: Kernel | None,
        partition: PixelPartition | None,
        block_size: int | None,
        unbiased: bool,
        reset_real_features: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(reset_real_features, **kwargs)
        check_estimator(kernel, partition, block_size)
        self._add_kernel("gamma", kernel or GaussianKernel())
        self.partition = partition
        self.block_size = block_size
        self.unbiased = check_bool("unbiased", unbiased)

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once `compute` has taken it from the real samples."""
        return self._kernel("gamma")

    def forward(self, samples: Tensor, real: bool) -> Any:  # type: ignore[override]
        """Add a batch and return its value as `TwoSidedMetric.forward` does; a gamma that is open stays open.

        Args:
            samples: as for `update`.
            real: which side.
        """
        with self._gammas_preserved():
            return super().forward(samples, real)

    def _checked_samples(self, name: str, samples: Tensor, shape: tuple[int, ...] | None) -> Tensor:
        x = super()._checked_samples(name, samples, shape)
        if self.partition is not None:
            self.partition.check_images(name, tuple(x.shape))
        return x

    def _compared(self, fake: Tensor, real: Tensor) -> Any:
        check_min_samples("fake samples", fake)
        check_min_samples("real samples", real)
        check_whole_blocks("fake", len(fake), self.block_size)
        check_whole_blocks("real", len(real), self.block_size)
        kernel = self._resolved("gamma", real.flatten(1))
        dtype = torch.promote_types(fake.dtype, real.dtype)
        return self._value(self._means(fake.to(dtype), real.to(dtype), kernel))

    def _means(self, fake: Tensor, real: Tensor, kernel: Kernel) -> KernelMeans:
        """Return the means of the kernel, reusing those of the real side by itself while it stays the same."""
        means = kernel_means(
            fake.flatten(1),
            real.flatten(1),
            kernel,
            regions=region_columns(self.partition, real),
            block_size=self.block_size,
            within_real=self._known_term(kernel, real),
        )
        self._remember_term(kernel, real, means.within_real)
        return means.without_diagonal() if self.unbiased else means

    def _value(self, means: KernelMeans) -> Any:
        """Return the metric's value from the means of the kernel."""
        raise NotImplementedError
