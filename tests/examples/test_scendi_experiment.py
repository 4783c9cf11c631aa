# SPDX-License-Identifier: Apache-2.0
"""What the paper's controlled experiments show, on drawn scenes."""

import sys

import numpy as np
import pytest
import scendi_experiment
import torch
from drawn_scenes import bag_of_words, describe, draw_scenes
from scendi_experiment import add_classes, measure, say_more


def column(rows, name):
    return [row[name] for row in rows]


def level(values, within):
    return max(values) <= (1 + within) * min(values)


def rises(values, by):
    return values[0] < values[1] < values[2] and values[2] > (1 + by) * values[0]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("attribute", ["shape", "color"])
def test_classes_that_prompts_name_raise_vendi_but_not_scendi(attribute, seed):
    rows = add_classes(attribute, named=True, seed=seed)
    assert rises(column(rows, "vendi"), by=0.2)
    assert level(column(rows, "scendi"), within=0.02)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("attribute", ["shape", "color"])
def test_classes_that_prompts_do_not_name_raise_both(attribute, seed):
    rows = add_classes(attribute, named=False, seed=seed)
    assert rises(column(rows, "vendi"), by=0.2)
    assert rises(column(rows, "scendi"), by=0.15)


@pytest.mark.parametrize("attribute", ["shape", "color"])
def test_plain_subtraction_fails_where_least_squares_works(attribute):
    rows = add_classes(attribute, named=True)
    assert level(column(rows, "left_by_gamma"), within=0.08)
    assert rises(column(rows, "left_by_identity"), by=0.6)


def test_prompts_that_say_more_move_scendi_and_not_vendi():
    rows = say_more()
    assert len(set(column(rows, "vendi"))) == 1
    nothing, shape, both = column(rows, "scendi")
    assert nothing > 1.1 * shape > 1.1 * 1.1 * both
    assert column(rows, "prompt_share") == sorted(column(rows, "prompt_share"))
    # what is left with both named is what never is: place and size, as if there were one shape and one color only
    alone = measure(draw_scenes(2000, 0, ["ring"], ["red"]), False, False)
    assert both == pytest.approx(alone["scendi"], rel=0.02)


def test_scendi_is_that_of_a_regression_on_the_words():
    scenes = draw_scenes(150, seed=2)
    x, t = describe(scenes.images).double().numpy(), bag_of_words(scenes.prompts()).double().numpy()
    x, t = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, t))
    ours = measure(scenes, name_shape=True, name_color=True)
    explained = t @ np.linalg.pinv(t, rcond=1e-3) @ x
    for name, part in (("scendi", x - explained), ("scendi_prompt", explained)):
        values = np.linalg.svd(part, compute_uv=False) ** 2 / len(x)
        values = values[values > 1e-9]
        assert ours[name] == pytest.approx(np.exp((values * np.log(values.sum() / values)).sum()), rel=1e-4)
    assert ours["prompt_share"] == pytest.approx((explained**2).sum() / len(x), rel=1e-4)


def test_script_prints_both_tables_and_draws_the_modes(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["scendi_experiment.py", "--out", str(tmp_path)])
    scendi_experiment.main()
    said = capsys.readouterr().out
    assert said.count("Vendi rises; Scendi rises only where prompts do not name") == 2
    assert '"a red square"' in said
    assert (tmp_path / "modes.png").stat().st_size > 10_000
    assert str(tmp_path / "modes.png") in said


def test_words_lie_in_directions_of_their_own():
    words = scendi_experiment.into_output_space(torch.eye(8))
    assert torch.allclose(words @ words.T, torch.eye(8), atol=1e-5)
