# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref

from genmonitor.functional import two_sample_test, two_sample_test_by_class
from genmonitor.functional.permutation import Blocks

WIDTHS = (0.5, 2, 8, 32)


def draw(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_twin():
    """From the formula: each class's largest standardized statistic, counted against the largest of all classes."""
    fake, real = draw(30, 3), draw(45, 3, seed=1)
    of_fake, of_real = torch.arange(30) % 3, torch.arange(45) % 3
    fake[of_fake == 2] += 1.6
    rows = []
    for label in range(3):
        one, other = fake[of_fake == label], real[of_real == label]
        blocks = Blocks.of(one, other, 39, 5)
        rows.append(
            ref.split_statistics(blocks.take(one, other).numpy(), blocks.splits.numpy(), [np.arange(3)], WIDTHS)[0]
        )
    largest = np.max(rows, 0)
    expected = [np.mean([x >= row[0] - 1e-9 for x in largest]) for row in rows]
    found = two_sample_test_by_class(fake, real, of_fake, of_real, num_permutations=39, seed=5)
    assert [float(p) for p in found.values()] == pytest.approx(expected)
    assert expected[2] < min(expected[:2])


def test_one_class_is_the_test_of_all_samples():
    fake, real = draw(20, 1, 4, 4) + 0.3, draw(30, 1, 4, 4, seed=1)
    found = two_sample_test_by_class(fake, real, torch.full((20,), 7), torch.full((30,), 7))
    assert found == {7: two_sample_test(fake, real)}


def test_order_of_samples_makes_no_difference():
    fake, real, labels = draw(40, 2), draw(40, 2, seed=1), torch.arange(40) % 4
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    found = two_sample_test_by_class(fake[order], real, labels[order], labels)
    assert found == two_sample_test_by_class(fake, real, labels, labels)


@pytest.mark.nightly
@pytest.mark.slow
def test_level_of_all_classes_together():
    """Some class of 6 is named in 5 % of 150 null runs, to within three standard errors."""
    named = 0
    for run in range(150):
        labels = torch.arange(72) % 6
        fake, real = draw(72, 2, seed=2 * run), draw(72, 2, seed=2 * run + 1)
        offsets = 3.0 * labels[:, None]  # classes differ from each other, which is no fault
        found = two_sample_test_by_class(fake + offsets, real + offsets, labels, labels, num_permutations=39, seed=run)
        named += min(found.values()) <= 0.05
    assert named <= 0.05 * 150 + 3 * 2.67


def test_wrong_class_costs_the_others_nothing():
    """One class far off does not make another one differ: its samples are permuted within it."""
    labels = torch.arange(80) % 4
    fake, real = draw(80, 2), draw(80, 2, seed=1)
    before = two_sample_test_by_class(fake, real, labels, labels)
    fake[labels == 1] += 5
    after = two_sample_test_by_class(fake, real, labels, labels)
    assert after[1] == 0.001
    assert all(after[label] > 0.05 and abs(after[label] - before[label]) < 0.15 for label in (0, 2, 3))


def test_classes_with_too_few_samples_are_left_out():
    fake, real = draw(27, 2), draw(40, 2, seed=1)
    of_fake = torch.tensor([0] * 10 + [1] * 7 + [4] * 10)
    found = two_sample_test_by_class(fake, real, of_fake, torch.tensor([0] * 20 + [1] * 20))
    assert list(found) == [0]


@pytest.mark.parametrize(
    ("of_fake", "error", "message"),
    [
        (torch.arange(20), ValueError, "Expected a class with at least 8 samples in both"),
        (torch.zeros(19, dtype=torch.long), ValueError, "`fake` and `fake_labels` to hold equally many samples"),
        (torch.zeros(20), TypeError, "Expected `fake_labels` as whole numbers"),
    ],
)
def test_bad_labels_are_refused(of_fake, error, message):
    with pytest.raises(error, match=message):
        two_sample_test_by_class(draw(20, 2), draw(20, 2, seed=1), of_fake, torch.zeros(20, dtype=torch.long))
