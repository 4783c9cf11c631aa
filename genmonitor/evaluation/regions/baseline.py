# SPDX-License-Identifier: Apache-2.0
"""The baseline: values of many draws of real images in place of generated ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from genmonitor._formatting import Band
from genmonitor.images.split import DRAWS


def measure_baseline(
    measure: Callable[[Tensor], Iterable[dict[str, float]]],
    candidates: int,
    n: int,
    seed: int,
    together: Sequence[str] = (),
    similarities: Collection[str] = (),
) -> dict[str, Band]:
    """Measure draws of n real images as if they were generated.

    Args:
        measure: Function from draws, indices of candidates [DRAWS, n], to the values of an evaluation of each.
        candidates: Number of real images that generated ones are not compared with. From 20 n on the draws are
            disjoint. Below that they overlap, and the bands are widened accordingly. If it is hardly more than n, draws
            contain images more than once.
        n: Number of images per draw.
        seed: Seed of the draws.
        together: Names of values whose bands hold together, see `simultaneous_bands`.
        similarities: Names of values that are 1 at best, see `simultaneous_bands`.
    """
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(candidates, generator=generator)
    disjoint, all_but_the_same = candidates >= DRAWS * n, candidates < 1.1 * n
    if disjoint:
        draws = shuffled[: DRAWS * n].view(DRAWS, n)
    elif all_but_the_same:
        draws = torch.stack([torch.randint(candidates, (n,), generator=generator) for _ in range(DRAWS)])
    else:
        draws = torch.stack([torch.randperm(candidates, generator=generator)[:n] for _ in range(DRAWS)])
    values: dict[str, list[float]] = {}
    for found in measure(draws):
        for name, value in found.items():
            values.setdefault(name, []).append(value)
    # draws without replacement from a small set vary less than those from the whole population
    widen = 1.0 if disjoint or all_but_the_same else (1 - n / candidates) ** -0.5
    return simultaneous_bands(values, together, similarities, widen)


def simultaneous_bands(
    values: Mapping[str, Sequence[float]],
    together: Sequence[str] = (),
    similarities: Collection[str] = (),
    widen: float = 1.0,
) -> dict[str, Band]:
    """Return prediction intervals: another draw falls below each with a probability of 5 %, and above it with 5 %.

    Values that belong together share the 5 %: another draw falls below *any* of their bands with at most that
    probability (Bonferroni). The intervals are those of Student's t about the median. Those of similarities are
    computed for log(1 - value), since 1 - CMS is skewed and never negative. `benchmarks/detection.md` reports how often
    real images leave them.

    Args:
        values: Values of each draw [D], by name; D at least 2.
        together: Names of values whose bands hold together; every other band holds alone.
        similarities: Names of values that are 1 at best.
        widen: Factor of every distance from the median.

    Example:
        >>> draws = {"mmd": [0.0, 1.0, 2.0], "cluster_1": [0.99, 0.98, 0.98]}
        >>> bands = simultaneous_bands(draws, similarities=["cluster_1"])
        >>> [tuple(round(end, 3) for end in band) for band in bands.values()]
        [(-2.372, 1.0, 4.372), (0.923, 0.98, 0.995)]
    """
    from scipy.stats import t as student

    out = {}
    for name, found in values.items():
        draws = torch.tensor(found, dtype=torch.float64)
        # nominal probability that real images lie below their band, of one value or of all regions together
        tail = 0.05 / len(together) if name in together else 0.05
        reach = widen * float(student.ppf(1 - tail, len(draws) - 1)) * (1 + 1 / len(draws)) ** 0.5
        skewed = name in similarities and bool((draws < 1).all())  # pixels that never vary have 1, or nearly so
        draws = torch.log1p(-draws) if skewed else draws
        middle, distance = float(draws.quantile(0.5)), reach * float(draws.std())
        low, high = middle - distance, middle + distance
        out[name] = (-math.expm1(high), -math.expm1(middle), -math.expm1(low)) if skewed else (low, middle, high)
    return out
