# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch

from genmonitor._io import COLORS, colored
from genmonitor.findings.finding import Area, FaultKind, Finding
from genmonitor.findings.line import brief, clipped, evaluation_line
from genmonitor.findings.tables import WIDTH
from genmonitor.findings.values import ValueSpec
from genmonitor.functional.diagnosis.readings import READINGS, Said

KEY = "error_ratio_image"
VALUES = {key: ValueSpec(key, unit="×", better="low") for key in (KEY, "error_ratio_2")}
NOISE = (FaultKind("noisy", 0.05, "of the range", 0.34),)
PATTERN = Finding("…", Area("whole image"), "", None, False, 0.001, kinds=NOISE)
FINE = Finding("No evidence of a difference.", Area("the image", region="image"), "", "image", True, 0.43)
WORSE = Finding("…", Area("cluster_2", "right half", "cluster_2"), "worse", "error_ratio_2", False, 1e-4)


def records(*ratios, **others):
    return [{"epoch": 3.0 + i, KEY: ratio, "error_ratio_2": ratio, **others} for i, ratio in enumerate(ratios)]


def line(findings, history, alerts=()):
    return evaluation_line(findings, history, VALUES, KEY, alerts)


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([35.0], "epoch  3    35 × real   first evaluation"),
        ([35.0, 28.0], "epoch  4    28 × real   better (was 35), best so far"),
        ([28.01, 28.0], "epoch  4    28 × real   as before, best so far"),
        ([40.0, 67.0], "epoch  4    67 × real   worse than best (40 at epoch 3)"),
        ([28.0, 67.0, 40.0], "epoch  5    40 × real   better (was 67), best 28 at epoch 3"),
        ([28.0, 28.01], "epoch  4    28 × real   near the best (28 at epoch 3)"),
        ([9.4, 0.7], "epoch  4   1.0 × real   better (was 9.4), best so far"),
    ],
)
def test_line_begins_with_the_news(ratios, said):
    assert line([], records(*ratios)) == said


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (PATTERN, "noise 0.05 of the range, whole image, 34 %"),
        (FINE, "no difference beyond chance (p = 0.43)"),
        (WORSE, "cluster_2 (right half): 35 × (p = 0.0001)"),
        (Finding("Visibly worse: brightness 0.3, was 0.5.", Area("image"), "", None, False), "brightness 0.3, was 0.5"),
        (
            Finding(
                "Whole image: edges 0.1, real 0.2 (in 62 % of the images; p = 0.01); area 3, real 2.",
                Area("whole image"),
                "",
                None,
                False,
            ),
            "edges 0.1, real 0.2",
        ),
        (Finding("Too few images: 8.", Area("the image", region="image"), "", "image"), "Too few images: 8"),
    ],
)
def test_line_ends_with_the_finding(finding, said):
    assert clipped(brief(finding, records(35.0)[0], VALUES), 99) == said
    assert line([finding], records(35.0)).endswith(f"   {clipped(said, 40)}")


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.name)
def test_a_reading_keeps_its_value_where_both_have_no_room(reading):
    differing = Said(reading, 0.123, 0.456, 0.62, 0.001, torch.arange(1), torch.arange(1))
    finding = Finding(f"Whole image: {differing}.", Area("whole image"), "", None, False)
    said, value = line([finding], records(1.1, 1.1, 1.2)), f"{reading.name} {reading.value(0.123)}"
    assert f"{value}, real" in said or said.endswith(value)


def test_what_was_found_before_is_not_repeated():
    standing = Finding("…", Area("whole image"), "", None, False, 0.001, kinds=NOISE, as_of=11.0)
    assert re.search("best so far +as at epoch 11$", line([standing], records(28.0, 26.0)))


def test_alert_names_its_region_and_the_best_epoch():
    said = line([PATTERN], records(40.0, 67.0), [WORSE])
    assert "   ALERT: cluster_2 worse than best (40 × at epoch 3)   noise" in said
    assert "(40 × at epoch 3) and 2 more   noise" in line([PATTERN], records(40.0, 67.0), [WORSE] * 3)
    other = Finding("…", Area("cluster_1", region="cluster_1"), "worse", KEY, False, 1e-9)
    history = records(40.0, 67.0, error_ratio_2=90.0)
    assert "ALERT: cluster_2 worse than best" in line([PATTERN], history, [other, WORSE])


