# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
import torch

from genmonitor.evaluation.disagreement_findings import (
    AGAINST,
    DisagreementEvaluation,
    DisagreementPresenter,
    DisagreementValues,
    disagreement_finding,
)
from genmonitor.evaluation.modes import ByChance, Disagreement, Mode, SampleSet
from genmonitor.evaluation.prompt_groups import Estimate
from genmonitor.findings.values import grouped_by_chart
from genmonitor.images.prompts import Prompts

BY_CHANCE = [ByChance(total, 0.1, -0.1) for total in (0.2, 0.3, 0.9)]
FOUND = Disagreement(
    0.5,
    [Mode(0.3, [])],
    [Mode(-0.2, []), Mode(-0.1, [])],
    Mode(0.0, []),
    [],
    p=0.005,
    by_chance=BY_CHANCE,
)
PAIR = Prompts(["a cat", "a dog"])
CHANGED = [("a cat", 0.8), ("a dog", 0.15), (3, 0.05), ("a fish", 0.001)]
DISTANCES = {name: Estimate(x, 0.1, 9) for name, x in {"a dog": 0.3, "a cat": 0.02, "3": 0.11, "a fish": 0.9}.items()}
FIRST = {"epoch": 0.0, "total": 0.9, "top_1": 0.3, "bottom_1": -0.2}
LAST = {"epoch": 1.0, "total": 0.5, "top_1": 0.4, "bottom_1": -0.1, "p": 0.005, "baseline_total": 0.3}


def changing(changed=CHANGED, **others):
    return DisagreementEvaluation({}, replace(FOUND, changed=changed), side(1.0), side(0.0), **others)


def said(record, changed, against="real images"):
    return str(disagreement_finding(record, changing(changed).most(), against))


def test_modes_count_from_one():
    assert DisagreementValues(2, "data").modes == ["top_1", "top_2", "bottom_1", "bottom_2"]


def test_disagreement_values_are_0_where_modes_are_missing():
    found = DisagreementValues(2, "data").measured(FOUND)
    modes = {"top_1": 0.3, "top_2": 0.0, "bottom_1": -0.2, "bottom_2": -0.1}
    assert found == modes | {"total": 0.5, "p": 0.005, "baseline_total": 0.3}


@pytest.mark.parametrize("against", AGAINST.values())
def test_disagreement_finding_names_three_prompts(against):
    assert said(LAST, CHANGED, against) == (
        f"Disagreement with {against}, mostly for 'a cat' (80 %), 'a dog' (15 %), '3' (5 %): total 0.5 (p = 0.005; by "
        "chance 0.3)."
    )


def test_one_measure_ranks_prompts_and_evaluations():
    """The distance from real images where it is known, in the finding as in the table and the best evaluation."""
    found = changing(distances=DISTANCES)
    assert [prompt for prompt, _ in found.differing] == ["a fish", "a dog", 3, "a cat"]
    finding = disagreement_finding(LAST | {"distance": 0.33}, found.most(), "real images")
    assert str(finding) == (
        "Disagreement with real images, mostly for 'a fish' (0.9), 'a dog' (0.3), '3' (0.11): mean distance 0.33 "
        "(p = 0.005)."
    )
    assert finding.measure == "distance"
    assert [row[:2] for row in table(found).rows][:2] == [["a fish", 0.9], ["a dog", 0.3]]
    assert table(found).columns[:2] == ["prompt", "squared MMD"]
    few = changing(distances={"all samples": Estimate(0.2, 0.1, 99)})  # too few samples of each prompt
    assert few.differing == CHANGED[:3]


def test_disagreement_that_chance_explains_names_no_prompts():
    finding = disagreement_finding(LAST | {"p": 0.41}, ["x"], "b", of="a")
    assert str(finding) == "No evidence of a difference between a and b (p = 0.41): total 0.5, by chance 0.3."
    assert finding.p == 0.41


@pytest.mark.parametrize(("p", "fine"), [(0.41, True), (0.005, False)])
def test_only_a_difference_from_real_images_is_wrong(p, fine):
    found = {against: disagreement_finding(LAST | {"p": p}, [], against).fine for against in AGAINST.values()}
    assert found == {"real images": fine, "the start of training": None, "the previous evaluation": None}


def test_disagreement_finding_has_total_and_chance():
    finding = disagreement_finding(LAST, [], "real images")
    assert str(finding) == "Disagreement with real images: total 0.5 (p = 0.005; by chance 0.3)."


