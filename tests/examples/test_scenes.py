# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
import scenes
import torch
from scenes import PROMPTS, CaptionedScenes, TextDDPM, describe_small, make_monitors

from genmonitor.images.seeding import SeededRows

SAYS = ["ignore:.*LeafSpec", "ignore:.*does not have many workers", "ignore:(Pixel|Div|Dis).{10,30}(only|the baseline)"]


def test_scenes_are_small_and_captioned():
    data = CaptionedScenes(30, seed=0)
    assert data[0]["image"].shape == (3, 16, 16)
    assert {data[i]["caption"] for i in range(30)} <= set(PROMPTS)
    assert data.images.abs().max() <= 1
    assert describe_small(data.images).shape == (30, 93)
    assert not torch.equal(data.images, CaptionedScenes(30, seed=1).images)


def test_prompts_lead_the_model_and_withheld_ones_do_not():
    torch.manual_seed(0)
    model = TextDDPM(widths=(8, 16), sampling_steps=2).eval().requires_grad_(False)

    def draw(*prompts):
        with SeededRows([1] * len(prompts)):
            return model.sample_prompts(list(prompts))

    red, again, blue = draw("a red ring", "a red ring", "a blue ring")
    torch.testing.assert_close(red, again)
    assert (red - blue).abs().max() > 1e-4
    words = model.counted(["a red ring", "a blue ring"])
    assert model.withhold(words, torch.tensor([True, False])).tolist() == [[0.0] * 8, words[1].tolist()]


@pytest.mark.slow
@pytest.mark.filterwarnings(*SAYS)
def test_script_runs_all_monitors_on_one_set_of_samples(monkeypatch, tmp_path, capsys):
    drawn, monitors = [], make_monitors(36, 1)

    class Small(TextDDPM):
        def __init__(self):
            super().__init__(widths=(8, 16), sampling_steps=2)

        def sample_prompts(self, prompts):
            if self.global_step:  # none yet where evaluators are only fitted
                drawn.extend(prompts)
            return super().sample_prompts(prompts)

    monkeypatch.setattr(scenes, "TextDDPM", Small)
    monkeypatch.setattr(scenes, "make_monitors", lambda *args: monitors)
    words = ["scenes.py", "--epochs", "2", "--images", "130", "--n-samples", "36", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", words)
    scenes.main()
    assert drawn == 2 * (PROMPTS * 4)
    assert [len(monitor.history) for monitor in monitors] == [2, 2, 2]
    figures = tmp_path / "run" / "version_0" / "genmonitor"
    assert str(figures) in capsys.readouterr().out
    for name in ("cms_clusters", "disagreement_modes"):
        assert [*figures.glob(f"{name}*.png")]
