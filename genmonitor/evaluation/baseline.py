# SPDX-License-Identifier: Apache-2.0
"""The baseline: what real images get in place of generated ones, many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from genmonitor.evaluation.progress import Progress, no_progress

DRAWS = 20
TAIL = 0.05
"""The nominal chance that real images lie below their band: of one value, or of all regions together."""
Band = tuple[float, float, float]
"""The lower end, the median and the upper end of a value."""


def measure_baseline(
    measure: Callable[[Tensor], dict[str, float]],
    read: Callable[[list[int]], Tensor],
    candidates: Tensor,
    n: int,
    seed: int,
    together: Sequence[str] = (),
    progress: Progress = no_progress,
) -> dict[str, Band]:
    """Measure draws of n real images as if they had been generated.

    Args:
        measure: from images [n, C, H, W] to the values of an evaluation.
        read: from indices to images.
        candidates: indices of real images that generated ones are not compared with [K]. Where K is at least 20 n the
            draws are disjoint. Where it is less they overlap, and the bands are widened by what that hides; where it is
            hardly more than n, each draw holds images more than once.
        n: images per draw.
        seed: of the draws.
        together: the values whose bands hold together, see `simultaneous_bands`.
        progress: wraps what takes long.
    """
    generator = torch.Generator().manual_seed(seed)
    shuffled = candidates[torch.randperm(len(candidates), generator=generator)]
    disjoint, all_but_the_same = len(candidates) >= DRAWS * n, len(candidates) < 1.1 * n
    values: dict[str, list[float]] = {}
    for index in progress(range(DRAWS), "baseline"):
        if disjoint:
            chosen = shuffled[index * n : (index + 1) * n]
        elif all_but_the_same:
            chosen = candidates[torch.randint(len(candidates), (n,), generator=generator)]
        else:
            chosen = candidates[torch.randperm(len(candidates), generator=generator)[:n]]
        for name, value in measure(read(chosen.tolist())).items():
            values.setdefault(name, []).append(value)
    independent = disjoint or all_but_the_same
    # draws without replacement from a small set vary less than those from the whole population
    widen = 1.0 if independent else (1 - n / len(candidates)) ** -0.5
    return simultaneous_bands(values, together, widen)


def simultaneous_bands(
    values: Mapping[str, Sequence[float]], together: Sequence[str] = (), widen: float = 1.0
) -> dict[str, Band]:
    """Return prediction intervals: one more draw falls below each with a chance of 5 %, above it with as much.

    Values that belong together share the 5 %: one more draw falls below *any* of their bands with that chance at most
    (Bonferroni). The intervals are Student's, about the median, for values that are normally
    distributed: CMS is skewed, and leaves its bands more often (`benchmarks/detection.md`).

    Args:
        values: of each draw [D], by name; D at least 2.
        together: names whose bands hold together; each other one holds by itself.
        widen: multiplies every distance from the median.

    Example:
        >>> bands = simultaneous_bands({"a": [0.0, 1.0, 2.0], "b": [0.0, 10.0, 14.0]}, together=["a", "b"])
        >>> [tuple(round(end, 1) for end in band) for band in bands.values()]
        [(-4.0, 1.0, 6.0), (-25.8, 10.0, 45.8)]
    """
    from scipy.stats import t as student

    out = {}
    for name, found in values.items():
        draws = torch.tensor(found, dtype=torch.float64)
        tail = TAIL / len(together) if name in together else TAIL
        reach = float(student.ppf(1 - tail, len(draws) - 1)) * (1 + 1 / len(draws)) ** 0.5
        median, distance = float(draws.quantile(0.5)), widen * reach * float(draws.std())
        out[name] = (median - distance, median, median + distance)
    return out
