# SPDX-License-Identifier: Apache-2.0
"""CLIP: a tiny one with random weights, saved as the published ones are."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from genmonitor.evaluation.encoders.clip import clip_encoders
from genmonitor.evaluation.encoders.frozen import FrozenEncoder

SIDE, WIDTH, LENGTH, SHARED = 32, 16, 12, 6


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("clip")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tower = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {"vocab_size": len(words), "max_position_embeddings": LENGTH, "bos_token_id": 0, "eos_token_id": 1}
    config = transformers.CLIPConfig(
        text_config=tower | text | {"pad_token_id": 1},
        vision_config=tower | {"image_size": SIDE, "patch_size": 8},
        projection_dim=SHARED,
    )
    torch.manual_seed(0)
    model = transformers.CLIPModel(config)
    model.save_pretrained(folder)
    settings = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}, "resample": 3}
    settings |= {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28], "image_processor_type": "CLIP"}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def test_clip_encodes_images_and_strings_into_one_space(clip_folder):
    images, texts = clip_encoders(clip_folder, value_range=(-1, 1))
    prompts = ["a cat", "a far longer prompt than the tiny model takes"]
    assert FrozenEncoder("output_encoder", images, 2)(2 * torch.rand(5, 3, 40, 32) - 1).shape == (5, SHARED)
    assert FrozenEncoder("prompt_encoder", texts, 2)(prompts).shape == (2, SHARED)


def test_clip_features_are_those_of_transformers(clip_folder):
    from transformers import CLIPModel, CLIPTokenizer

    images, texts = clip_encoders(clip_folder, value_range=(0, 1))
    model = CLIPModel.from_pretrained(clip_folder).eval()
    x = torch.rand(3, 3, SIDE, SIDE)
    tokens = CLIPTokenizer.from_pretrained(clip_folder)(["a cat", "dogs"], padding=True, return_tensors="pt")
    inputs = (x - torch.tensor([0.48, 0.46, 0.41])[:, None, None]) / torch.tensor([0.27, 0.26, 0.28])[:, None, None]
    with torch.no_grad():
        joint = model(pixel_values=inputs, **tokens)
    for ours, theirs in ((images(x), joint.image_embeds), (texts(["a cat", "dogs"]), joint.text_embeds)):
        assert torch.allclose(nn.functional.normalize(ours), theirs, atol=1e-5)


def test_clip_text_is_the_same_beside_a_longer_one(clip_folder):
    _, texts = clip_encoders(clip_folder, value_range=(0, 1))
    with torch.no_grad():
        assert torch.allclose(texts(["dog"]), texts(["dog", "a white cat"])[:1], atol=1e-5)
        assert not torch.allclose(texts(["dog"]), texts(["cat"]), atol=1e-3)


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (8, 8), (32, 33)])
def test_clip_prepares_images_as_its_own_preprocessor(clip_folder, shape):
    from PIL import Image
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    bits = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(bits).resize((9, 9)).resize(shape[::-1], Image.Resampling.BILINEAR))
    theirs = CLIPImageProcessorPil.from_pretrained(clip_folder)(Image.fromarray(smooth), return_tensors="pt")
    images, _ = clip_encoders(clip_folder, value_range=(-1, 1))
    ours = images.to_inputs(torch.from_numpy(smooth.copy()).permute(2, 0, 1)[None] / 127.5 - 1)
    assert ours.shape == (1, 3, SIDE, SIDE)
    # they round to 8 bits in between: half a step, and a step where their resizing rounds twice
    assert (ours - theirs["pixel_values"]).abs().max() < 1.6 / 255 / 0.26


def test_clip_sees_gray_images_and_cuts_values_out_of_range(clip_folder):
    images, _ = clip_encoders(clip_folder, value_range=(-1, 1))
    seen = images.to_inputs(torch.full((1, 1, SIDE, SIDE), 3.0)) * images.std + images.mean
    assert torch.allclose(seen, torch.ones(1, 3, SIDE, SIDE))


def test_clip_encoders_refuse_an_empty_value_range():
    with pytest.raises(ValueError, match=r"low < high, but got \(1, 1\)"):
        clip_encoders("nowhere", value_range=(1, 1))


def test_clip_encoders_say_that_a_folder_holds_no_model(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(OSError, match=str(tmp_path)):
        clip_encoders(tmp_path, value_range=(0, 1))


def test_clip_encoders_name_the_extra_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "genmonitor\[clip\]"'):
        clip_encoders("anything", value_range=(0, 1))


def test_evaluation_is_imported_without_loading_clip():
    code = """
import sys, torchmetrics  # torchmetrics loads what it finds of transformers
import genmonitor.evaluation
assert "transformers.models.clip.modeling_clip" not in sys.modules
from transformers import CLIPModel
assert "transformers.models.clip.modeling_clip" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
