# SPDX-License-Identifier: Apache-2.0
"""Cosine mean similarity as a stateful metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from genmonitor._formatting import Band
from genmonitor.functional.cms import cms_from_means
from genmonitor.kernels import Kernel
from genmonitor.kernels.means import KernelMeans
from genmonitor.metrics._real_fake import TwoSampleMetric
from genmonitor.partition import PixelPartition

"""Of a baseline: lower end, median, upper end."""


class CosineMeanSimilarity(TwoSampleMetric):
    """Cosine of the angle between two mean embeddings, for the image and for each cluster of its pixels.

    Keeps every sample of both sides, since the estimator needs all their distances. What the real samples contribute by
    themselves is computed once and reused while they stay the same.

    Args:
        partition: None for the whole sample alone, the only choice for features [N, D].
        kernel: None for a Gaussian. An open gamma is resolved once, at the first `compute`, from the first 1000 real
            samples of all processes.
        block_size: None for all samples at once; b for the paper's block estimator (its b is 150).
        unbiased: leave the diagonal out of the squared norms; the value may then exceed 1.
        reset_real_features: whether `reset` forgets the real side too.
        kwargs: those of torchmetrics.Metric.

    Raises:
        ValueError: if an argument is out of its range; by `update` and `compute` as
            `functional.cosine_mean_similarity` does, which also documents the values.

    References:
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 3, 4, 15 and 17.

    Example:
        >>> import torch
        >>> from genmonitor import CosineMeanSimilarity, PixelPartition
        >>> real = torch.linspace(-1, 1, 4 * 2 * 2).reshape(4, 1, 2, 2)
        >>> metric = CosineMeanSimilarity(PixelPartition.grid((2, 2), rows=1, columns=2))
        >>> metric.update(real, real=True)
        >>> metric.update(real * torch.tensor([1.0, -1.0]), real=False)  # the right half is mirrored
        >>> {name: round(float(value), 3) for name, value in metric.compute().items() if "_" in name}
        {'cluster_1': 1.0, 'cluster_2': 0.946, 'share_1': 0.0, 'share_2': 1.0}
    """

    higher_is_better: bool = True
    plot_lower_bound: float = 0.0
    plot_upper_bound: float = 1.0

    def __init__(
        self,
        partition: PixelPartition | None = None,
        kernel: Kernel | None = None,
        block_size: int | None = None,
        unbiased: bool = False,
        reset_real_features: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel, partition, block_size, unbiased, reset_real_features, **kwargs)

    def plot(self, val: Any = None, ax: Any = None, baseline: Mapping[str, Band] | None = None) -> Any:
        """Draw image and regions on an axis for CMS with the map beside it, or several values in order as curves.

        Without a partition, or with an axis of your own, everything is drawn on one axis, as torchmetrics does.

        Args:
            val: what `compute` returned, or a list of such values; None for `compute()`.
            ax: a matplotlib axis; None for a new figure.
            baseline: what real images get, (low, median, high) by name, such as `compare(...).baseline`.

        Returns:
            The figure and its axis.
        """
        if self.partition is None or ax is not None:
            return super().plot(val, ax)
        from genmonitor.plotting.metrics import cms_figure

        values: Any = self.compute() if val is None else val
        figure = cms_figure(values if isinstance(values, list) else [values], self.partition, baseline or {})
        return figure, figure.axes[0]

    def compute(self) -> Tensor | dict[str, Tensor]:  # type: ignore[override]
        """Return a float64 scalar, or with a partition the dictionary of `functional.cosine_mean_similarity`."""
        return super().compute()

    def _value(self, means: KernelMeans) -> Tensor | dict[str, Tensor]:
        return cms_from_means(means, self.partition)
