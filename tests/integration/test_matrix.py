# SPDX-License-Identifier: Apache-2.0
"""Modules as other projects have them, under Trainers as other projects have them, with each monitor."""

import warnings
from collections import Counter
from dataclasses import replace

import pytest
import torch
from _helpers.traces import same
from _helpers.zoo import SHAPES
from _helpers.zoo.runs import PREFIXES, REMEDY, monitor, problems, run, watched
from _helpers.zoo.settings import SETTINGS, covering

pytestmark = pytest.mark.slow
COVERING = covering(SHAPES)
LATER = ("diversity", "disagreement")


@pytest.fixture(autouse=True)
def nondeterministic_again():
    """Lightning leaves the switch as a Trainer set it."""
    yield
    torch.use_deterministic_algorithms(False)
    torch._dynamo.reset()


def kinds_of(name, number):
    """Conditional modules meet all monitors everywhere; the others each monitor of prompts in two settings."""
    return ("clusters", *LATER) if SHAPES[name].prompts else ("clusters", LATER[number % 2])


def in_ci(tried):
    """Return enough scenarios for each setting with each monitor, and for each module with one of prompts."""
    chosen, met = set(), set()
    for least in (2, 1):  # those that add the most come first
        for name, setting, kind in tried:
            new = {(setting, kind), *([name] if kind in LATER else [])} - met
            if len(new) >= least:
                chosen.add((name, setting, kind))
                met |= new
    return chosen


TRIED = [(name, setting, kind) for name, setting, number in COVERING for kind in kinds_of(name, number)]
IN_CI = in_ci(TRIED)


def test_every_module_and_setting_is_met(record_property):
    assert len(SHAPES) >= 30
    assert min(Counter(name for name, _, _ in COVERING).values()) >= 4
    met = Counter(setting for _, setting, _ in COVERING)
    assert met.keys() == SETTINGS.keys()
    assert min(met.values()) >= 6
    assert {(setting, kind) for _, setting, kind in IN_CI} == {(x, kind) for x in SETTINGS for kind in PREFIXES}
    assert {name for name, _, kind in IN_CI if kind in LATER} == set(SHAPES)
    record_property("matrix: modules", len(SHAPES))
    record_property("matrix: settings of a Trainer", len(SETTINGS))


def count(record_property, outcome):
    """Count what became of a scenario; what never happened is counted as 0."""
    record_property("matrix: scenarios tried", 1)
    for possible in ("evaluated", "refused with a remedy", "failed"):
        record_property(f"matrix: scenarios {possible}", int(outcome == possible))


@pytest.mark.parametrize(
    ("name", "setting", "kind"),
    [pytest.param(*one, id="-".join(one), marks=() if one in IN_CI else pytest.mark.nightly) for one in TRIED],
)
def test_module_under_a_trainer(tmp_path, name, setting, kind, record_property):
    shape, how = SHAPES[name], SETTINGS[setting]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, counts, _ = run(tmp_path / "alone", shape, how)
    try:
        monitors, left, _, waiting, said = watched(tmp_path / kind, shape, how, kind)
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    else:
        wrong = problems(monitors, how.evaluations(counts), waiting, said)
        wrong += [part for part in expected if not same(left[part], expected[part])]
    count(record_property, "failed" if wrong else "evaluated")
    assert wrong == []


@pytest.mark.parametrize("name", SHAPES)
def test_module_with_a_monitor_told_nothing(tmp_path, name, record_property):
    shape, how = replace(SHAPES[name], watch={}, clusters={}), SETTINGS["as it comes"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if shape.refused is None:
            watcher = monitor("clusters", shape)
            run(tmp_path, shape, how, [watcher])
            assert len(watcher.history) == 2
            outcome = "evaluated"
        else:
            with pytest.raises((ValueError, TypeError), match=shape.refused) as refusal:
                run(tmp_path, shape, how, [monitor("clusters", shape)])
            assert REMEDY.search(str(refusal.value))
            outcome = "refused with a remedy"
    count(record_property, outcome)
