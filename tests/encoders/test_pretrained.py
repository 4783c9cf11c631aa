# SPDX-License-Identifier: Apache-2.0
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _helpers.pretrained import MEAN, SHARED, SHORT, SIDE, STD, WIDTH, save_clip, save_dinov2, save_siglip
from torch import nn
from torch.nn.functional import normalize

from genmonitor.encoders import image_encoder
from genmonitor.encoders.frozen import FrozenEncoder
from genmonitor.encoders.pretrained import IMAGE_MODELS, ImageFeatures


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    save = {"dinov2": save_dinov2, "clip": save_clip, "siglip": save_siglip}
    folders = {name: save(tmp_path_factory.mktemp(name)) for name, save in save.items()}
    return folders | {"siglip2": save_siglip(tmp_path_factory.mktemp("siglip2"), resample=2)}


def normalized(x):
    return (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def test_dinov2_features_are_the_class_token_of_transformers(folders):
    from transformers import Dinov2Model

    encoder, model = image_encoder(folders["dinov2"], (0, 1)), Dinov2Model.from_pretrained(folders["dinov2"]).eval()
    x = torch.rand(3, 3, SHORT, SHORT)
    with torch.no_grad():
        cropped = image_encoder(folders["dinov2"], (0, 1), crop=True)
        expected = model(pixel_values=normalized(x[:, :, 2:30, 2:30])).last_hidden_state[:, 0]
        assert torch.allclose(cropped(x), expected, atol=1e-5)
        small = torch.rand(3, 3, SIDE, SIDE)
        expected = model(pixel_values=normalized(small)).last_hidden_state[:, 0]
        assert torch.allclose(encoder(small), expected, atol=1e-5)
    assert encoder.num_features == WIDTH
    assert not encoder.training


@pytest.mark.parametrize(
    ("name", "crop", "sees_edges"),
    [("dinov2", None, True), ("dinov2", True, False), ("clip", None, False), ("clip", False, True)],
)
def test_edges_are_seen_without_a_crop(folders, name, crop, sees_edges):
    encoder = image_encoder(folders[name], (0, 1), crop=crop)
    x = torch.zeros(1, 3, 60, 90)
    edges = x.clone()
    edges[..., :3] = 1
    prepared = [encoder.to_inputs(images) for images in (x, edges)]
    assert prepared[0].shape == (1, 3, encoder.side, encoder.side)
    assert torch.equal(*prepared) != sees_edges


def test_clip_features_are_those_of_transformers(folders):
    from transformers import CLIPModel

    encoder, model = image_encoder(folders["clip"], (0, 1)), CLIPModel.from_pretrained(folders["clip"]).eval()
    x = torch.rand(3, 3, SHORT, SHORT)
    with torch.no_grad():
        expected = model(pixel_values=normalized(x), input_ids=torch.tensor([[0, 5, 1]])).image_embeds
        assert torch.allclose(normalize(encoder(x)), expected, atol=1e-5)
    assert encoder.num_features == SHARED


def test_siglip_features_are_those_of_transformers(folders):
    from transformers import SiglipModel

    encoder, model = image_encoder(folders["siglip"], (0, 1)), SiglipModel.from_pretrained(folders["siglip"]).eval()
    x = torch.rand(3, 3, SIDE, SIDE)
    with torch.no_grad():
        expected = model.vision_model(pixel_values=normalized(x)).pooler_output
        assert torch.allclose(encoder(x), expected, atol=1e-5)
    assert encoder.num_features == WIDTH


@pytest.mark.parametrize("name", ["dinov2", "clip", "siglip", "siglip2"])
@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (8, 8), (32, 33)])
def test_images_are_prepared_as_by_its_own_preprocessor(folders, name, shape):
    from PIL import Image
    from transformers import AutoImageProcessor

    bits = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(bits).resize(shape[::-1], Image.Resampling.BILINEAR))
    processor = AutoImageProcessor.from_pretrained(folders[name])
    if "Pil" not in type(processor).__name__:
        pytest.skip("where torchvision works, transformers resizes by it, without the steps that Pillow rounds to")
    theirs = processor(Image.fromarray(smooth), return_tensors="pt")["pixel_values"]
    encoder = image_encoder(folders[name], (-1, 1), crop=True)
    ours = encoder.to_inputs(torch.from_numpy(smooth.copy()).permute(2, 0, 1)[None] / 127.5 - 1)
    assert ours.shape == theirs.shape == (1, 3, encoder.side, encoder.side)
    # they round to 8 bits in between: half a step, and a step where their resizing rounds twice
    assert (ours - theirs).abs().max() < 1.6 / 255 / 0.26


def test_gray_images_are_seen_and_the_value_range_counts(folders):
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        zero_to_one, around_zero = (image_encoder(folders["dinov2"], limits) for limits in ((0, 1), (-1, 1)))
        assert torch.allclose(zero_to_one(x), around_zero(2 * x - 1), atol=1e-5)
    seen = around_zero.to_inputs(torch.full((1, 1, SHORT, SHORT), 3.0)) * around_zero.std + around_zero.mean
    assert torch.allclose(seen, torch.ones(1, 3, SIDE, SIDE))


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_short_names_are_looked_for_on_this_machine_only(name, monkeypatch):
    pytest.importorskip("transformers")
    asked = []
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *what: asked.append(what))
    with pytest.raises(FileNotFoundError, match=f"Run: hf download {IMAGE_MODELS[name]}"):
        image_encoder(name, (0, 1))
    assert asked == [(IMAGE_MODELS[name], "config.json")]


def test_a_folder_without_a_model_is_named(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        image_encoder(tmp_path, (0, 1))


def test_a_model_of_another_kind_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"DINOv2, CLIP or SigLIP model, but .* is of kind 'vit'"):
        image_encoder(tmp_path, (0, 1))


def test_a_name_alone_is_no_encoder():
    with pytest.raises(TypeError, match=r'got str. .*image_encoder\("dinov2", value_range=\(-1, 1\)\)'):
        FrozenEncoder("output_encoder", "dinov2", 10)


def test_the_extra_is_named_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "genmonitor\[clip\]"'):
        image_encoder("dinov2", (0, 1))


def test_an_empty_value_range_is_refused():
    with pytest.raises(ValueError, match=r"low < high, but got \(1, 1\)"):
        image_encoder("dinov2", (1, 1))


SQUARE = {"size": {"height": 4, "width": 4}, "crop_size": None, "resample": 2}
PREPARED = SimpleNamespace(**SQUARE, image_mean=[0.5] * 3, image_std=[0.25] * 3)


def test_images_of_other_than_1_or_3_channels_are_refused():
    encoder = ImageFeatures(nn.Identity(), nn.Identity(), 3, PREPARED, (0.0, 1.0))
    for channels in (1, 3):
        torch.testing.assert_close(encoder.to_inputs(torch.ones(2, channels, 5, 5)), torch.full((2, 3, 4, 4), 2.0))
    for channels in (2, 4):
        with pytest.raises(ValueError, match=rf"1 or 3 channels for a pretrained encoder, but got {channels}"):
            encoder.to_inputs(torch.ones(2, channels, 5, 5))
