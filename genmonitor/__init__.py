# SPDX-License-Identifier: Apache-2.0
"""Says where an image generator is wrong and what it fails to vary."""

from genmonitor.kernels import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.metrics import (
    PRDC,
    CosineMeanSimilarity,
    MaximumMeanDiscrepancy,
    PixelCKA,
    PromptSplit,
    RKEScore,
    ScendiScore,
    VendiScore,
    W1KPScore,
)
from genmonitor.partition import PixelPartition

__all__ = [
    "PRDC",
    "CosineKernel",
    "CosineMeanSimilarity",
    "GaussianKernel",
    "LaplacianKernel",
    "MaximumMeanDiscrepancy",
    "PixelCKA",
    "PixelPartition",
    "PromptSplit",
    "RKEScore",
    "ScendiScore",
    "VendiScore",
    "W1KPScore",
]
