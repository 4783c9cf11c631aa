# SPDX-License-Identifier: Apache-2.0
"""Expected closest pair among k outputs of a prompt, and the number of outputs that prompts are good for."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_min_samples
from genmonitor.functional.w1kp.calibration import (
    W1KPCalibration,
    check_calibration,
    check_outputs,
    similarities,
)
from genmonitor.linalg import chunking

SUBSETS = 1000
"""Number of random subsets from which an expected maximum is estimated."""

REUSED = 50
"""Largest reusability in a table of many prompts, since the cost is quadratic in it."""

HIGH = 0.85
"""Similarity from which people call two outputs highly similar."""


def expected_closest_pairs(
    features: Tensor,
    *,
    calibration: W1KPCalibration | None = None,
    k: int | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Expected similarity of the closest pair among 2, 3, …, k outputs of one prompt drawn at random.

    All subset sizes use the same random orders of the outputs, so that the values rise with k. Those for 2, the mean
    over all pairs, and for N are exact.

    Args:
        features: Embedded outputs of one prompt [N, D], N at least 2.
        calibration: Same as in `w1kp_score`.
        k: Size of the largest subset; None for N.
        generator: Generator of the random orders, on the CPU; None for one with seed 0.

    Returns:
        Values [k - 1] and their standard errors [k - 1], float64.

    Raises:
        ValueError: As `w1kp_score` does, or if k exceeds N.

    Example:
        >>> calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=1)
        >>> expected_closest_pairs(torch.tensor([[0.0], [1.0], [2.0]]), calibration=calibration)[0]
        tensor([0.5000, 0.7500], dtype=torch.float64)
    """
    calibration = check_calibration(calibration, k)
    x, index = check_outputs(features, None, calibration)
    check_min_samples("features", x, k or 2)
    values, errors = closest_pairs(similarities(x, index, calibration)[0], generator, k)
    return values, errors


def prompt_reusability(features: Tensor, *, calibration: W1KPCalibration | None = None, cutoff: float = HIGH) -> int:
    """Count the outputs that a prompt is good for: the largest k with no two highly similar outputs expected.

    Args:
        features: Embedded outputs of the prompt [N, D], N at least 2.
        calibration: Same as in `w1kp_score`.
        cutoff: Lowest W1KP score that counts as high similarity.

    Returns:
        Number k from 1 to N; N means that more outputs are needed to find the limit.

    Raises:
        ValueError: As `w1kp_score` does.

    References:
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482 (about 50 for Imagen, 200 and more for SDXL and DALL-E 3).

    Example:
        >>> calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=1)
        >>> prompt_reusability(torch.tensor([[0.0], [0.1], [1.5], [3.0]]), calibration=calibration)
        3
    """
    values, _ = expected_closest_pairs(features, calibration=calibration)
    return reusability(values, cutoff)


def closest_pairs(similarity: Tensor, generator: torch.Generator | None, k: int | None = None) -> Tensor:
    """Return the expected largest similarity among 2, …, k outputs, and its standard error: [2, k - 1]."""
    n = len(similarity)
    k = k or n
    generator = generator or torch.Generator().manual_seed(0)
    orders = torch.rand(SUBSETS, n, dtype=torch.float32, generator=generator).argsort(1)[:, :k].to(similarity.device)
    closest = []
    for some in orders.split(max(1, chunking.MEMORY_BUDGET // (4 * 8 * k * k))):
        # the similarity of each output to the closest one before it in the order
        earlier = similarity[some[:, :, None], some[:, None, :]].tril(-1).amax(2)
        closest.append(earlier.cummax(1).values[:, 1:])
    maxima = torch.cat(closest)
    values, errors = maxima.mean(0), maxima.std(0) / len(maxima) ** 0.5
    values[0], errors[0] = pair_mean(similarity), 0
    if k == n:
        values[-1], errors[-1] = similarity.tril(-1).amax(), 0
    return torch.stack([values, errors])


def closest_pair(similarity: Tensor) -> tuple[int, int]:
    """Return the two most similar outputs from their similarities [n, n]; the first of several such pairs."""
    n = len(similarity)
    rows, columns = torch.triu_indices(n, n, offset=1, device=similarity.device)
    best = similarity[rows, columns].argmax()
    return int(rows[best]), int(columns[best])


def pair_mean(similarity: Tensor) -> Tensor:
    """Return the mean similarity of all pairs of outputs from their similarities [n, n]."""
    n = len(similarity)
    return (similarity.sum() - similarity.trace()) / (n * (n - 1))


def pair_mean_error(similarity: Tensor) -> float | None:
    """Return the jackknife standard error of `pair_mean` over draws of the outputs; None for fewer than three."""
    n, of_each = len(similarity), similarity.sum(1) - similarity.diagonal()
    if n < 3:
        return None
    without = (of_each.sum() - 2 * of_each) / ((n - 1) * (n - 2))
    return float(without.std(correction=0) * (n - 1) ** 0.5)


def reusability(values: Tensor, cutoff: float) -> int:
    """Return the largest k, at least 1, whose value among those for 2, 3, … is below the cut-off."""
    return 1 + int((values < cutoff).sum())
