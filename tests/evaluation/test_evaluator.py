# SPDX-License-Identifier: Apache-2.0
import os
import random
import time

import numpy as np
import pytest
import torch
from _helpers.evaluations import (
    ScriptedCollective,
    disagreement_evaluator,
    diversity_evaluator,
    evaluate,
    fit,
    halves,
    labeled,
    of_classes,
    region_evaluator,
    samples_of,
)

from genmonitor._stop import StopEvaluation
from genmonitor.distributed import FailedElsewhereError
from genmonitor.evaluation import Evaluation, Evaluator, SingleProcess, run_evaluation
from genmonitor.evaluation import evaluator as evaluator_module
from genmonitor.evaluation.evaluator import (
    NotFittedError,
    SettingsChangedError,
    check_same_settings,
    commit_evaluation,
)
from genmonitor.evaluation.results import FitReport
from genmonitor.linalg import chunking


class Drawing(Evaluator):
    """Measures a random number, and fails where it is told to."""

    def __init__(self, fails_in=None):
        super().__init__(n_samples=4, prefix="drawing")
        self.fails_in, self.seen = fails_in, []

    def fit(self, real, probe, comm, progress=None):
        return FitReport()

    def update(self, samples):
        self.seen.append(len(samples.images))
        self.next_number("update")

    def compute(self, comm):
        return Evaluation({"number": self.next_number("compute")})

    def next_number(self, where):
        if where == self.fails_in:
            raise RuntimeError(f"no {where}")
        return float(torch.rand(())) + np.random.rand() + random.random()  # noqa: NPY002


def run(evaluator, seed=0, comm=None, draw=None):
    return run_evaluation(
        evaluator, draw or (lambda: samples_of(torch.zeros(4, 1, 2, 2))), comm or SingleProcess(), seed
    )


def random_states():
    numpy = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy[1].tolist(), numpy[2], random.getstate()


def test_run_evaluation_returns_samples_and_values():
    samples, evaluation = run(Drawing())
    assert len(samples.images) == 4
    assert evaluation.values.keys() == {"number", "sampling_seconds", "metric_seconds"}
    assert all(value >= 0 for value in evaluation.values.values())


@pytest.mark.parametrize("name", ["epoch", "step", "images_seen", "sampling_seconds", "metric_seconds"])
def test_run_evaluation_refuses_values_that_would_replace_what_a_monitor_adds(name):
    class Named(Drawing):
        def compute(self, comm):
            return Evaluation({"number": 1.0, name: 77.0})

    with pytest.raises(ValueError, match=f"names of their own, but Named gives '{name}'"):
        run(Named())


def test_run_evaluation_seeds_what_a_metric_draws():
    first, same, other = (run(Drawing(), seed)[1].values["number"] for seed in (1, 1, 2))
    assert first == same != other


@pytest.mark.parametrize("fails_in", [None, "update", "compute"])
def test_run_evaluation_restores_random_states(fails_in):
    before = random_states()
    try:
        run(Drawing(fails_in))
    except RuntimeError as error:
        assert str(error) == f"no {fails_in}"  # noqa: PT017
    assert random_states() == before


def test_run_evaluation_leaves_the_sampler_its_random_states():
    def draw():
        torch.rand(3)
        return samples_of(torch.zeros(4, 1, 2, 2))

    torch.manual_seed(0)
    torch.rand(3)
    expected = torch.rand(())
    torch.manual_seed(0)
    run(Drawing(), draw=draw)
    assert torch.equal(torch.rand(()), expected)


def test_run_evaluation_updates_nothing_if_another_rank_failed():
    evaluator = Drawing()
    with pytest.raises(FailedElsewhereError):
        run(evaluator, comm=ScriptedCollective(other=False))
    assert evaluator.seen == []


@pytest.mark.parametrize(("fails_in", "flags"), [("update", [True, False]), ("compute", [True, True, False])])
def test_run_evaluation_tells_others_of_a_failure(fails_in, flags):
    comm = ScriptedCollective()
    with pytest.raises(RuntimeError, match=f"no {fails_in}"):
        run(Drawing(fails_in), comm=comm)
    assert comm.flags == flags


def test_run_evaluation_leaves_on_every_process_where_one_was_told_to_stop():
    class ToldElsewhere(ScriptedCollective):
        def gather(self, value):
            return [value, "StopEvaluation: "]

    evaluator = Drawing()
    with pytest.raises(StopEvaluation):
        run(evaluator, comm=ToldElsewhere(other=False))
    assert evaluator.seen == []


class Counting:
    def __init__(self):
        self.by_name = {"a": 1}


class Committing(Drawing):
    """Counts in every way what it commits, and may fail once it has."""

    def __init__(self, fails=False):
        super().__init__()
        self.fails, self.count, self.names, self.held = fails, 0, [], Counting()

    def commit(self, evaluation, history):
        self.count += 1
        self.names.append("b")
        self.held.by_name["a"] += 1
        if self.fails:
            raise RuntimeError("no commit")
        return ["alert"]

    def committed(self):
        return self.count, self.names, self.held.by_name["a"]


@pytest.mark.parametrize(
    ("fails", "other", "error"), [(True, True, RuntimeError), (False, False, FailedElsewhereError)]
)
def test_commit_evaluation_that_fails_anywhere_leaves_all_as_they_were(fails, other, error):
    evaluator = Committing(fails)
    with pytest.raises(error):
        commit_evaluation(evaluator, Evaluation({}), [], ScriptedCollective(other=other))
    assert evaluator.committed() == (0, [], 1)


