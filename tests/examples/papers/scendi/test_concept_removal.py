# SPDX-License-Identifier: Apache-2.0
"""What is taken off an embedding can no longer be told from it; all else can."""

import concept_removal
import pytest
import torch
from concept_removal import classify, measure
from drawn_scenes import draw_scenes

OTHER = {"shape": "color", "color": "shape"}


def test_classifiers_find_classes_apart_and_guess_among_equal_ones():
    generator = torch.manual_seed(0)
    labels = [["a", "b", "c"][i % 3] for i in range(300)]
    means = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[torch.arange(300) % 3]
    noise = torch.randn(300, 2, generator=generator)
    assert classify(means + noise, labels, means - noise, labels) > (0.98, 0.9)
    assert max(classify(noise, labels, torch.randn(300, 2, generator=generator), labels)) < 0.45


@pytest.mark.slow
def test_gamma_removes_the_concept_named_and_plain_subtraction_does_not(space):
    rows = dict(measure(space, draw_scenes(1000, seed=1), draw_scenes(600, seed=2)))
    raw = rows["x, as it is"]
    assert min(raw[f"{how}_{of}"] for how in ("mean", "linear") for of in OTHER) > 0.9
    for concept, other in OTHER.items():
        removed, subtracted = rows[f"x - Γ* t, {concept} named"], rows[f"x - t, {concept} named"]
        for how in ("mean", "linear"):
            assert removed[f"{how}_{concept}"] < 0.42  # chance is 0.33
            assert removed[f"{how}_{other}"] > raw[f"{how}_{other}"] - 0.05
            assert subtracted[f"{how}_{concept}"] > 0.9
        assert removed[f"neighbors_{concept}"] < 0.6 < raw[f"neighbors_{concept}"]
        assert removed[f"neighbors_{other}"] > raw[f"neighbors_{other}"] - 0.1


@pytest.mark.slow
def test_script_prints_a_row_per_embedding_and_draws(run, tmp_path):
    said, _ = run(concept_removal, "-n", "250", "--out", str(tmp_path))
    assert said.count("named  ") == 4
    assert (tmp_path / "nearest.png").stat().st_size > 10_000
