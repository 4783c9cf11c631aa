# SPDX-License-Identifier: Apache-2.0
"""Says where an image generator is wrong and what it fails to vary."""

from genmonitor.kernels import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.metrics import CosineMeanSimilarity, MaximumMeanDiscrepancy, PixelCKA
from genmonitor.partition import PixelPartition

__all__ = [
    "CosineKernel",
    "CosineMeanSimilarity",
    "GaussianKernel",
    "LaplacianKernel",
    "MaximumMeanDiscrepancy",
    "PixelCKA",
    "PixelPartition",
]
