# SPDX-License-Identifier: Apache-2.0
"""The metrics as torchmetrics.Metric."""

from genmonitor.metrics.cka import PixelCKA
from genmonitor.metrics.cms import CosineMeanSimilarity
from genmonitor.metrics.mmd import MaximumMeanDiscrepancy

__all__ = ["CosineMeanSimilarity", "MaximumMeanDiscrepancy", "PixelCKA"]
