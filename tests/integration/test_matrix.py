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


def in_ci():
    """Return scenarios in which each module and each setting is met, with the monitors in turn."""
    chosen, met, times = set(), set(), Counter()
    for least in (2, 1):  # those that add the most come first
        for name, setting, number in COVERING:
            new = {name, setting} - met
            if len(new) >= least:
                kind = min(kinds_of(name, number), key=lambda one: times[one])
                chosen.add((name, setting, kind))
                met |= new
                times[kind] += 1
    return chosen


TRIED = [(name, setting, kind) for name, setting, number in COVERING for kind in kinds_of(name, number)]
IN_CI = in_ci()


def test_every_module_and_setting_is_met(record_property):
    met = Counter(setting for _, setting, _ in COVERING)
    assert met.keys() == SETTINGS.keys()
    assert min(met.values()) >= 4
    names, settings, kinds = (Counter(one[i] for one in IN_CI) for i in range(3))
    assert (names.keys(), settings.keys()) == (SHAPES.keys(), SETTINGS.keys())
    assert min(kinds[kind] for kind in PREFIXES) >= 8
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


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.refused])
def test_module_that_a_monitor_must_be_told_about_is_refused_with_the_remedy(tmp_path, name, record_property):
    shape = replace(SHAPES[name], watch={}, clusters={})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, TypeError), match=shape.refused) as refusal:
            run(tmp_path, shape, SETTINGS["as it comes"], [monitor("clusters", shape)])
    assert REMEDY.search(str(refusal.value))
    count(record_property, "refused with a remedy")
