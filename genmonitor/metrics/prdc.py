# SPDX-License-Identifier: Apache-2.0
"""Precision, recall, density and coverage as a stateful metric."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.functional.prdc import precision_recall_density_coverage
from genmonitor.metrics._real_fake import TwoSidedMetric


class PRDC(TwoSidedMetric):
    """Precision, recall, density and coverage of generated samples among real ones, by k nearest neighbors.

    Keeps every sample of both sides.

    Args:
        k: Number of neighbors.
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as
            `functional.precision_recall_density_coverage` does, which also documents the values.

    References:
        Kynkäänniemi et al., "Improved Precision and Recall Metric for Assessing Generative Models", arXiv 1904.06991,
            for precision and recall.
        Naeem et al., "Reliable Fidelity and Diversity Metrics for Generative Models", arXiv 2002.09797, for density and
            coverage.

    Example:
        >>> import torch
        >>> from genmonitor import PRDC
        >>> metric, real = PRDC(k=2), torch.arange(8.0)[:, None]
        >>> metric.update(real, real=True)
        >>> metric.update(real[:4] + 0.5, real=False)  # half of the range
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'precision': 1.0, 'recall': 0.75, 'density': 1.125, 'coverage': 0.625}
    """

    is_differentiable: bool = False
    higher_is_better: bool = True
    plot_lower_bound: float = 0.0

    def __init__(self, k: int = 5, reset_real_features: bool = True, **kwargs: Any) -> None:
        super().__init__(reset_real_features, **kwargs)
        self.k = check_at_least("k", k, 1)

    def _compared(self, fake: Tensor, real: Tensor) -> dict[str, Tensor]:
        return precision_recall_density_coverage(fake, real, k=self.k)
