# SPDX-License-Identifier: Apache-2.0
import sys

import prompt_specificity
import pytest
from prompt_specificity import draw, measure, named, prompts, text


@pytest.fixture(scope="module")
def measured():
    return measure(12)


def test_prompts_name_none_one_or_both():
    assert [text(*prompt) for prompt in prompts()[:6]] == [
        "a thing",
        "a square",
        "a cross",
        "a ring",
        "a red thing",
        "a red square",
    ]
    assert [sum(named(*prompt) == count for prompt in prompts()) for count in (0, 1, 2)] == [1, 6, 9]


def test_scenes_have_what_the_prompt_names():
    color, silhouette = draw("red", "ring", 20, seed=0).split([3, 90], dim=1)
    assert color.std(0).max() < 0.1 < draw(None, "ring", 20, seed=0)[:, :3].std(0).max()
    assert silhouette.shape == (20, 90)


def test_prompts_that_name_more_vary_less(measured):
    rows, curves = measured
    means = [
        sum(row.w1kp for row, prompt in zip(rows, prompts(), strict=True) if named(*prompt) == count) / total
        for count, total in ((0, 1), (1, 6), (2, 9))
    ]
    assert means == sorted(means)
    assert means[2] - means[0] > 0.2
    one, both = curves.values()
    assert one.images > both.images


def test_script_prints_and_draws(measured, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["prompt_specificity.py", "--out", str(tmp_path)])
    monkeypatch.setattr(prompt_specificity, "measure", lambda n: measured)
    prompt_specificity.main()
    said = capsys.readouterr().out
    assert said.count("of 12") == 16
    assert "W1KP rises with properties named  Spearman's rho 0." in said
    assert (tmp_path / "specificity-reusability.png").exists()
