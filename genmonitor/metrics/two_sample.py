# SPDX-License-Identifier: Apache-2.0
"""What metrics share that compare generated samples with real ones: both sides are kept, the real one across resets."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from genmonitor import checks
from genmonitor.functional.kernel_means import KernelMeans, check_estimator, kernel_means, region_columns
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.partition import PixelPartition


class TwoSampleMetric(Metric):
    """Keeps generated and real samples; a subclass computes from them.

    Args:
        kernel: None for a Gaussian.
        partition: of the images, where the metric has one.
        block_size: samples per block; None for all at once.
        unbiased: leave the pairs of a sample with itself out.
        reset_real_features: whether `reset` forgets the real side too.
        kwargs: those of torchmetrics.Metric.
    """

    is_differentiable: ClassVar[bool] = True  # type: ignore[misc]
    full_state_update: ClassVar[bool] = True  # type: ignore[misc]

    fake_samples: list[Tensor]
    real_samples: list[Tensor]
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
        super().__init__(**kwargs)
        check_estimator(kernel, partition, block_size)
        self._kernel = kernel or GaussianKernel()
        self.partition = partition
        self.block_size = block_size
        self.unbiased = unbiased
        self.reset_real_features = reset_real_features
        self.add_state("fake_samples", default=[], dist_reduce_fx="cat")
        self.add_state("real_samples", default=[], dist_reduce_fx="cat")
        gamma = math.nan if self._kernel.gamma is None else self._kernel.gamma
        self.register_buffer("gamma", torch.tensor(gamma, dtype=torch.float64))
        self._real_terms: tuple[Tensor, Tensor] | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once `compute` has taken it from the real samples."""
        return self._kernel if self.gamma.isnan() else type(self._kernel)(gamma=float(self.gamma))

    def update(self, samples: Tensor, real: bool) -> None:
        """Add samples to one side.

        Args:
            samples: images [N, C, H, W] or features [N, D]; integers in images are read as 0..255 and scaled to [0, 1].
            real: which side.

        Raises:
            TypeError: if they are no tensor of real numbers.
            ValueError: if they are not finite or differ in shape from those before.
        """
        shape = next((tuple(side[0].shape[1:]) for side in (self.fake_samples, self.real_samples) if len(side)), None)
        name = "real samples" if real else "fake samples"
        x = checks.samples(name, samples, shape)
        if self.partition is not None:
            self.partition.check_images(name, tuple(x.shape))
        (self.real_samples if real else self.fake_samples).append(x)

    def _sides(self) -> tuple[Tensor, Tensor]:
        """Return all fake and all real samples, flattened, having taken gamma from the real ones if it was open."""
        for name in ("fake", "real"):
            if not len(getattr(self, f"{name}_samples")):
                raise ValueError(f"Expected {name} samples before `compute`, but got none. Call `update(x, real=...)`.")
        fake, real = (dim_zero_cat(side) for side in (self.fake_samples, self.real_samples))
        checks.enough("fake samples", fake)
        checks.enough("real samples", real)
        checks.whole_blocks("fake", len(fake), self.block_size)
        checks.whole_blocks("real", len(real), self.block_size)
        if self.gamma.isnan() and self._kernel.takes_width:
            self.gamma.fill_(self._kernel.resolved(real.flatten(1)).gamma)
        dtype = torch.promote_types(fake.dtype, real.dtype)
        return fake.to(dtype), real.to(dtype)

    def _means(self, fake: Tensor, real: Tensor) -> KernelMeans:
        """Return the means of the kernel, those of the real side by itself from the last time if it is the same."""
        known = self._real_terms
        same = known is not None and known[0].device == real.device and torch.equal(known[0], real)
        means = kernel_means(
            fake.flatten(1),
            real.flatten(1),
            self.kernel,
            regions=region_columns(self.partition, real),
            block_size=self.block_size,
            within_real=known[1] if known is not None and same else None,
        )
        self._real_terms = (real.detach(), means.within_real.detach())
        return means.without_diagonal() if self.unbiased else means

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return the value of that batch against the real side kept; gamma stays open if it was."""
        gamma = self.gamma.clone()
        try:
            return super().forward(*args, **kwargs)
        finally:
            self.gamma.copy_(gamma)

    def reset(self) -> None:
        """Forget the fake side, and the real one unless `reset_real_features` is False."""
        real = None if self.reset_real_features else list(self.real_samples)
        super().reset()
        if real is not None:
            self.real_samples = real
