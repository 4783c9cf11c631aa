# SPDX-License-Identifier: Apache-2.0
"""Two-sample test for a difference of generated images from real ones, by region of an image or by class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from genmonitor._validation import check_integers, check_positive, check_same_length
from genmonitor.functional.discrepancy import MULTIPLIERS, VIEWS, View, view_kernels
from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.permutation import (
    MIN_SAMPLES,
    NUM_PERMUTATIONS,
    Blocks,
    check_permutations,
    familywise_p_values,
    split_statistics,
)
from genmonitor.partition import PixelPartition


def two_sample_test(
    fake: Tensor,
    real: Tensor,
    *,
    partition: PixelPartition | None = None,
    gammas: Sequence[float] = MULTIPLIERS,
    views: Sequence[View] = VIEWS,
    num_permutations: int = NUM_PERMUTATIONS,
    seed: int = 0,
) -> Tensor | dict[str, Tensor]:
    """P-value that both sides come from one distribution, by permuting the sides of the samples.

    The statistic is the squared maximum mean discrepancy by Gaussian kernels of several gammas in two views of the
    images. Each is standardized over the permutations, and the largest counts (Schrab et al.). Pixels show structure:
    position and brightness. Whitened images show texture, such as blur and noise, to which distances of pixels are
    hardly sensitive. Every region has its own gammas, multiples of its inverse mean squared distance in the pool of
    both sides, and its texture does not depend on pixels outside.

    The regions share one level: a region's p-value counts the permutations in which *any* region lies as far out
    (Westfall and Young). Real images in place of generated ones then have some region with p <= 0.05 in at most 5 % of
    the evaluations. That holds at any seed and any number of samples and permutations, if the two sides are
    exchangeable under the hypothesis. Real images that the generator was trained on are not, and the p-value is then
    only a guide. Real samples that repeat count once, unless generated ones repeat half as often or they are constant.

    Args:
        fake: Images [N, C, H, W], or features [N, D] without a partition; N at least 8.
        real: Images [M, C, H, W] or features [M, D]; M at least 8, and need not be N.
        partition: Clusters of pixels.
        gammas: Gammas of the kernels, positive, in units of the inverse mean squared distance of a region: its kernels
            are exp(-g ‖x - y‖² / mean ‖x - y‖²).
        views: Views of images, one or both. "structure" is the pixels themselves, "texture" the images whitened, so
            that every spatial frequency varies alike in the pool. Features have the structure alone.
        num_permutations: Number B of random splits, at least 19. The smallest p-value is 1 / (B + 1), and the standard
            deviation of a p-value over the seeds is at most 1 / (2 √B).
        seed: Seed of the splits, which also depend on the samples. The same samples are split in the same ways, in any
            order and on any device.

    Returns:
        A float64 scalar in [1 / (B + 1), 1]; with a partition a dictionary of them. `image` is tested by itself, and
        `cluster_1`, …, `constant` are tested together. A region in which all samples agree has p = 1.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, samples are fewer than 8, an argument is out of its range,
            or the partition is of another size.

    References:
        Schrab et al., "MMD Aggregated Two-Sample Test", JMLR 2023, arXiv 2110.15073.
        Westfall and Young, "Resampling-Based Multiple Testing", 1993.

    Example:
        >>> real = torch.linspace(0, 1, 32)[:, None]
        >>> two_sample_test(real + 0.02, real), two_sample_test(real + 0.5, real)
        (tensor(0.9940, dtype=torch.float64), tensor(0.0010, dtype=torch.float64))
    """
    check_test_arguments(gammas, num_permutations, seed, views)
    real, fake = check_sides({"real": real, "fake": fake}, partition, MIN_SAMPLES)
    blocks = Blocks.of(fake, real, num_permutations, seed)
    statistics = pooled_statistics(fake, real, blocks, partition, gammas, views)
    image = familywise_p_values(statistics[:1])[0]
    if partition is None:
        return image
    return {"image": image} | dict(zip(partition.regions(), familywise_p_values(statistics[1:]), strict=True))


def pooled_statistics(
    fake: Tensor,
    real: Tensor,
    blocks: Blocks,
    partition: PixelPartition | None,
    gammas: Sequence[float] = MULTIPLIERS,
    views: Sequence[View] = VIEWS,
) -> Tensor:
    """Return the discrepancy of the sides of each split, with views and gammas from the pool of both sides.

    Args:
        fake: Checked samples.
        real: Real samples of the same dtype.
        blocks: Blocks of the samples, with their splits.
        partition: Same as in `two_sample_test`.
        gammas: Same as in `two_sample_test`.
        views: Same as in `two_sample_test`.

    Returns:
        Largest standardized discrepancies over gammas and views [1 + regions, splits], float64, the whole first; -inf
        for a group in which nothing varies.
    """
    pool = blocks.take(fake, real)
    fake, real = pool.split([count * blocks.size for count in blocks.counts])
    kernels, sizes = view_kernels((fake, real), partition, gammas), (blocks.size, blocks.size)
    statistics = []
    for view in kernels if len(kernels) == 1 else views:
        of = kernels[view]
        sums = of.sums(fake, sizes=sizes), of.sums(fake, real, sizes), of.sums(real, sizes=sizes)
        statistics.append(split_statistics(*sums, blocks))
    return torch.stack(statistics).amax(0)


def check_test_arguments(gammas: Sequence[float], num_permutations: int, seed: int, views: Sequence[View]) -> None:
    """Refuse arguments that are invalid for any samples."""
    if isinstance(views, str) or not isinstance(views, Sequence) or not views or not set(views) <= set(VIEWS):
        raise ValueError(f"Expected `views` as one or more of {', '.join(map(repr, VIEWS))}, but got {views!r}.")
    if isinstance(gammas, str) or not isinstance(gammas, Sequence) or not len(gammas):
        raise ValueError(f"Expected `gammas` as one or more numbers above 0, but got {gammas!r}.")
    for value in gammas:
        check_positive("gammas", value)
    check_permutations(num_permutations, seed)


def two_sample_test_by_class(
    fake: Tensor,
    real: Tensor,
    fake_labels: Tensor,
    real_labels: Tensor,
    *,
    num_permutations: int = NUM_PERMUTATIONS,
    seed: int = 0,
) -> dict[int, Tensor]:
    """P-value for each class that its generated and real samples come from one distribution.

    Each class is tested as `two_sample_test` does by default, by permutations within it. The classes share one level: a
    class's p-value counts the permutations in which *any* class lies as far out (Westfall and Young). A generator
    without faults has some class with p <= 0.05 in at most 5 % of the evaluations, for any number of classes and of
    samples in each. The proportions of the classes are not tested.

    Args:
        fake: Images [N, C, H, W] or features [N, D].
        real: Images [M, C, H, W] or features [M, D].
        fake_labels: Class of each generated sample, integers [N].
        real_labels: Class of each real sample, integers [M].
        num_permutations: Same as in `two_sample_test`.
        seed: Same as in `two_sample_test`.

    Returns:
        A float64 scalar in [1 / (B + 1), 1] by class, in ascending order, for the classes with at least 8 samples on
        each side.

    Raises:
        TypeError: If a side is not a tensor of real numbers, or labels are not a tensor of integers.
        ValueError: If shapes differ, values are not finite, there is not one label per sample, no class has 8 samples
            on both sides, or an argument is out of range.

    References:
        Schrab et al., "MMD Aggregated Two-Sample Test", JMLR 2023, arXiv 2110.15073.
        Westfall and Young, "Resampling-Based Multiple Testing", 1993.

    Example:
        >>> real, labels = torch.linspace(0, 1, 64)[:, None], torch.arange(64) % 2
        >>> found = two_sample_test_by_class(real + 0.5 * labels[:, None], real, labels, labels)
        >>> {label: float(p) for label, p in found.items()}
        {0: 1.0, 1: 0.001}
    """
    check_permutations(num_permutations, seed)
    real, fake = check_sides({"real": real, "fake": fake}, None, MIN_SAMPLES)
    fake_labels = check_integers("fake_labels", fake_labels)
    real_labels = check_integers("real_labels", real_labels)
    check_same_length("fake", fake, "fake_labels", fake_labels)
    check_same_length("real", real, "real_labels", real_labels)
    counts = [Counter(labels.tolist()) for labels in (fake_labels, real_labels)]
    classes = [label for label in sorted(counts[0]) if min(count[label] for count in counts) >= MIN_SAMPLES]
    if not classes:
        raise ValueError(
            f"Expected a class with at least {MIN_SAMPLES} samples in both `fake_labels` and `real_labels`, but got "
            "none. Give more samples of each class, or merge classes."
        )
    rows = []
    for label in classes:
        of_fake, of_real = fake[(fake_labels == label).to(fake.device)], real[(real_labels == label).to(real.device)]
        blocks = Blocks.of(of_fake, of_real, num_permutations, seed)
        rows.append(pooled_statistics(of_fake, of_real, blocks, None)[0])
    return dict(zip(classes, familywise_p_values(torch.stack(rows)), strict=True))
