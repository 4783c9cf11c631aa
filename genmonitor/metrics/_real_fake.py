# SPDX-License-Identifier: Apache-2.0
"""Metrics that keep generated and real samples and compare them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from genmonitor._validation import check_bool, check_min_samples, check_samples
from genmonitor.functional.kernel_means import check_estimator
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.metrics._base import GenerativeMetric, KernelMetric, joined
from genmonitor.partition import PixelPartition


class TwoSidedMetric(GenerativeMetric):
    """Keeps generated and real samples; a subclass compares them.

    Args:
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.
    """

    of_every_batch = ("real_samples",)
    partition: PixelPartition | None = None

    fake_samples: list[Tensor]
    real_samples: list[Tensor]

    def __init__(self, reset_real_features: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reset_real_features = check_bool("reset_real_features", reset_real_features)
        self.add_state("fake_samples", default=[], dist_reduce_fx="cat")
        self.add_state("real_samples", default=[], dist_reduce_fx="cat")
        self._share_states_if(reset_real_features)

    def update(self, samples: Tensor, real: bool) -> None:
        """Add samples to one side.

        Args:
            samples: Images [N, C, H, W] or features [N, D]; integers in images are read as 0..255 and scaled to [0, 1].
            real: True for real samples, False for generated ones.

        Raises:
            TypeError: If they are not a tensor of real numbers, or `real` is neither True nor False.
            ValueError: If they are not finite or differ in shape from those before.
        """
        check_bool("real", real)
        shape = next((tuple(side[0].shape[1:]) for side in (self.fake_samples, self.real_samples) if len(side)), None)
        x = self._checked_samples("real samples" if real else "fake samples", samples, shape)
        self._keep("real_samples" if real else "fake_samples", x, samples)

    def compute(self) -> Any:
        """Return the value of all samples."""
        return self._compared(self._kept("fake"), self._kept("real"))

    def reset(self) -> None:
        """Forget the fake side, and the real one unless `reset_real_features` is False."""
        real = None if self.reset_real_features else list(self.real_samples)
        super().reset()
        if real is not None:
            self.real_samples = real

    def _checked_samples(self, name: str, samples: Tensor, shape: tuple[int, ...] | None) -> Tensor:
        """Check samples of one side against the given shape of a sample."""
        x = check_samples(name, samples, shape)
        if self.partition is not None:
            self.partition.check_images(name, tuple(x.shape))
        return x

    def _kept(self, name: str) -> Tensor:
        return joined(f"{name} samples", getattr(self, f"{name}_samples"), "update(x, real=...)")

    def _compared(self, fake: Tensor, real: Tensor) -> Any:
        """Return the value that compares both sides."""
        raise NotImplementedError


class TwoSampleMetric(TwoSidedMetric, KernelMetric):
    """Averages a kernel over pairs of samples.

    Args:
        kernel: Kernel; None for a Gaussian.
        partition: Partition of the images, where the metric has one.
        block_size: Number of samples per block; None for all at once.
        unbiased: True to leave out the pairs of a sample with itself.
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.
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

    def _settings(self, real: Tensor) -> dict[str, Any]:
        """Return the kernel, resolved from real samples, and the estimator, as arguments of a function."""
        check_min_samples("real samples", real)
        kernel = self._resolved("gamma", real.flatten(1))
        return {"kernel": kernel, "block_size": self.block_size, "unbiased": self.unbiased}
