# SPDX-License-Identifier: Apache-2.0
"""Prompts that say more leave less open."""

import numpy as np
import open_modes
import pytest
from drawn_scenes import draw_scenes
from open_modes import fitted, say_more

pytestmark = pytest.mark.slow


def test_prompts_that_say_more_move_scendi_and_not_vendi(space):
    rows = say_more(space, draw_scenes(600, seed=0))
    assert len({row["vendi"] for row in rows}) == 1
    nothing, shape, both = (row["scendi"] for row in rows)
    assert nothing > 1.2 * shape > 1.2**2 * both
    shares = [row["prompt_share"] for row in rows]
    assert shares == sorted(shares)


def test_scendi_is_that_of_a_regression_on_the_prompts(space):
    scenes = draw_scenes(150, seed=2)
    x, t = space.images(scenes.images).double().numpy(), space.texts(scenes.prompts()).double().numpy()
    explained = t @ np.linalg.pinv(t, rcond=1e-3) @ x
    found = fitted(space, scenes, True, True).compute()
    for name, part in (("scendi", x - explained), ("scendi_prompt", explained)):
        values = np.linalg.svd(part, compute_uv=False) ** 2 / len(x)
        values = values[values > 1e-9]
        assert float(found[name]) == pytest.approx(np.exp((values * np.log(values.sum() / values)).sum()), rel=1e-4)


def test_modes_left_open_are_side_and_size(space):
    scenes = draw_scenes(600, seed=0)
    metric, texts = fitted(space, scenes, True, True), space.texts(scenes.prompts())
    scores = metric.mode_scores(space.images(scenes.images), texts, metric.modes(2))
    varied = np.stack([scenes.centers[:, 0].numpy(), scenes.radii.numpy()])
    with_scores = np.abs(np.corrcoef(scores.T.numpy(), varied)[:2, 2:])
    assert with_scores.max(1).min() > 0.7
    assert sorted(with_scores.argmax(1)) == [0, 1]


def test_script_prints_a_row_per_prompt_and_draws(run, tmp_path):
    said, _ = run(open_modes, "-n", "100", "--out", str(tmp_path))
    assert said.index('"a thing"') < said.index('"a square"') < said.index('"a red square"')
    assert (tmp_path / "modes.png").stat().st_size > 10_000
