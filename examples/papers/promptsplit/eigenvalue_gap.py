# SPDX-License-Identifier: Apache-2.0
"""Sigma of a Gaussian kernel by the gap of the largest eigenvalues, as PromptSplit's paper chooses it."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_features, check_min_samples, check_positive
from genmonitor.kernels import MEDIAN_SAMPLES, GaussianKernel
from genmonitor.linalg.precision import full_precision

STEPS = 8
"""Halvings of the range of sigma, from 1/32 to 32 times the median's on a log scale: 3 % of sigma are left."""


def sigma_by_eigenvalue_gap(features: Tensor, gap: float = 0.01) -> float:
    """Return a wide Gaussian kernel's sigma that still keeps the two largest eigenvalues close to each other.

    They are those of K/N, K the Gram matrix of the first 1000 samples: N equal ones of 1/N as sigma approaches 0, one
    of 1 as it grows. It is found by bisection, as a width at which the gap between the two largest crosses `gap`. That
    keeps one mode from standing for all samples; the median heuristic, mostly wider, compares by coarser traits.
    Use it as `GaussianKernel.from_sigma(sigma_by_eigenvalue_gap(reference_outputs))`, once for each space.

    Args:
        features: [N, D], N at least 2.
        gap: positive; from 1 on any width will do, and the widest is returned.

    Returns:
        sigma of exp(-‖x - y‖² / (2 sigma²)), within a factor of 32 of the median heuristic's.

    Raises:
        TypeError: if `features` is not a tensor of real numbers.
        ValueError: if samples are fewer than 2 or not finite, so many are equal that no width will do, or `gap` is not
            positive.

    References:
        Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models", arXiv
            2602.04009, which takes a gap of 0.01.

    Example:
        >>> x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> sigma = sigma_by_eigenvalue_gap(x, gap=0.1)
        >>> values = torch.linalg.eigvalsh(GaussianKernel.from_sigma(sigma)(x, x) / 200)
        >>> 0.08 < values[-1] - values[-2] <= 0.1
        tensor(True)
    """
    x = check_features("features", features).detach()[:MEDIAN_SAMPLES].double()
    check_min_samples("features", x)
    check_positive("gap", gap)
    median = GaussianKernel().resolved(x)
    with full_precision():
        distances = median.distances(*median.prepared(x, x))
        low, high = (median.resolved_gamma * 32.0**power for power in (-2, 2))  # of the widest and the narrowest
        if _gap(torch.exp(-high * distances)) > gap:
            raise ValueError(
                f"Expected `features` whose two largest eigenvalues are within `gap`={gap:g} of each other for some "
                "width, but too many samples are equal. Drop repeated samples, or raise `gap`."
            )
        for _ in range(STEPS):
            middle = (low * high) ** 0.5
            if _gap(torch.exp(-middle * distances)) > gap:
                low = middle
            else:
                high = middle
    return float((2 * high) ** -0.5)


def _gap(gram: Tensor) -> float:
    values = torch.linalg.eigvalsh(gram / len(gram))
    return float(values[-1] - values[-2])
