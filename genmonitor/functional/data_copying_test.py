# SPDX-License-Identifier: Apache-2.0
"""Data-copying test: finds generated samples that copy training samples, by more than chance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.linalg.distances import knn

USUAL = 0.01
"""Part of the held-out samples that may be as near; generated samples nearer than the others are copies."""


class DataCopying(NamedTuple):
    """Result of `data_copying_test`.

    Attributes:
        p_value: P-value (float64 scalar) that there are no more near copies than among held-out samples.
        share: Share (float64 scalar in [0, 1]) of the generated samples that are near copies, minus that of held-out
            ones.
        nearest: Index of the training sample nearest to each generated one, int64 [N].
        ratios: Distance to it, relative to the mean distance of the 50 nearest, float64 [N].
        copied: Indices of the generated samples that count as near copies, nearest first, int64 [K]. They include about
            1 % of the samples that copy nothing.
    """

    p_value: Tensor
    share: Tensor
    nearest: Tensor
    ratios: Tensor
    copied: Tensor


def data_copying_test(fake: Tensor, held_out: Tensor, train: Tensor) -> DataCopying:
    """Test if generated samples copy training samples, compared with held-out real ones that cannot be copies.

    A sample's distance to its nearest training sample is taken relative to the mean distance of its 50 nearest (Carlini
    et al.). This is because images that are faded, blurred or too alike are nearer to everything without being copies.
    A generated sample nearer than 99 % of the held-out ones counts as a copy. The p-value is the exact probability of
    that many copies if generated and held-out samples are exchangeable, for any number of samples. A training sample
    that is copied several times counts once, since a generator may repeat itself without copying.

    The test of Meehan et al. compares the distances themselves. It overlooks a few copies among many samples, and takes
    blur for copying.

    Args:
        fake: Images [N, C, H, W] or features [N, D], N at least 8.
        held_out: Real samples [M, ...] that the generator was not trained on, M at least 8.
        train: Training samples [T, ...], T at least 8.

    Returns:
        The p-value, the share of copies, and the pairs of copies and training samples.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
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
    train, held_out, fake = check_sides({"train": train, "held_out": held_out, "fake": fake}, None, MIN_SAMPLES)
    # the usual distance is the mean to the 50 nearest training samples, as in Carlini et al.
    usual = min(50, len(train))
    found = [knn(x.to(train.device).flatten(1), train.flatten(1), usual) for x in (fake, held_out)]
    distances, nearest = torch.cat([squares for squares, _ in found]).sqrt(), found[0][1][:, 0]
    ratios = distances[:, 0] / distances.mean(1).clamp_min(torch.finfo(distances.dtype).tiny)
    n, m = len(fake), len(held_out)
    copied = lower_than_held_out(ratios[:n].cpu(), ratios[n:].cpu())
    p, share = count_test(len(copied), n, m, distinct=len(nearest.cpu()[copied].unique()))
    return DataCopying(p, share, nearest.cpu(), ratios[:n].cpu(), copied)


def lower_than_held_out(scores: Tensor, held_out: Tensor) -> Tensor:
    """Return the indices of scores [N] lower than those of 99 % of the held-out samples [M], the lowest first."""
    m = len(held_out)
    # for ties, held-out samples come first, which is conservative
    order = torch.cat([held_out, scores]).argsort(stable=True)
    held_out_at = (order < m).nonzero()[:, 0]
    before = order[: held_out_at[int(USUAL * m)]]
    return before[before >= m] - m


def count_test(count: int, n: int, m: int, distinct: int | None = None) -> tuple[Tensor, Tensor]:
    """Test if `count` of n samples may be lower than 99 % of m held-out ones by chance, if all are exchangeable.

    Args:
        count: Number of samples that are lower.
        n: Number of samples.
        m: Number of held-out samples.
        distinct: Number of different ones among `count`, on which the p-value is based; None for all.

    Returns:
        The p-value, and the share of the samples minus that of held-out ones, float64 scalars.
    """
    from scipy.stats import hypergeom

    allowed, seen = int(USUAL * m), count if distinct is None else distinct
    # how many samples come before a number of held-out ones is negative hypergeometric
    p = float(hypergeom.sf(seen - 1, n + m, n, seen + allowed))
    found = torch.tensor([p, max(0.0, count / n - allowed / m)], dtype=torch.float64)
    return found[0], found[1]