def test_commit_evaluation_returns_the_alerts():
    evaluator = Committing()
    assert commit_evaluation(evaluator, Evaluation({}), [], ScriptedCollective()) == ["alert"]
    assert evaluator.committed() == (1, ["b"], 2)


def test_check_same_settings_names_those_that_differ():
    with pytest.raises(SettingsChangedError, match=r"but these differ: b, c\.") as error:
        check_same_settings({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3})
    assert error.value.names == ("b", "c")


def test_check_same_settings_ignores_what_is_no_longer_one():
    assert check_same_settings({"a": 1}, {"a": 1, "gone": 2}) is None


def test_evaluator_needs_to_say_nothing_more():
    evaluator, history = Drawing(), [{"epoch": 0.0, "step": 0.0}]
    samples, evaluation = run(evaluator)
    assert evaluator.commit(evaluation, history) == []
    presenter = evaluator.presenter()
    assert not presenter.figures(evaluation, history, samples)
    assert not presenter.tables(evaluation)
    assert not evaluator.values()
    found = evaluator.findings(evaluation, history)
    assert found == ()
    assert presenter.summary(found, history) == ""


def test_evaluator_state_is_taken_over():
    first, second = Drawing(), Drawing()
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict() == {"settings": {"n_samples": 4}, "fit": {}, "processors": None}


@pytest.mark.parametrize("evaluator", [region_evaluator(), diversity_evaluator()], ids=["regions", "diversity"])
def test_evaluator_is_used_after_fit_only(evaluator):
    with pytest.raises(NotFittedError, match=r"Expected a fitted \w+Evaluator\. Call `fit` with real images first"):
        evaluator.update(samples_of(torch.zeros(4, 1, 4, 4)))


@pytest.mark.parametrize("make", [region_evaluator, diversity_evaluator, disagreement_evaluator])
def test_evaluator_prefix_begins_the_names_of_its_files(make, tmp_path):
    assert make(prefix="other").prefix == "other"


@pytest.mark.parametrize(
    ("quota", "idle", "expected"),
    [
        (None, 800, 3),
        ("max 100000", 800, 3),
        ("200000 100000", 800, 2),
        ("50000 100000", 800, 1),
        (None, 200, 2),
        (None, 0, 1),
        (None, None, 3),
    ],
)
def test_no_more_threads_than_a_container_allows_and_than_there_are_free_processors(
    tmp_path, monkeypatch, quota, idle, expected
):
    evaluator = Drawing()
    monkeypatch.setattr(chunking, "CONTAINER", tmp_path)
    monkeypatch.setattr(chunking, "PROCESSOR_TIMES", times := tmp_path / "stat")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    if idle is not None:
        times.write_text("cpu  100 0 20 50 5 0 0 0 0 0\ncpu0 100 0 20 50 5 0 0 0 0 0\n")
        later = f"cpu  {900 - idle} 0 20 {50 + idle} 5 0 0 0 0 0\n"
        monkeypatch.setattr(time, "sleep", lambda seconds: times.write_text(later))
    torch.set_num_threads(3)
    with evaluator.threads():
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 3
    with pytest.raises(KeyError), evaluator.threads():
        raise KeyError
    assert torch.get_num_threads() == 3


def test_the_number_of_processors_is_found_once_and_saved(monkeypatch):
    evaluator = Drawing()
    monkeypatch.setattr(chunking, "processors", lambda: 8)
    monkeypatch.setattr(evaluator_module, "free_processors", lambda: 2)
    torch.set_num_threads(3)
    with evaluator.threads():
        assert torch.get_num_threads() == 2
    monkeypatch.setattr(evaluator_module, "free_processors", lambda: 1)
    again = type(evaluator)()
    again.load_state_dict(evaluator.state_dict())
    for resumed in (evaluator, again):
        with resumed.threads():
            assert torch.get_num_threads() == 2


CLASSES = torch.arange(60) % 3
EACH = {  # evaluator, real images, good and bad samples, and what is bad
    "regions": (region_evaluator, halves(80), halves(24, seed=1), halves(24, seed=2, dark=0.4), "cluster"),
    "diversity": (
        lambda: diversity_evaluator(n_samples=60),
        labeled(300),
        of_classes(CLASSES, seed=1),
        torch.where(CLASSES.view(-1, 1, 1, 1) == 1, of_classes(CLASSES)[1], of_classes(CLASSES, seed=2)),
        "prompt '1'",
    ),
    "disagreement": (
        lambda: disagreement_evaluator(n_samples=60),
        labeled(300),
        of_classes(CLASSES, seed=1),
        of_classes(torch.where(CLASSES == 1, 2, CLASSES), seed=2),
        "prompt '1'",
    ),
}


@pytest.mark.parametrize("name", EACH)
def test_the_value_range_is_checked_at_every_evaluation_and_noted_once(name):
    make, real, good, *_ = EACH[name]
    evaluator, history = make(), []
    fit(evaluator, real, good)
    notes = [evaluate(evaluator, images, history).notes for images in (good, good - 0.6, good - 0.6)]
    assert [sum("of the generated values are negative" in note for note in each) for each in notes] == [0, 1, 0]


@pytest.mark.parametrize("name", EACH)
def test_an_alert_has_an_end_that_is_said_once(name):
    make, real, good, bad, where = EACH[name]
    evaluator, history, said = make(), [], []
    fit(evaluator, real, good)
    for images in (good, bad, bad, good, good):
        found = evaluator.findings(evaluate(evaluator, images, history), history)
        said.append([x.area.name.startswith(where) for x in found if x.verdict == "recovered"])
    assert said == [[], [], [], [True], []]
