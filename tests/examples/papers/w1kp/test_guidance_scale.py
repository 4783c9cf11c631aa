# SPDX-License-Identifier: Apache-2.0
import sys

import guidance_scale
import pytest
import torch
from guidance_scale import decode, draw_latents, measure, sample, train

from genmonitor.functional import calibrate

prompts = torch.arange(9).repeat_interleave(8)


def test_the_trace_is_half_the_mean_squared_distance_of_pairs():
    """So W1KP with a calibration that is a straight line is one less a multiple of it."""
    images = decode(draw_latents(prompts, torch.Generator().manual_seed(0)))
    calibration = calibrate(images.flatten(1), prompts)
    _, trace = measure(images, prompts, calibration)
    pairs = [torch.pdist(images[prompts == p].flatten(1).double()).square().mean() for p in range(9)]
    assert trace == pytest.approx(float(sum(pairs)) / 18, rel=1e-5)


def test_samples_without_guidance_do_not_depend_on_the_prompt():
    model = train(2, seed=0)
    one, other = (sample(model, torch.full((4,), p), 0.0, 3, seed=0) for p in (0, 5))
    assert torch.equal(one, other)
    assert not torch.equal(*(sample(model, torch.full((4,), p), 1.0, 3, seed=0) for p in (0, 5)))


@pytest.mark.slow
def test_script_prints_a_row_for_each_scale(monkeypatch, capsys):
    arguments = ["guidance_scale.py", "--train-steps", "5", "--per-prompt", "3", "--steps", "3", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    guidance_scale.main()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("scenes drawn by the rules: W1KP 0.")
    assert [line.split()[0] for line in said[2:]] == ["0", "1", "2", "4", "8"]