def test_a_total_below_chance_is_not_set_beside_it():
    """The p-value is of the distance, which the largest modes need not show."""
    finding = disagreement_finding(LAST | {"total": 0.2}, [], "real images")
    assert str(finding) == "Disagreement with real images: total 0.2 (p = 0.005)."


def test_disagreement_finding_leaves_out_what_hardly_differs():
    assert said(LAST, CHANGED[3:]).endswith("by chance 0.3).")


def test_disagreement_finding_quotes_and_cuts_prompts():
    text = said(LAST, [("\x1b[2J" + 60 * "x", 0.8)])
    assert "\x1b" not in text
    assert "x…'" in text


def test_disagreement_charts_say_what_is_compared_with():
    charts = grouped_by_chart(DisagreementValues(1, "start").specs)
    assert {title: [spec.key for spec in specs] for title, specs in charts.items()} == {
        "Disagreement with the start of training": ["total"],
        "p-value: does it differ from the start of training?": ["p"],
        "Modes of it: above zero only the model, below only the start of training": ["top_1", "bottom_1"],
    }


def test_only_the_distance_from_data_orders_evaluations():
    """The total does not: that of noise may be below that of a trained model, whose modes are more."""
    ordered = {name: [x.key for x in DisagreementValues(1, name).specs if x.better] for name in AGAINST}
    assert ordered == {"data": ["distance"], "start": [], "previous": []}


DRAWN = Disagreement(
    total=0.5,
    top=[Mode(0.3, [("a cat", 1.0), ("a dog", 0.05)])],
    bottom=[Mode(-0.2, [("a dog", 1.0), ("a cat", 0.5)])],
    similar=Mode(0.001, [("a cat", 1.0)]),
    changed=[("a cat", 0.9), ("a dog", 0.1)],
)


def side(brightness, samples=(0, 1, 2, 3)):
    """Return pictures of samples, of each prompt in turn."""
    n = len(samples)
    return SampleSet(
        torch.rand(n, 2), torch.tensor(samples), torch.full((n, 1, 2, 2), brightness), torch.tensor(samples)
    )


def evaluated(current=None, found=DRAWN):
    return DisagreementEvaluation({}, found, current or side(1.0), side(0.0))


def presenter(**options):
    return DisagreementPresenter(PAIR, "real images", **options)


def table(evaluation, **options):
    return presenter(**options).tables(evaluation)["prompts"]


def texts(figure):
    return " | ".join(part.get_text() for part in figure.findobj(lambda part: hasattr(part, "get_text")))


def test_disagreement_modes_are_drawn_with_their_prompts():
    drawn = texts(presenter().drawings(evaluated())["modes"]())
    assert "a dog" in drawn
    assert "real images" in drawn


def test_prompts_at_chance_are_not_listed():
    found = replace(DRAWN, prompt_p={"a cat": 0.3, "a dog": 0.005})
    assert found.differing == [("a dog", 0.1)]
    assert replace(DRAWN, p=0.3).differing == []
    listed = table(evaluated(found=found))
    assert listed.columns == ["prompt", "part", "p", "model", "real images"]
    assert [row[:3] for row in listed.rows] == [["a dog", 0.1, "p = 0.005"]]


def test_disagreement_table_holds_each_prompt_and_its_part():
    listed = table(evaluated())
    assert listed.columns == ["prompt", "part", "model", "real images"]
    assert [row[:2] for row in listed.rows] == [["a cat", 0.9], ["a dog", 0.1]]


@pytest.mark.parametrize("value_range", [None, (0.0, 1.0)])
def test_disagreement_table_holds_pictures_of_both_sides(value_range):
    _, _, model, reference = table(evaluated(), value_range=value_range).rows[0]
    assert model.shape == reference.shape
    assert model[0, 0].tolist() == [255, 255, 255]
    assert reference[0, 0].tolist() == [0, 0, 0]


def test_disagreement_table_is_white_where_a_side_lacks_a_prompt():
    lacking, options = evaluated(side(0.0, samples=(0, 2))), {"value_range": (0.0, 1.0), "model": "mine"}
    assert [bool((row[2] == 255).all()) for row in table(lacking, **options).rows] == [False, True]
    assert "mine" in texts(presenter(**options).drawings(lacking)["modes"]())
