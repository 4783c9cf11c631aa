# SPDX-License-Identifier: Apache-2.0
"""Samples on a grid, where distances tie, and what they are in exact arithmetic, in NumPy's whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

Whole = NDArray[np.int64]

LIMITS = {
    torch.uint8: (0, 255),
    torch.bfloat16: (-256, 256),
    torch.float16: (-2048, 2048),
    torch.float32: (-(2**20), 2**20),
    torch.float64: (-(2**22), 2**22),
}
"""Whole numbers that a dtype holds, and whose squared distances float64 does."""


@st.composite
def lattices(draw: Any, sets: int, least: int = 2) -> tuple[torch.dtype, list[torch.Tensor]]:
    """Draw a dtype and sets of samples [N, D] of one grid of a few levels."""
    dtype = draw(st.sampled_from(list(LIMITS)))
    low, high = LIMITS[dtype]
    levels, dim, seed = draw(st.sampled_from([2, 3, 6])), draw(st.integers(1, 40)), draw(st.integers(0, 2**32 - 1))
    step = draw(st.integers(1, (high - low) // (levels - 1)))
    first = draw(st.integers(low, high - step * (levels - 1)))
    rng = np.random.default_rng(seed)
    sizes = [draw(st.integers(least, 25)) for _ in range(sets)]
    return dtype, [torch.from_numpy(first + step * rng.integers(levels, size=(n, dim))).to(dtype) for n in sizes]


def whole(x: torch.Tensor) -> Whole:
    """Return samples in whole numbers."""
    return x.double().numpy().astype(np.int64)


def distances(x: Whole, y: Whole) -> Whole:
    """Return squared distances [N, M]."""
    found: Whole = ((x[:, None] - y[None]) ** 2).sum(2)
    return found


def radii(x: Whole, k: int) -> Whole:
    """Return the squared distance of each sample to its k-th nearest neighbor."""
    found: Whole = np.sort(distances(x, x) + 2**62 * np.eye(len(x), dtype=np.int64), axis=1)[:, k - 1]
    return found


def prdc(fake: Whole, real: Whole, k: int) -> dict[str, float]:
    """Return precision, recall, density and coverage."""
    pairs, own = distances(real, fake), radii(real, k)[:, None]
    inside = pairs < own
    return {
        "precision": float(inside.any(0).mean()),
        "recall": float((pairs < radii(fake, k)).any(1).mean()),
        "density": float(inside.sum() / (k * len(fake))),
        "coverage": float(inside.any(1).mean()),
    }


def authenticity(fake: Whole, real: Whole) -> float:
    """Return the share of samples that are copies of none of their nearest."""
    pairs, own = distances(fake, real), radii(real, 1)
    nearest = pairs.min(1, keepdims=True)
    return float(((pairs != nearest) | (nearest > own)).all(1).mean())


def w1kp(x: Whole, prompts: Whole, calibration: Whole) -> float:
    """Return the mean similarity of pairs of a prompt, averaged over prompts, by the distances of one calibration."""
    knots = distances(calibration, calibration)[np.triu_indices(len(calibration), 1)]
    knots = np.array([0, *np.sort(knots), 4 * (calibration**2).sum(1).max()])
    scores = []
    for prompt in np.unique(prompts):
        some = x[prompts == prompt]
        at = distances(some, some)[np.triu_indices(len(some), 1)]
        # as numpy.interp, whose rounding may miss a knot: of equal knots the last one
        left = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
        step = knots[left + 1] - knots[left]
        part = np.clip(np.where(step > 0, (at - knots[left]) / np.maximum(step, 1), 1), 0, 1)
        scores.append(float(1 - ((left + part) / len(knots)).mean()))
    return float(np.mean(scores))
