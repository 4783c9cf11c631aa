# SPDX-License-Identifier: Apache-2.0
"""Two-sample test class by class: finds the classes of a generator that differ from real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from genmonitor._validation import check_integers, check_same_length
from genmonitor.functional.discrepancy import MULTIPLIERS, VIEWS, View
from genmonitor.functional.hypothesis_tests.two_sample_test import check_test_arguments, pooled_statistics
from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.permutation import MIN_SAMPLES, NUM_PERMUTATIONS, Blocks, familywise_p_values


def two_sample_test_by_class(
    fake: Tensor,
    real: Tensor,
    fake_labels: Tensor,
    real_labels: Tensor,
    *,
    gammas: Sequence[float] = MULTIPLIERS,
    views: Sequence[View] = VIEWS,
    num_permutations: int = NUM_PERMUTATIONS,
    seed: int = 0,
) -> dict[int, Tensor]:
    """P-value for each class that its generated and real samples come from one distribution.

    Each class is tested as `two_sample_test` does, by permutations within it. The classes share one level: a class's
    p-value counts the permutations in which *any* class lies as far out (Westfall and Young). A generator without
    faults has some class with p <= 0.05 in at most 5 % of the evaluations, for any number of classes and of samples in
    each. The proportions of the classes are not tested.

    Args:
        fake: Images [N, C, H, W] or features [N, D].
        real: Images [M, C, H, W] or features [M, D].
        fake_labels: Class of each generated sample, integers [N].
        real_labels: Class of each real sample, integers [M].
        gammas: Same as in `two_sample_test`.
        views: Same as in `two_sample_test`.
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
    check_test_arguments(gammas, num_permutations, seed, views)
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
        rows.append(pooled_statistics(of_fake, of_real, blocks, None, gammas, views)[0])
    return dict(zip(classes, familywise_p_values(torch.stack(rows)), strict=True))
