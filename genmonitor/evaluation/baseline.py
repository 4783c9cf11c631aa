# SPDX-License-Identifier: Apache-2.0
"""The baseline: what real images get in place of generated ones, many times."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from genmonitor.evaluation.progress import Progress, no_progress

DRAWS = 20
Band = tuple[float, float, float]
"""The 5 %, 50 % and 95 % quantiles of a value."""


def measure_baseline(
    measure: Callable[[Tensor], dict[str, float]],
    read: Callable[[list[int]], Tensor],
    candidates: Tensor,
    n: int,
    seed: int,
    progress: Progress = no_progress,
) -> dict[str, Band]:
    """Measure draws of n real images as if they had been generated.

    Args:
        measure: from images [n, C, H, W] to the values of an evaluation.
        read: from indices to images.
        candidates: indices of real images that generated ones are not compared with [K]. Where K is at least 20 n the
            draws are disjoint; where it is less than n each holds images more than once.
        n: images per draw.
        seed: of the draws.
        progress: wraps what takes long.

    Returns:
        Each value's (5 %, 50 %, 95 %) quantile over 20 draws.
    """
    generator = torch.Generator().manual_seed(seed)
    shuffled = candidates[torch.randperm(len(candidates), generator=generator)]
    disjoint = len(candidates) >= DRAWS * n
    values: dict[str, list[float]] = {}
    for index in progress(range(DRAWS), "baseline"):
        if disjoint:
            chosen = shuffled[index * n : (index + 1) * n]
        elif len(candidates) >= n:
            chosen = candidates[torch.randperm(len(candidates), generator=generator)[:n]]
        else:
            chosen = candidates[torch.randint(len(candidates), (n,), generator=generator)]
        for name, value in measure(read(chosen.tolist())).items():
            values.setdefault(name, []).append(value)
    probabilities = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    bands = {name: torch.tensor(v, dtype=torch.float64).quantile(probabilities).tolist() for name, v in values.items()}
    return {name: (low, median, high) for name, (low, median, high) in bands.items()}
