# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student

from genmonitor import CosineKernel
from genmonitor.evaluation.disagreement_findings import DistanceTracker
from genmonitor.evaluation.diversity_findings import SpreadTracker
from genmonitor.evaluation.prompt_groups import ALL, CURVES, Estimate, PromptGroups
from genmonitor.evaluation.tracker import Change, quoted
from genmonitor.functional import mmd_influence
from genmonitor.functional.kernel_means import kernel_dispersion
from genmonitor.images.prompts import Prompts

NO_GROUPS = PromptGroups(None, 0)


def features(n, seed=0):
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(seed))


def test_groups_are_the_samples_of_a_prompt():
    groups = PromptGroups(Prompts(["x", "y", "x"]), 24)
    rows = groups.split(torch.arange(24))
    assert rows["x"].tolist() == [i for i in range(24) if i % 3 != 1]
    assert rows["y"].tolist() == [i for i in range(24) if i % 3 == 1]
    assert groups.by_prompt
    assert groups.messages() == ()


def test_groups_leave_out_prompts_with_few_samples():
    groups = PromptGroups(Prompts(["x", "y", "x"]), 12)
    assert groups.split(torch.arange(12)).keys() == {"x"}
    assert groups.messages() == (
        "1 of 2 prompts have fewer than 8 samples, too few for alerts about them; alerts are about the others.",
    )


def test_groups_are_one_where_all_prompts_have_few_samples():
    groups = PromptGroups(Prompts(range(10)), 20)
    assert groups.split(torch.arange(20))[ALL].tolist() == list(range(20))
    assert not groups.by_prompt
    assert groups.messages()[0].endswith("alerts are about all samples together.")


def test_groups_are_none_with_few_samples():
    groups = PromptGroups(Prompts(range(3)), 6)
    assert groups.split(torch.arange(6)) == {}
    assert groups.messages()[0].endswith("alerts are about nothing.")


def test_groups_need_enough_samples_on_both_sides():
    assert not PromptGroups(Prompts(range(3)), 24, 12).by_prompt


def test_spread_is_that_of_the_prompts_samples():
    x = features(24)
    found = SpreadTracker(PromptGroups(Prompts(range(3)), 24)).measure(x, CosineKernel())
    expected = kernel_dispersion(x[1::3], CosineKernel())
    assert (found["1"].value, found["1"].error) == (float(expected.value), float(expected.standard_error))
    assert found["1"].samples == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_distance_is_that_of_the_prompts_samples(dtype):
    fake, real = features(24).to(dtype), features(30, 1).to(dtype)
    tracker = DistanceTracker(NO_GROUPS)
    assert tracker.measure(fake) == {}
    tracker.compare_with(real, PromptGroups(Prompts(range(3)), 24, 30))
    found = tracker.measure(fake)
    expected = mmd_influence(fake[2::3], real[2::3])
    assert found["2"].value == pytest.approx(float(expected.mmd))
    error = (expected.fake.var() / 8 + expected.real.var() / 10).sqrt()
    assert found["2"].error == pytest.approx(float(error))
    assert found["2"].samples == 8


SURE = 0.01


def spread(value, error=SURE, samples=100):
    return Estimate(value, error, samples)


def named(changes, evaluations):
    """Take in evaluations, a value for each prompt; return what each one named."""
    return [
        [change.name for change in changes.update({k: spread(v) for k, v in found.items()}, float(epoch))]
        for epoch, found in enumerate(evaluations)
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([1, 1, 0.1, 0.1, 0.1], [3], id="two in a row, once"),
        pytest.param([1, 0.1, 1, 0.1, 1], [], id="one is chance"),
        pytest.param([1, 0.1, 0.1, 1, 0.1, 0.1], [2, 5], id="again after a recovery"),
        pytest.param([1, 0.3, 0.3, 0.3], [], id="a third of it, however sure"),
        pytest.param([0.2, 1, 0.08, 0.08], [3], id="the best is the highest so far"),
        pytest.param([0.1, 0.1, 1, 1], [], id="better"),
        pytest.param([0.0, 0.0, 0.0], [], id="nothing ever"),
    ],
)
def test_highest(values, expected):
    found = named(SpreadTracker(NO_GROUPS), [{"a": value} for value in values])
    assert [epoch for epoch, names in enumerate(found) if names] == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0.3, 0.0, 0.2, 0.2, 0.2], [3], id="two in a row, once"),
        pytest.param([-0.001, 0.001, 0.001], [], id="around nothing"),
        pytest.param([0.3, 0.2, 0.1], [], id="better"),
    ],
)
def test_lowest(values, expected):
    found = named(DistanceTracker(NO_GROUPS), [{"a": value} for value in values])
    assert [epoch for epoch, names in enumerate(found) if names] == expected


def test_change_says_what_and_when_the_best_was():
    changes = SpreadTracker(NO_GROUPS)
    for epoch, value in enumerate((0.8, 1.0, 0.1)):
        changes.update({"a": spread(value), "b": spread(0.5)}, float(epoch))
    (change,) = changes.update({"a": spread(0.1), "b": spread(0.5)}, 3.0)
    assert (change.name, change.now, change.best, change.epoch) == ("a", 0.1, 1.0, 1.0)
    assert change.p < 1e-4


