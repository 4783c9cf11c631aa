# SPDX-License-Identifier: Apache-2.0
"""Kernels with k(x, x) = 1, their Gram matrices, means over pairs and covariances."""

from genmonitor.kernels.base import MEDIAN_SAMPLES, Kernel
from genmonitor.kernels.builtin import CosineKernel, GaussianKernel, LaplacianKernel

__all__ = ["MEDIAN_SAMPLES", "CosineKernel", "GaussianKernel", "Kernel", "LaplacianKernel"]
