# SPDX-License-Identifier: Apache-2.0
"""How far prompts are followed, in an evaluation of the diversity."""

from functools import partial

import pytest
import torch
from _helpers.evaluations import diversity_evaluator, evaluate, fit, message
from _helpers.pretrained import save_clip
from _helpers.processes import in_two_processes
from _helpers.two_ranks_of_prompts import in_one, in_two
from torch import nn
from torch.utils.data import Dataset

from genmonitor.encoders import image_encoder, text_encoder
from genmonitor.evaluation import ImageSet

COLORS = {"red": [1.0, 0, 0], "green": [0, 1.0, 0], "blue": [0, 0, 1.0]}
PROMPTS = [f"a {name} thing" for name in COLORS]


class Paint(nn.Module):
    """The mean color of images, in the space of `Words`."""

    space = "colors"

    def forward(self, images):
        return images.mean((2, 3)) + 0.1


class Words(nn.Module):
    """The color that a text names."""

    def __init__(self, space="colors"):
        super().__init__()
        self.space = space

    def forward(self, texts):
        return torch.tensor([COLORS[text.split()[1]] for text in texts])


class Captioned(Dataset):
    """Real images with their captions."""

    def __init__(self, n):
        self.images = painted(PROMPTS, n, seed=1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i], "caption": PROMPTS[i % 3]}


def painted(prompts, n, seed=0):
    """Draw images [n, 3, 4, 4] of prompts in turn, in their colors and some noise."""
    noise = 0.5 * torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    colors = Words()([prompts[i % len(prompts)] for i in range(n)])
    return noise + 0.5 * colors[:, :, None, None] * torch.rand(n, 1, 1, 1, generator=torch.Generator().manual_seed(9))


def fitted(real=None, words=None, n=60):
    evaluator = diversity_evaluator(
        prompts=PROMPTS, n_samples=n, output_encoder=Paint(), prompt_encoder=words or Words()
    )
    fit(evaluator, ImageSet() if real is None else real, painted(PROMPTS, n))
    return evaluator


def test_prompts_that_are_followed_have_a_score_beside_its_baselines():
    evaluator, history = fitted(Captioned(60)), []
    evaluation = evaluate(evaluator, painted(PROMPTS, 60), history)
    values = evaluation.values
    assert values["clip_score_shuffled"] < values["clip_score"] - 10
    assert values["real_clip_score"] == pytest.approx(values["clip_score"], abs=3)
    keys = ("clip_score", "clip_score_shuffled", "real_clip_score")
    assert set(keys) <= {spec.key for spec in evaluator.values()}
    said = message(evaluator, evaluation, history)
    assert f"CLIPScore {values['clip_score']:.3g} (shuffled prompts {values['clip_score_shuffled']:.3g}, real" in said
    assert "ignored" not in said


def test_an_ignored_prompt_is_named_and_first_in_the_table():
    evaluator, history = fitted(), []
    wrong = painted(["a red thing", "a red thing", "a blue thing"], 60)
    evaluation = evaluate(evaluator, wrong, history)
    first = evaluator.findings(evaluation, history)[0]
    assert first.text.startswith(
        "1 of 3 prompts may be ignored: the images of 'a green thing' are no closer to their prompt than"
    )
    assert (first.fine, first.measure) == (False, "clip_score")
    table = evaluator.presenter().tables(evaluation)["prompts"]
    assert table.rows[0][0] == "a green thing"
    assert "real_clip_score" not in evaluation.values


@pytest.mark.parametrize("space", ["another", None])
def test_encoders_that_share_no_space_are_not_compared(space):
    evaluator = fitted(words=Words(space))
    evaluation = evaluate(evaluator, painted(PROMPTS, 60), [])
    assert "clip_score" not in evaluation.values
    assert evaluation.followed is None
    assert evaluator.presenter().tables(evaluation) == {}


def test_clip_score_is_that_of_transformers_own_model_and_preprocessing(tmp_path):
    """CLIPScore of torchmetrics, up to 1.9, fails with transformers 5: the model's own embeddings are the reference."""
    transformers = pytest.importorskip("transformers")
    save_clip(tmp_path)
    prompts = ["a cat", "a white dog", "photo"]
    images = torch.randint(256, (12, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    encoders = {"output_encoder": image_encoder(tmp_path, (0, 1)), "prompt_encoder": text_encoder(tmp_path)}
    evaluator = diversity_evaluator(prompts=prompts, n_samples=12, **encoders)
    fit(evaluator, ImageSet(), images / 255)
    values = evaluate(evaluator, images / 255, []).values
    processor = transformers.CLIPProcessor.from_pretrained(tmp_path)
    inputs = processor(text=prompts, images=list(images), return_tensors="pt", padding=True)
    with torch.no_grad():
        found = transformers.CLIPModel.from_pretrained(tmp_path)(**inputs)
    cosines = 100 * torch.cosine_similarity(found.image_embeds[:, None], found.text_embeds[None], dim=2)
    own = torch.arange(12)[:, None] % 3 == torch.arange(3)
    assert values["clip_score"] == pytest.approx(float(cosines[own].mean()), abs=1e-3)
    assert values["clip_score_shuffled"] == pytest.approx(float(cosines[~own].mean()), abs=1e-3)


@pytest.mark.slow
def test_two_processes_find_what_one_does(tmp_path):
    """Of 49 samples one process has 24; the images of one prompt are wrong."""
    save_clip(tmp_path)
    one = in_one(tmp_path)
    assert {"clip_score", "clip_score_shuffled", "real_clip_score"} <= one["values"].keys()
    for found in in_two_processes(partial(in_two, tmp_path), tmp_path):
        assert found["values"] == pytest.approx(one["values"], rel=1e-5)
        for name in ("by_prompt", "of_others", "p_value"):
            torch.testing.assert_close(found[name], one[name], rtol=1e-5, atol=1e-6)
