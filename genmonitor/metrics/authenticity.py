# SPDX-License-Identifier: Apache-2.0
"""Authenticity as a stateful metric."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genmonitor.functional.authenticity import authenticity, nearest_training_samples
from genmonitor.metrics._real_fake import TwoSidedMetric


class Authenticity(TwoSidedMetric):
    """Share of generated samples that are not copies of training samples.

    Keeps every sample of both sides.

    Args:
        reset_real_features: True if `reset` also forgets the training samples.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as `functional.authenticity` does,
            which also documents the value.

    References:
        Alaa et al., "How Faithful is your Synthetic Data? Sample-level Metrics for Evaluating and Auditing Generative
            Models", arXiv 2102.08921.

    Example:
        >>> import torch
        >>> from genmonitor import Authenticity
        >>> metric = Authenticity()
        >>> metric.update(torch.tensor([[0.0], [1.0], [3.0]]), real=True)
        >>> metric.update(torch.tensor([[5.5], [0.1]]), real=False)
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
        >>> metric.copies()  # the generated sample 1 is near the training sample 0
        tensor([[1, 0]])
    """

    is_differentiable: bool = False
    higher_is_better: bool = True
    plot_lower_bound: float = 0.0
    plot_upper_bound: float = 1.0

    def __init__(self, reset_real_features: bool = True, **kwargs: Any) -> None:
        super().__init__(reset_real_features, **kwargs)

    def copies(self) -> Tensor:
        """Find the generated samples that are copies, and of which samples. Every process must call it, like `compute`.

        Returns:
            Pairs [K, 2] of the indices of a generated and a training sample, counted in the order of their updates
            (process by process). The closest come first, relative to the distance of the training sample to its own
            nearest.
        """
        with self._synced():
            ratios, nearest = nearest_training_samples(self._kept("fake"), self._kept("real"))
        copied = (ratios <= 1).nonzero()[:, 0]
        return torch.stack([copied, nearest[copied]], dim=1)[ratios[copied].argsort(stable=True)]

    def _compared(self, fake: Tensor, real: Tensor) -> Tensor:
        return authenticity(fake, real)
