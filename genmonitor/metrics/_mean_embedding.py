# SPDX-License-Identifier: Apache-2.0
"""What metrics share that compare the mean embeddings of generated and real samples."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from genmonitor._validation import check_bool, check_min_samples, check_whole_blocks
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.means import KernelMeans, check_estimator, kernel_means, region_columns
from genmonitor.metrics._real_fake import TwoSidedMetric
from genmonitor.partition import PixelPartition


class TwoSampleMetric(TwoSidedMetric):
    """Averages a kernel over the pairs of both sides; a subclass computes from that.

    Args:
        kernel: None for a Gaussian.
        partition: of the images, where the metric has one.
        block_size: samples per block; None for all at once.
        unbiased: leave the pairs of a sample with itself out.
        reset_real_features: whether `reset` forgets the real side too.
        kwargs: those of torchmetrics.Metric.
    """

    is_differentiable: ClassVar[bool] = True  # type: ignore[misc]

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
        self._kernel = kernel or GaussianKernel()
        self.partition = partition
        self.block_size = block_size
        self.unbiased = check_bool("unbiased", unbiased)
        gamma = math.nan if self._kernel.gamma is None else self._kernel.gamma
        self.register_buffer("gamma", torch.tensor(gamma, dtype=torch.float64))
        self._real_terms: tuple[Kernel, Tensor, Tensor] | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once `compute` has taken it from the real samples."""
        return self._kernel if self.gamma.isnan() else type(self._kernel)(gamma=float(self.gamma))

    def _checked_samples(self, name: str, samples: Tensor, shape: tuple[int, ...] | None) -> Tensor:
        x = super()._checked_samples(name, samples, shape)
        if self.partition is not None:
            self.partition.check_images(name, tuple(x.shape))
        return x

    def _checked(self, fake: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        check_min_samples("fake samples", fake)
        check_min_samples("real samples", real)
        check_whole_blocks("fake", len(fake), self.block_size)
        check_whole_blocks("real", len(real), self.block_size)
        if self.gamma.isnan() and self._kernel.takes_width:
            self.gamma.fill_(self._kernel.resolved(real.flatten(1)).width)
        dtype = torch.promote_types(fake.dtype, real.dtype)
        return fake.to(dtype), real.to(dtype)

    def _means(self, fake: Tensor, real: Tensor) -> KernelMeans:
        """Return the means of the kernel, those of the real side by itself from the last time if it is the same."""
        kernel, known = self.kernel, self._real_terms
        same = known and known[0] == kernel and known[1].device == real.device and torch.equal(known[1], real)
        means = kernel_means(
            fake.flatten(1),
            real.flatten(1),
            kernel,
            regions=region_columns(self.partition, real),
            block_size=self.block_size,
            within_real=known[2] if known and same else None,
        )
        self._real_terms = (kernel, real, means.within_real)
        return means.without_diagonal() if self.unbiased else means

    def _value(self, means: KernelMeans) -> Any:
        """Put the value together from the means of the kernel."""
        raise NotImplementedError

    def _compared(self, fake: Tensor, real: Tensor) -> Any:
        return self._value(self._means(*self._checked(fake, real)))

    def forward(self, samples: Tensor, real: bool) -> Any:  # type: ignore[override]
        """Add a batch; return the value of a fake one against the real samples of this process so far, else None.

        The value carries the gradient of the batch. A gamma that is open stays open.

        Args:
            samples: as for `update`.
            real: which side.
        """
        gamma = self.gamma.clone()
        try:
            return super().forward(samples, real)
        finally:
            self.gamma.copy_(gamma)
