# SPDX-License-Identifier: Apache-2.0
"""Data-copying test: whether generated samples copy training samples, which, and how many, by more than chance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.linalg.neighbors import knn

USUAL = 0.01
"""Part of the held-out samples that may be as near: generated ones that are nearer than the others are copies."""


class DataCopying(NamedTuple):
    """What `data_copying_test` found.

    Attributes:
        c_t: float64 scalar, C_T of Meehan et al. without cells: the Mann-Whitney z-score of nearest distances, 0 on
            average without copying, -3 or less where generated samples are nearer to training samples than held-out
            ones are. Blurred or faded images are too, so it decides nothing alone.
        p_value: float64 scalar, of no more near copies than held-out samples hold.
        share: float64 scalar in [0, 1], part of the generated samples that are near copies, less that of held-out ones.
        nearest: The training sample nearest to each generated one, int64 [N].
        ratios: How far that is, in parts of the mean distance of the 50 nearest, float64 [N].
        copied: The generated samples that count as near copies, nearest first, int64 [K]: about 1 % of those that copy
            nothing are among them.
    """

    c_t: Tensor
    p_value: Tensor
    share: Tensor
    nearest: Tensor
    ratios: Tensor
    copied: Tensor


def data_copying_test(fake: Tensor, held_out: Tensor, train: Tensor) -> DataCopying:
    """Test whether generated samples copy training samples, compared with held-out real ones that cannot be copies.

    A sample's distance to its nearest training sample is taken in parts of the mean distance of its 50 nearest (Carlini
    et al.): images that are faded, blurred or too alike are nearer to everything and are no copies. A generated sample
    nearer than 99 % of the held-out ones counts as a copy; the p-value is the exact probability of as many where
    generated and held-out samples are exchangeable, for any number of them. A training sample that is copied several
    times counts once for it: a generator that repeats itself need not copy anything. The Mann-Whitney test of Meehan et
    al. compares all distances as they are: it misses few copies among many samples, and calls blur copying. Its z-score
    is `c_t`.

    Args:
        fake: Images [N, C, H, W] or features [N, D], N at least 8.
        held_out: Real samples [M, ...] that the generator was not trained on, M at least 8.
        train: Training samples [T, ...], T at least 8.

    Returns:
        The p-value, the share of copies, and which sample copies which.

    Raises:
        TypeError: If a side is no tensor of real numbers.
        ValueError: If shapes differ, values are not finite, or a side has fewer than 8 samples.

    References:
        Meehan, Chaudhuri and Dasgupta, "A Non-Parametric Test to Detect Data-Copying in Generative Models", AISTATS
            2020, arXiv 2004.05675.
        Carlini et al., "Extracting Training Data from Diffusion Models", USENIX Security 2023, arXiv 2301.13188.

    Example:
        >>> draw = torch.randn(700, 16, generator=torch.Generator().manual_seed(0))
        >>> train, held_out, fake = draw[:300], draw[300:500], draw[500:].clone()
        >>> fake[:20] = train[:20] + 0.01
        >>> found = data_copying_test(fake, held_out, train)
        >>> round(float(found.p_value), 5), round(float(found.share), 2), found.copied[:3], found.nearest[:3]
        (1e-05, 0.11, tensor([3, 1, 4]), tensor([0, 1, 2]))
    """
    from scipy.stats import rankdata

    train, held_out, fake = check_sides({"train": train, "held_out": held_out, "fake": fake}, None, MIN_SAMPLES)
    both = torch.cat([x.to(train.device) for x in (fake, held_out)])
    # training samples whose mean distance is what is usual around a sample, as Carlini et al. take it
    squares, neighbors = knn(both.flatten(1), train.flatten(1), min(50, len(train)))
    distances, nearest = squares.sqrt(), neighbors[:, 0]
    ratios = distances[:, 0] / distances.mean(1).clamp_min(torch.finfo(distances.dtype).tiny)
    n, m = len(fake), len(held_out)
    ranks = torch.from_numpy(rankdata(distances[:, 0].cpu()))[:n]
    z = (ranks.sum() - n * (n + m + 1) / 2) / (n * m * (n + m + 1) / 12) ** 0.5
    copied = lower_than_held_out(ratios[:n].cpu(), ratios[n:].cpu())
    p, share = count_test(len(copied), n, m, distinct=len(nearest[:n].cpu()[copied].unique()))
    return DataCopying(z.double().cpu(), p, share, nearest[:n].cpu(), ratios[:n].cpu(), copied)


def lower_than_held_out(scores: Tensor, held_out: Tensor) -> Tensor:
    """Return which scores [N] are lower than those of 99 % of the held-out samples [M], the lowest first."""
    m = len(held_out)
    # of equal scores, held-out samples come first, which is on the safe side
    order = torch.cat([held_out, scores]).argsort(stable=True)
    held_out_at = (order < m).nonzero()[:, 0]
    before = order[: held_out_at[int(USUAL * m)]]
    return before[before >= m] - m


def count_test(count: int, n: int, m: int, distinct: int | None = None) -> tuple[Tensor, Tensor]:
    """Test whether chance puts so many of n samples lower than 99 % of m held-out ones, if all are exchangeable.

    Args:
        count: Samples that are lower.
        n: Samples.
        m: Held-out samples.
        distinct: How many of `count` are different ones, which the p-value goes by; None for all.

    Returns:
        The p-value, and the share of the samples beyond that of held-out ones, float64 scalars.
    """
    from scipy.stats import hypergeom

    allowed, seen = int(USUAL * m), count if distinct is None else distinct
    # as many before so many held-out ones: negative hypergeometric
    p = float(hypergeom.sf(seen - 1, n + m, n, seen + allowed))
    found = torch.tensor([p, max(0.0, count / n - allowed / m)], dtype=torch.float64)
    return found[0], found[1]