def test_alert_without_a_best_says_what_it_is_about():
    copies = Finding("Three samples copy training images.", Area("all samples"), "", "copied", False)
    assert "ALERT: Three samples copy training images" in line([PATTERN], records(40.0, 67.0), [copies])


def test_what_is_alerted_about_is_not_said_twice():
    lost = Finding("…", Area("prompt 'cat'"), "lost its variety", "spread_1", False)
    assert line([lost], records(40.0, 67.0), [lost]).endswith("ALERT: prompt 'cat' lost its variety")
    assert line([lost], records(40.0)).endswith("prompt 'cat': lost its variety")


@pytest.mark.parametrize(
    ("now", "said"), [(0.012, "near the best"), (0.019, "near the best"), (0.03, "worse than best")]
)
def test_near_the_best_is_within_its_error(now, said):
    history = [{"epoch": 0.0, "total": 0.01}, {"epoch": 1.0, "total": now, "total_error": 0.005}]
    assert f"  total {now}   {said} (0.01 at epoch 0)" in evaluation_line([], history, {}, "total")


def test_line_of_one_of_several_monitors_names_it():
    said = evaluation_line([], records(35.0), VALUES, KEY, of="cms_5")
    assert said == "epoch  3  cms_5    35 × real   first evaluation"


def test_end_of_an_alert_is_said():
    over = Finding("…", Area("cluster_2"), "recovered", "error_ratio_2", True)
    assert "better (was 67), best so far, cluster_2 recovered" in line([PATTERN, over], records(67.0, 40.0))


LONG = Area("cluster_2", "a very long name of a place, at the left of the upper right corner " * 3, "cluster_2")
MANY = [Finding(f"Prompt {'cat ' * 40} moved.", Area(f"prompt {'cat ' * 40}"), "moved away from the data", None, False)]


@pytest.mark.parametrize("alerts", [[], [WORSE], [WORSE] * 12, MANY])
@pytest.mark.parametrize("ratios", [[35.0], [123456.0, 100000.0], [0.3, 0.2], [0.3, 1e9, 67.0]])
@pytest.mark.parametrize(
    "finding",
    [
        PATTERN,
        FINE,
        WORSE,
        Finding("x " * 200, LONG, "", "error_ratio_2", False, 0.01),
        Finding("x " * 200, LONG, "", None, False, kinds=NOISE),
        Finding("x" * 200, Area("class 3"), "", None, False, 0.01),
        *MANY,
        Finding("…", Area("cluster_2"), "recovered", None, True, 0.3),
    ],
)
def test_line_is_never_longer_than_a_terminal(finding, ratios, alerts):
    history = records(*ratios)
    assert len(line([finding], history, alerts)) <= WIDTH
    history[-1]["epoch"] = 1234.56789
    assert len(line([finding], history, alerts)) <= WIDTH
    assert len(evaluation_line([finding], [{"step": 1}], {}, None, alerts)) <= WIDTH


def test_evaluation_without_an_order_says_its_first_finding():
    found = Finding("5 modes in 24 images; the prompts explain 40 % of the variety.", Area("all images"), "", "vendi")
    assert evaluation_line([found], [{"epoch": 1.0, "vendi": 5.0}], {}) == (
        "epoch  1   5 modes in 24 images; the prompts explain 40 % of the variety"
    )
    assert evaluation_line([], [{"epoch": 1.0}], {}) == "epoch  1"


@pytest.mark.parametrize("word", COLORS)
def test_only_a_terminal_has_colors(monkeypatch, word):
    said = f"epoch 3   {word}, was better"
    assert colored(said) == said
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    assert colored(said) == f"epoch 3   \x1b[{COLORS[word]}m{word}\x1b[0m, was better"
    monkeypatch.setenv("NO_COLOR", "1")
    assert colored(said) == said
