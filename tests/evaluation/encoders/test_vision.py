# SPDX-License-Identifier: Apache-2.0
import sys

import numpy as np
import pytest
import torch
from _helpers.vision import MEAN, SIDE, STD, WIDTH, save_dinov2

from genmonitor.evaluation import image_encoder
from genmonitor.evaluation.encoders.vision import PRETRAINED


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_dinov2(tmp_path_factory.mktemp("dinov2"))


def test_features_are_the_class_token_of_transformers(folder):
    from transformers import Dinov2Model

    encoder, model = image_encoder(folder, (0, 1)), Dinov2Model.from_pretrained(folder).eval()
    x = torch.rand(3, 3, 32, 32)
    inputs = (x[:, :, 2:30, 2:30] - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    with torch.no_grad():
        expected = model(pixel_values=inputs).last_hidden_state[:, 0]
        assert torch.allclose(encoder(x), expected, atol=1e-5)
    assert encoder.num_features == WIDTH
    assert not encoder.training


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (8, 8), (32, 33)])
def test_images_are_prepared_as_by_its_own_preprocessor(folder, shape):
    from PIL import Image
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil

    bits = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(bits).resize(shape[::-1], Image.Resampling.BILINEAR))
    theirs = BitImageProcessorPil.from_pretrained(folder)(Image.fromarray(smooth), return_tensors="pt")["pixel_values"]
    ours = image_encoder(folder, (-1, 1)).to_inputs(torch.from_numpy(smooth.copy()).permute(2, 0, 1)[None] / 127.5 - 1)
    assert ours.shape == theirs.shape == (1, 3, SIDE, SIDE)
    assert (ours - theirs).abs().max() < 1.6 / 255 / 0.26  # they round to 8 bits in between


def test_gray_images_are_seen_and_the_value_range_counts(folder):
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        assert torch.allclose(image_encoder(folder, (0, 1))(x), image_encoder(folder, (-1, 1))(2 * x - 1), atol=1e-5)


@pytest.mark.parametrize("name", PRETRAINED)
def test_short_names_are_looked_for_on_this_machine_only(name, monkeypatch, tmp_path):
    transformers = pytest.importorskip("transformers")
    asked = []

    def absent(where, **settings):
        asked.append((where, settings))
        raise OSError("not here")

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", absent)
    with pytest.raises(FileNotFoundError, match=f"Run: hf download {PRETRAINED[name]}"):
        image_encoder(name, (0, 1))
    assert asked == [(PRETRAINED[name], {"local_files_only": True})]


def test_a_folder_without_a_model_is_named(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        image_encoder(tmp_path, (0, 1))


def test_a_model_of_another_kind_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"DINOv2 or CLIP model, but .* is of kind 'vit'"):
        image_encoder(tmp_path, (0, 1))


def test_the_extra_is_named_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "genmonitor\[clip\]"'):
        image_encoder("dinov2", (0, 1))


def test_an_empty_value_range_is_refused():
    with pytest.raises(ValueError, match=r"low < high, but got \(1, 1\)"):
        image_encoder("dinov2", (1, 1))
