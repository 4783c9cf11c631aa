# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
import torch
from _helpers.evaluations import ScriptedCollective

from genmonitor import diagnose
from genmonitor.evaluation import Area, FaultKind, Finding, SingleProcess
from genmonitor.evaluation.regions.diagnoses import dated, diagnose_for_all


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


def diagnosis():
    """Return the diagnosis of images that are too bright, with a fault model that fails."""
    images = torch.rand(80, 1, 8, 8, generator=torch.Generator().manual_seed(0)).cumsum(3) / 8

    class Failing:
        name, unit, strengths = "failing", "px", (1.0,)

        def apply(self, images, strength, generator):
            raise OSError("no network")

    class Brighter:
        name, unit, strengths = "too bright", "of the range", (0.1, 0.3)

        def apply(self, images, strength, generator):
            return images + strength

    models = [Failing(), Brighter()]
    whole = torch.ones(8, 8, dtype=torch.bool)
    return diagnose(fake=images[:40] + 0.3, real=images[40:], area=whole, fault_models=models, skip_failing=True)


def test_one_process_gets_findings_numbers_notes_and_all_of_it():
    made = diagnosis()
    found = diagnose_for_all(lambda: made, SingleProcess())
    assert found.findings == tuple(x for x in made.findings if not x.fine)
    assert found.findings[0].kinds
    assert found.findings[0].kinds[0].name == "too bright"
    assert found.values == made.of_image()
    assert found.values["explained"] > 0.8
    assert found.notes == ("the fault model 'failing' failed: OSError: no network",)
    assert found.diagnosis is made


def test_what_is_fine_is_no_finding():
    images = torch.rand(80, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    made = diagnose(fake=images[:40], real=images[40:], area=rectangle(8, 8), fault_models=[])
    assert made.findings[0].fine
    # but the strangest samples are named among the details, as many as chance brings
    assert [x for x in diagnose_for_all(lambda: made, SingleProcess()).findings if not x.detail] == []


def test_a_diagnosis_that_fails_costs_itself_alone():
    def fail():
        raise MemoryError("6 GiB")

    found = diagnose_for_all(fail, SingleProcess())
    assert found.notes == ("the diagnosis failed: MemoryError: 6 GiB",)
    assert (found.findings, found.values, found.diagnosis) == ((), None, None)


class Recording(ScriptedCollective):
    """Rank zero, which keeps what it sends."""

    def broadcast(self, value):
        self.told = value
        return super().broadcast(value)


def never():
    raise AssertionError("only rank zero diagnoses")


def test_other_processes_are_told_the_same_and_make_nothing():
    zero = Recording()
    first = diagnose_for_all(diagnosis, zero)
    other = diagnose_for_all(never, ScriptedCollective(rank=1, sent=zero.told))
    assert (other.findings, other.values, other.notes) == (first.findings, first.values, first.notes)
    assert torch.equal(other.findings[0].area.mask, first.findings[0].area.mask)
    assert first.diagnosis is not None
    assert other.diagnosis is None


def test_other_processes_are_told_of_a_failure_and_go_on():
    zero = Recording()
    assert diagnose_for_all(lambda: 1 / 0, zero).notes == ("the diagnosis failed: ZeroDivisionError: division by zero",)
    other = diagnose_for_all(never, ScriptedCollective(rank=1, sent=zero.told))
    assert other.notes == ("the diagnosis failed: ZeroDivisionError: division by zero",)
    assert other.findings == ()
