# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from _helpers.modules import Linear
from torch import nn

from genmonitor.evaluation.encoders import FrozenEncoder, OneHot, clip_encoders, pixels
from genmonitor.evaluation.data.prompts import Prompts, prompted_sampler


def test_pixels_are_the_images_values_in_reading_order():
    images = torch.arange(24.0).view(2, 3, 2, 2)
    assert torch.equal(pixels(images)[1], torch.arange(12.0, 24.0))


def test_one_hot_has_a_column_per_label_that_occurs_in_rising_order():
    encoded = OneHot([9, 2, 9, 5])(torch.tensor([5, 9, 2, 2]))
    assert encoded.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]]


def test_prompts_are_repeated_in_their_order():
    assert Prompts(["a", "b", "c"]).of(range(2, 7)) == ["c", "a", "b", "c", "a"]
    labels = Prompts(torch.tensor([4, 1])).of([0, 1, 2])
    assert labels.dtype == torch.int64
    assert labels.tolist() == [4, 1, 4]
    assert Prompts(np.array([4, 1])).values == [4, 1]


@pytest.mark.parametrize("prompts", ["a cat", [], ["a", 1], [0.5], [True, False], 3, torch.zeros(2, 2), [None]])
def test_other_prompts_are_refused(prompts):
    with pytest.raises(ValueError, match="list of strings or of integer class labels"):
        Prompts(prompts)


def test_samples_of_prompts_come_from_the_argument_then_from_the_module():
    class Prompted(Linear):
        def sample_prompts(self, prompts):
            return "method", prompts

    module = Prompted()
    assert prompted_sampler(None, module)(["a"]) == ("method", ["a"])
    assert prompted_sampler(lambda m, prompts: (m, prompts), module)(["a"]) == (module, ["a"])
    with pytest.raises(ValueError, match=r"Linear has no method `sample_prompts\(prompts\)`.*sample_fn"):
        prompted_sampler(None, Linear())


def test_a_module_is_frozen_and_runs_in_eval_mode_without_gradients():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Dropout(0.9)).train()
    encoder = FrozenEncoder("output_encoder", net)
    encoder.prepare(Linear())
    images = torch.randn(7, 1, 8, 8, requires_grad=True)
    features = encoder(images, batch_size=3)
    assert features.shape == (7, 5)
    assert not features.requires_grad
    assert not any(part.training for part in net.modules())
    assert not any(parameter.requires_grad for parameter in net.parameters())
    assert torch.allclose(features, net[1](images.flatten(1)), atol=1e-6)


def test_an_encoder_gets_each_sample_once_in_batches():
    sizes = []

    def encoder(images):
        sizes.append(len(images))
        return images.flatten(1)

    images = torch.randn(7, 1, 2, 2)
    assert torch.equal(FrozenEncoder("output_encoder", encoder)(images, batch_size=3), images.flatten(1))
    assert sizes == [3, 3, 1]


def test_strings_are_encoded_in_batches():
    features = FrozenEncoder("prompt_encoder", lambda texts: torch.tensor([[float(len(t))] for t in texts]))
    assert features(["a", "bb", "ccc"], batch_size=2).flatten().tolist() == [1, 2, 3]


def test_an_encoder_may_not_share_parameters_with_the_trained_module():
    module = Linear()
    with pytest.raises(ValueError, match=r"`output_encoder` to be apart.*copy\.deepcopy"):
        FrozenEncoder("output_encoder", nn.Sequential(module.net)).prepare(module)
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda x: x, r"what output_encoder returns` of shape \[N, D\], but got \[4, 1, 2, 2\]"),
        (lambda x: x.flatten(1)[:1], "one row per sample, but got 1 for 4"),
        (lambda x: x.flatten(1) / 0, "what output_encoder returns` to be finite, but 16"),
        (lambda x: x.flatten(1).numpy(), "what output_encoder returns` to be a torch.Tensor"),
    ],
)
def test_what_an_encoder_returns_is_checked(encoder, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FrozenEncoder("output_encoder", encoder)(torch.ones(4, 1, 2, 2), batch_size=9)


def test_an_encoder_must_be_callable():
    with pytest.raises(TypeError, match="`prompt_encoder` to be a callable"):
        FrozenEncoder("prompt_encoder", "clip")


# CLIP: a tiny one with random weights, saved as the published ones are

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


def test_clip_embeds_images_and_strings_into_one_space(clip_folder):
    images, texts = clip_encoders(clip_folder, value_range=(-1, 1))
    assert FrozenEncoder("output_encoder", images)(2 * torch.rand(5, 3, 40, 32) - 1, 2).shape == (5, SHARED)
    assert FrozenEncoder("prompt_encoder", texts)(["a cat", "a far longer prompt than the tiny model takes"], 2).shape == (
        2,
        SHARED,
    )


def test_clip_embeddings_are_those_of_transformers(clip_folder):
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


def test_a_text_is_the_same_alone_and_beside_a_longer_one(clip_folder):
    _, texts = clip_encoders(clip_folder, value_range=(0, 1))
    with torch.no_grad():
        assert torch.allclose(texts(["dog"]), texts(["dog", "a white cat"])[:1], atol=1e-5)
        assert not torch.allclose(texts(["dog"]), texts(["cat"]), atol=1e-3)


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (8, 8), (32, 33)])
def test_clip_sees_images_as_its_own_preprocessor_prepares_them(clip_folder, shape):
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


def test_grey_images_and_values_out_of_range_are_seen_as_grey_and_cut(clip_folder):
    images, _ = clip_encoders(clip_folder, value_range=(-1, 1))
    seen = images.to_inputs(torch.full((1, 1, SIDE, SIDE), 3.0)) * images.std + images.mean
    assert torch.allclose(seen, torch.ones(1, 3, SIDE, SIDE))


def test_an_empty_value_range_is_refused():
    with pytest.raises(ValueError, match=r"low < high, but got \(1, 1\)"):
        clip_encoders("nowhere", value_range=(1, 1))


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "genmonitor\[clip\]"'):
        clip_encoders("anything", value_range=(0, 1))


def test_importing_the_encoders_does_not_load_clip():
    code = """
import sys, lightning, torchmetrics  # torchmetrics loads what it finds of transformers
import genmonitor.evaluation.encoders
assert "transformers.models.clip.modeling_clip" not in sys.modules
from transformers import CLIPModel
assert "transformers.models.clip.modeling_clip" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
