# SPDX-License-Identifier: Apache-2.0
"""Maximum mean discrepancy as a stateful metric."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from genmonitor.functional.mmd import maximum_mean_discrepancy
from genmonitor.kernels import Kernel
from genmonitor.metrics._real_fake import TwoSampleMetric


class MaximumMeanDiscrepancy(TwoSampleMetric):
    """Squared maximum mean discrepancy between generated and real samples.

    Keeps every sample of both sides.

    Args:
        kernel: Kernel; None for a Gaussian. A gamma that is not given is resolved at the first `compute`, from the
            first 1000 real samples of all processes, and stays across `reset`. So values of later epochs are
            comparable. Give it if the first samples are few, such as those of Lightning's sanity check.
        block_size: Block size b to average over pairs of blocks; None for all samples at once.
        unbiased: True to leave out the diagonals; the value may then be slightly negative.
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as
            `functional.maximum_mean_discrepancy` does.

    References:
        Gretton et al., "A Kernel Two-Sample Test", JMLR 2012, Eq. 3 and 5.
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 2 and 16.

    Example:
        >>> import torch
        >>> from genmonitor import MaximumMeanDiscrepancy
        >>> metric = MaximumMeanDiscrepancy(unbiased=False)
        >>> metric.update(torch.tensor([[0.0], [1.0]]), real=True)
        >>> metric.update(torch.tensor([[1.0], [0.0]]), real=False)
        >>> metric.compute()
        tensor(0., dtype=torch.float64)
    """

    higher_is_better: bool = False
    plot_lower_bound: float = 0.0

    def __init__(
        self,
        kernel: Kernel | None = None,
        block_size: int | None = None,
        unbiased: bool = True,
        reset_real_features: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel, None, block_size, unbiased, reset_real_features, **kwargs)

    def _compared(self, fake: Tensor, real: Tensor) -> Tensor:
        return maximum_mean_discrepancy(fake, real, **self._settings(real))
