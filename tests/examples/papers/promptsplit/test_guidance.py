# SPDX-License-Identifier: Apache-2.0
import sys

import guidance
import pytest
import torch
from drawn_scenes import bag_of_words
from guidance import PROMPTS, Target, decode, draw_latents, right_colors, sample, see, train

from genmonitor.functional import prompt_split

EACH = torch.arange(len(PROMPTS))


def words(prompts):
    return bag_of_words([PROMPTS[i] for i in prompts])


def test_latents_are_drawn_as_their_prompts_say():
    prompts = EACH.repeat_interleave(20)
    images = decode(draw_latents(prompts, torch.Generator().manual_seed(0)))
    assert images.shape == (180, 3, 32, 32)
    assert right_colors(images, prompts) == 1
    shuffled = decode(draw_latents(prompts, torch.Generator().manual_seed(0), right_colors=False))
    assert 0.2 < right_colors(shuffled, prompts) < 0.5


def test_energy_is_0_for_the_reference_and_has_a_gradient():
    prompts = EACH.repeat_interleave(5)
    latents = draw_latents(prompts, torch.Generator().manual_seed(0))
    target = Target.of(decode(latents), words(prompts))
    assert float(target.energy(decode(latents), words(prompts))) == pytest.approx(0, abs=1e-6)
    moved = (latents + 0.3).requires_grad_()
    target.energy(decode(moved), words(prompts)).backward()
    assert (moved.grad[:, :6].abs() > 0).any(1).all()  # what prompts speak of
    assert moved.grad.isfinite().all()


@pytest.mark.slow
def test_guidance_lowers_the_energy_towards_the_reference():
    known, prompts = EACH.repeat_interleave(20), EACH.repeat_interleave(5)
    target = Target.of(decode(draw_latents(known, torch.Generator().manual_seed(1))), words(known))
    model = train(1000)
    plain, _ = sample(model, prompts, target, strength=0, steps=40)
    guided, energies = sample(model, prompts, target, strength=100, steps=40)
    before, after = (float(target.energy(images, words(prompts))) for images in (plain, guided))
    assert after < before / 3
    assert energies[-1] < energies[0] / 3
    assert right_colors(guided, prompts) > right_colors(plain, prompts) + 0.2
    reference = (target.outputs, target.prompts)
    largest = [
        float(prompt_split(see(images), words(prompts), *reference, **target.kernels).eigenvalues.abs().max())
        for images in (plain, guided)
    ]
    assert largest[1] < largest[0] / 1.5
    assert len(guided.flatten(1).unique(dim=0)) == len(prompts)


def test_script_draws_before_and_after(monkeypatch, capsys, tmp_path):
    command = ["guidance.py", "--train-steps", "20", "--per-prompt", "2", "--steps", "4", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    guidance.main()
    said = capsys.readouterr().out
    assert said.count("in the color of the prompt") == said.count("energy 0.") == said.count("joint diversity 0.") == 2
    assert str(tmp_path / "guidance.png") in said
    assert (tmp_path / "guidance.png").stat().st_size > 10_000
