# SPDX-License-Identifier: Apache-2.0
"""Cosine mean similarity as a stateful metric."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from genmonitor.functional.cms import cosine_mean_similarity
from genmonitor.kernels import Kernel
from genmonitor.metrics._real_fake import TwoSampleMetric
from genmonitor.partition import PixelPartition


class CosineMeanSimilarity(TwoSampleMetric):
    """Cosine of the angle between two mean embeddings, for the image and for each cluster of its pixels.

    Keeps every sample of both sides, since the estimator needs all their distances.

    Args:
        partition: Regions to compare too; None for the whole sample alone, the only choice for features [N, D].
        kernel: Kernel; None for a Gaussian. A gamma that is not given is resolved at the first `compute`, from the
            first 1000 real samples of all processes, and stays across `reset`. So values of later epochs are
            comparable. Give it if the first samples are few, such as those of Lightning's sanity check.
        block_size: Block size b of the paper's estimator (150 there); None for all samples at once.
        unbiased: True to leave the diagonal out of the squared norms; the value may then exceed 1.
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as
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

    def _compared(self, fake: Tensor, real: Tensor) -> Tensor | dict[str, Tensor]:
        return cosine_mean_similarity(fake, real, partition=self.partition, **self._settings(real))