def test_standing_changes_stay_until_a_recovery():
    changes = SpreadTracker(NO_GROUPS)
    standing = []
    for epoch, value in enumerate((1.0, 0.1, 0.1, 0.05, 1.0, 0.1)):
        changes.update({"a": spread(value), "b": spread(0.5)}, float(epoch))
        standing.append([(change.name, change.now) for change in changes.standing])
    assert standing == [[], [], [("a", 0.1)], [("a", 0.05)], [], []]


def test_surest_comes_first():
    assert named(SpreadTracker(NO_GROUPS), [{"a": 1, "b": 1}, *2 * [{"a": 0.09, "b": 0.05}]])[-1] == ["b", "a"]


def test_score_is_of_a_student_p_value_times_the_evaluations_before():
    changes = SpreadTracker(NO_GROUPS)
    changes.update({"a": spread(1.0, 0.1, 10)}, 0.0)
    changes.update({"a": spread(0.9, 0.3, 10)}, 1.0)  # the largest error so far counts, not the best's own
    p = 2 * student.sf((1.0 - 0.1) / (0.3**2 + 0.05**2) ** 0.5, 9)
    assert changes.scores({"a": spread(0.1, 0.05, 10)})["a"] == pytest.approx(norm.ppf(p), rel=1e-4)


def test_best_beyond_the_limit_counts_as_the_limit():
    noise_first = [{"a": value} for value in (1.0, 0.09, 0.09)]
    assert named(SpreadTracker(NO_GROUPS), noise_first)[-1] == ["a"]
    limited = SpreadTracker(NO_GROUPS)
    limited.limit = 0.3
    assert named(limited, noise_first)[-1] == []


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param({"a": 0.3, "b": 0.4, "c": 0.2}, [], id="all fall as the model learns"),
        pytest.param({"a": 0.3, "b": 0.4, "c": 0.05}, ["c"], id="one falls far more"),
        pytest.param({"a": 1.0, "b": 1.0, "c": 0.2}, ["c"], id="one falls alone"),
        pytest.param({"a": 0.03, "b": 0.02, "c": 0.01}, ["c", "b", "a"], id="all collapse"),
    ],
)
def test_highest_is_judged_beside_the_other_prompts(later, expected):
    assert named(SpreadTracker(NO_GROUPS), [dict.fromkeys("abc", 1.0), later, later])[-1] == expected


def test_state_goes_on(tmp_path):
    first, second = SpreadTracker(NO_GROUPS), SpreadTracker(NO_GROUPS)
    named(first, [{"a": 1.0}, {"a": 0.9}, {"a": 0.1}])
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert second.state_dict() == first.state_dict()
    assert named(second, [{"a": 0.1}]) == [["a"]]


RECORD = {"epoch": 16.0}


def changes(count):
    return [Change(f"p{i}", 0.02 + 0.01 * i, 0.5, 9.0, 1e-9) for i in range(count)]


def of_prompts(count):
    return PromptGroups(Prompts([f"p{i}" for i in range(count)]), 8 * count)


def test_quoted_prompts_cannot_move_a_cursor_and_are_cut():
    assert quoted("a\nb") == "'a\\nb'"
    assert len(quoted(99 * "x")) == 42


@pytest.mark.parametrize(("count", "end"), [(6, "'p5' (0.07)"), (8, "'p5' (0.07) and 2 more")])
def test_others_are_named_up_to_a_number(count, end):
    (alert,) = SpreadTracker(of_prompts(count)).finding(changes(count), RECORD)
    assert alert.text.endswith(f"{end}.")


def test_alert_about_lost_variety_begins_with_the_finding():
    (alert,) = SpreadTracker(of_prompts(1)).finding(changes(1), RECORD)
    assert (alert.area.name, alert.verdict, alert.measure) == ("prompt 'p0'", "lost its variety", "spread_1")
    assert alert.text == (
        "Prompt 'p0' lost its variety: spread 0.02 at epoch 16, 0.5 at epoch 9, its best (p < 0.0001)."
    )


def test_alert_about_all_samples_names_them():
    (alert,) = SpreadTracker(PromptGroups(None, 8)).finding([Change(ALL, 0.1, 1.0, 9.0, 1e-9)], RECORD)
    assert alert.measure == "spread_1"
    assert alert.text == (
        "All samples lost their variety: spread 0.1 at epoch 16, 1 at epoch 9, its best (p < 0.0001)."
    )


def test_alert_about_the_data_gives_both_distances():
    found = [Change("a cat", 0.31, 0.002, 9.0, 1e-9), Change("a dog", 0.2, -0.001, 9.0, 1e-5)]
    (alert,) = DistanceTracker(PromptGroups(Prompts(["a cat", "a dog"]), 16)).finding(found, RECORD)
    assert (alert.area.name, alert.verdict) == ("prompt 'a cat'", "moved away from the data")
    assert (alert.measure, alert.fine, alert.p) == ("distance_1", False, 1e-9)
    assert alert.text == (
        "Prompt 'a cat' moved away from the data: squared MMD 0.31 at epoch 16, 0.002 at epoch 9, its best "
        "(p < 0.0001); so did 'a dog' (0.2)."
    )


def test_there_is_no_alert_about_nothing():
    assert SpreadTracker(of_prompts(1)).finding([], RECORD) == []


def test_prompts_beyond_the_first_have_no_curves():
    tracker = DistanceTracker(of_prompts(100))
    assert len(tracker.specs()) == CURVES
    (alert,) = tracker.finding([Change("p99", 0.3, 0.1, 9.0, 1e-9)], RECORD)
    assert alert.measure is None
