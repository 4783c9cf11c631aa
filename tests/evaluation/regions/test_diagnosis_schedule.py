# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
import torch

from genmonitor.evaluation import Area, FaultKind, Finding
from genmonitor.evaluation.regions.diagnosis_schedule import dated


def rectangle(rows, columns):
    """Return a mask of 8×8 pixels, true in the first rows and columns."""
    mask = torch.zeros(8, 8, dtype=torch.bool)
    mask[:rows, :columns] = True
    return mask


def finding(kind="blurred", mask=None, since=None, **changes):
    """Return a finding of a kind in the upper left quarter."""
    area = Area("upper left", mask=rectangle(4, 4) if mask is None else mask)
    kinds = (FaultKind(kind, 1.0, "px", 0.9),) if kind else ()
    return replace(Finding("Upper left: bad.", area, "bad", None, fine=False, since=since, kinds=kinds), **changes)


def test_a_new_finding_has_the_epoch_of_its_evaluation():
    (found,) = dated([finding()], [], 4)
    assert (found.since, found.text) == (4, "Upper left: bad.")


def test_one_that_was_there_before_says_since_when():
    (first,) = dated([finding()], [], 2)
    (second,) = dated([finding()], [first], 3)
    (third,) = dated([finding()], [second], 4.5)
    assert [x.since for x in (first, second, third)] == [2, 2, 2]
    assert third.text == "Upper left: bad. Since epoch 2."


def test_one_that_came_back_starts_anew():
    (first,) = dated([finding()], [], 2)
    (other,) = dated([finding("noisy")], [first], 3)
    (again,) = dated([finding()], [other], 4)
    assert again.since == 4


@pytest.mark.parametrize("kind", ["noisy", None])
def test_another_kind_at_the_same_place_is_another_finding(kind):
    (found,) = dated([finding(kind)], [finding(since=1)], 5)
    assert found.since == 5


def test_without_a_kind_the_place_decides():
    (found,) = dated([finding(None)], [finding(None, since=1)], 5)
    assert found.since == 1


@pytest.mark.parametrize(
    ("mask", "since"),
    [
        (rectangle(4, 5), 1),  # 16 of 20 pixels
        (rectangle(8, 6), 1),  # 16 of 48, above 0.3
        (rectangle(8, 7), 5),  # 16 of 56, below
        (torch.ones(4, 4, dtype=torch.bool), 5),  # images of another size
    ],
    ids=["one column more", "a third", "less", "another size"],
)
def test_places_are_the_same_where_they_overlap(mask, since):
    (found,) = dated([finding(mask=mask)], [finding(since=1)], 5)
    assert found.since == since


def test_findings_without_a_mask_are_about_the_same():
    of_all = replace(finding(), area=Area("all"))
    assert dated([of_all], [replace(of_all, since=1)], 5)[0].since == 1
    assert dated([finding()], [replace(of_all, since=1)], 5)[0].since == 5


def test_the_right_one_of_several_is_taken():
    before = [finding("noisy", since=1), finding(mask=rectangle(2, 2), since=2), finding(since=3)]
    assert dated([finding()], before, 5)[0].since == 3


def test_where_epochs_are_not_known_nothing_is_said():
    (found,) = dated([finding()], [finding()], None)
    assert (found.since, found.text) == (None, "Upper left: bad.")


def test_other_findings_stay_as_they_are():
    found = finding(p=0.005, samples=(3, 1), cause="Usual cause: one.")
    (after,) = dated([found], [], 0)
    assert replace(after, since=None) == found
