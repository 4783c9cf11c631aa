# SPDX-License-Identifier: Apache-2.0
import torch
from _helpers.evaluations import ScriptedCollective

from genmonitor import diagnose
from genmonitor.evaluation import SingleProcess
from genmonitor.evaluation.regions.evaluation import diagnose_for_all


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
    made = diagnose(fake=images[:40], real=images[40:], area=torch.ones(8, 8, dtype=torch.bool), fault_models=[])
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
