# SPDX-License-Identifier: Apache-2.0
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _helpers.pretrained import MEAN, SHARED, SHORT, SIDE, STD, WIDTH, save_clip, save_dinov2, save_siglip
from torch import nn
from torch.nn.functional import conv2d, gelu, layer_norm, linear, normalize

from genmonitor.encoders import hub, image_encoder
from genmonitor.encoders.frozen import FrozenEncoder
from genmonitor.encoders.hub import IMAGE_MODELS
from genmonitor.encoders.vision import CLIP_FILES, IMAGENET, LORA, OPENAI, ImageFeatures, dreamsim


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
    assert "Pil" in type(processor).__name__
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


TINY_SIDE, PATCH, TINY_WIDTH, LAYERS, TINY_SHARED, RANK = 32, 16, 128, 2, 6, 3
TUNED = {"r": RANK, "lora_alpha": 0.5, "target_modules": ["qkv"]}


def random_tower(seed, clip):
    """Return the weights of a vision transformer under the names of timm."""
    g = torch.Generator().manual_seed(seed)
    shapes = {"cls_token": (1, 1, TINY_WIDTH), "pos_embed": (1, 1 + (TINY_SIDE // PATCH) ** 2, TINY_WIDTH)}
    shapes |= {"patch_embed.proj.weight": (TINY_WIDTH, 3, PATCH, PATCH), "patch_embed.proj.bias": (TINY_WIDTH,)}
    norms = ["norm", *(["pos_drop"] if clip else [])]
    for i in range(LAYERS):
        norms += [f"blocks.{i}.norm1", f"blocks.{i}.norm2"]
        for name, rows, columns in (
            ("attn.qkv", 3 * TINY_WIDTH, TINY_WIDTH),
            ("attn.proj", TINY_WIDTH, TINY_WIDTH),
            ("mlp.fc1", 40, TINY_WIDTH),
            ("mlp.fc2", TINY_WIDTH, 40),
        ):
            shapes |= {f"blocks.{i}.{name}.weight": (rows, columns), f"blocks.{i}.{name}.bias": (rows,)}
    shapes |= {f"{name}.{what}": (TINY_WIDTH,) for name in norms for what in ("weight", "bias")}
    shapes |= {"proj": (TINY_WIDTH, TINY_SHARED)} if clip else {}
    return {name: 0.2 * torch.randn(shape, generator=g) for name, shape in shapes.items()}


def reference(weights, images, name, lora=None):
    """Run a network as DreamSim does, with what was added to its joint query, key and value weights."""
    w, looks = weights, IMAGENET if name == "dino" else OPENAI
    eps = 1e-6 if name == "dino" else 1e-5
    mean, std = (torch.tensor(looks[key])[:, None, None] for key in ("image_mean", "image_std"))
    x = conv2d((images - mean) / std, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=PATCH)
    x = torch.cat([w["cls_token"].expand(len(x), -1, -1), x.flatten(2).mT], dim=1) + w["pos_embed"]

    def norm(x, key):
        return layer_norm(x, (TINY_WIDTH,), w[f"{key}.weight"], w[f"{key}.bias"], eps)

    def affine(x, key, add=0):
        return linear(x, w[f"{key}.weight"] + add, w[f"{key}.bias"])

    x = x if name == "dino" else norm(x, "pos_drop")
    for i in range(LAYERS):
        add = 0 if lora is None else TUNED["lora_alpha"] / RANK * lora[i]["B"] @ lora[i]["A"]
        qkv = affine(norm(x, f"blocks.{i}.norm1"), f"blocks.{i}.attn.qkv", add)
        q, k, v = (part.unflatten(2, (2, 64)).transpose(1, 2) for part in qkv.chunk(3, dim=2))
        attended = ((q @ k.mT / 64**0.5).softmax(3) @ v).transpose(1, 2).flatten(2)
        x = x + affine(attended, f"blocks.{i}.attn.proj")
        h = affine(norm(x, f"blocks.{i}.norm2"), f"blocks.{i}.mlp.fc1")
        x = x + affine(h * torch.sigmoid(1.702 * h) if name == "clip" else gelu(h), f"blocks.{i}.mlp.fc2")
    return x[:, 0] if name == "dino" else norm(x, "norm")[:, 0] @ w["proj"]


def joined(features):
    features = torch.cat(features, dim=1)
    return normalize(features - features.mean(1, keepdim=True))


@pytest.fixture(scope="module")
def weights():
    return {name: random_tower(i, name != "dino") for i, name in enumerate(("dino", "clip", "open_clip"))}


@pytest.fixture(scope="module")
def lora():
    g = torch.Generator().manual_seed(9)
    a, b = ((RANK, TINY_WIDTH), (3 * TINY_WIDTH, RANK))
    layers = [{"A": torch.randn(a, generator=g), "B": torch.randn(b, generator=g)} for _ in range(3 * LAYERS)]
    return {name: layers[i * LAYERS :][:LAYERS] for i, name in enumerate(("dino", "clip", "open_clip"))}


@pytest.fixture
def release(weights, lora, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    for name, file in CLIP_FILES.items():
        torch.save({"state_dict": weights[name]}, tmp_path / file)
    (tmp_path / LORA).mkdir()
    (tmp_path / LORA / "adapter_config.json").write_text(json.dumps(TUNED))
    key = "base_model.model.extractor_list.{}.model.blocks.{}.attn.qkv.lora_{}.weight"
    torch.save(
        {
            key.format(n, i, letter): lora[name][i][letter]
            for n, name in enumerate(weights)
            for i in range(LAYERS)
            for letter in "AB"
        },
        tmp_path / LORA / "adapter_model.bin",
    )
    config = transformers.ViTConfig(
        hidden_size=TINY_WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=40,
        image_size=TINY_SIDE,
        patch_size=PATCH,
        layer_norm_eps=1e-6,
    )
    old, model = weights["dino"], transformers.ViTModel(config, add_pooling_layer=False)
    model.load_state_dict({name: old[theirs][rows] for name, theirs, rows in dino_names()})
    model.save_pretrained(tmp_path / "dino")
    monkeypatch.setitem(hub.DREAMSIM_PARTS, "dino", str(tmp_path / "dino"))
    return tmp_path


def dino_names():
    """Name each weight of transformers' DINO with that of timm, and its rows there."""
    whole = slice(None)
    yield "embeddings.cls_token", "cls_token", whole
    yield "embeddings.position_embeddings", "pos_embed", whole
    for what in ("weight", "bias"):
        yield f"embeddings.patch_embeddings.projection.{what}", f"patch_embed.proj.{what}", whole
        yield f"layernorm.{what}", f"norm.{what}", whole
        for i in range(LAYERS):
            for n, letter in enumerate("qkv"):
                rows = slice(n * TINY_WIDTH, (n + 1) * TINY_WIDTH)
                yield f"layers.{i}.attention.{letter}_proj.{what}", f"blocks.{i}.attn.qkv.{what}", rows
            for ours, theirs in (
                ("attention.o_proj", "attn.proj"),
                ("layernorm_before", "norm1"),
                ("layernorm_after", "norm2"),
                ("mlp.fc1", "mlp.fc1"),
                ("mlp.fc2", "mlp.fc2"),
            ):
                yield f"layers.{i}.{ours}.{what}", f"blocks.{i}.{theirs}.{what}", whole


IMAGES = torch.rand(3, 3, TINY_SIDE, TINY_SIDE, generator=torch.Generator().manual_seed(4))


def test_tuned_features_are_those_of_the_three_networks_with_what_was_added(release, weights, lora):
    encoder = image_encoder(release, (0, 1))
    with torch.no_grad():
        found = encoder(IMAGES)
    expected = joined([reference(weights[name], IMAGES, name, lora[name]) for name in weights])
    assert torch.allclose(found, expected, atol=1e-5)
    assert encoder.num_features == found.shape[1] == TINY_WIDTH + 2 * TINY_SHARED
    untuned = joined([reference(weights[name], IMAGES, name) for name in weights])
    assert not torch.allclose(found, untuned, atol=1e-2)


def test_parts_can_be_left_out_and_images_are_made_square(release, weights, lora):
    with torch.no_grad():
        found = dreamsim((-1, 1), release, ["clip"])(2 * IMAGES.repeat_interleave(3, dim=2) - 1)
    assert torch.allclose(found, joined([reference(weights["clip"], IMAGES, "clip", lora["clip"])]), atol=0.05)
    assert found.shape == (3, TINY_SHARED)


def test_the_networks_before_tuning_come_from_the_hub(release, weights, monkeypatch):
    with torch.no_grad():
        found = dreamsim((0, 1), parts=["dino"])(IMAGES)
        assert torch.allclose(found, joined([reference(weights["dino"], IMAGES, "dino")]), atol=1e-5)
    monkeypatch.setitem(hub.DREAMSIM_PARTS, "clip", "nobody/has-this")
    with pytest.raises(FileNotFoundError, match="Run: hf download nobody/has-this"):
        image_encoder("dreamsim", (0, 1))


def test_a_missing_file_is_named(release):
    (release / CLIP_FILES["open_clip"]).unlink()
    with pytest.raises(FileNotFoundError, match=str(release)):
        image_encoder(release, (0, 1))
    (release / LORA / "adapter_model.bin").unlink()
    with pytest.raises(FileNotFoundError, match=str(release)):
        dreamsim((0, 1), release, ["dino"])


def test_additions_to_other_weights_are_refused(release):
    torch.save({"base_model.model.mlp.lora_A.weight": torch.zeros(1)}, release / LORA / "adapter_model.bin")
    with pytest.raises(FileNotFoundError) as raised:
        dreamsim((0, 1), release)
    assert "attn.qkv of 3 networks, but got base_model.model.mlp" in str(raised.value.__cause__)


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="`parts` to be one of 'dino', 'clip', 'open_clip', but got 'mae'"):
        dreamsim((0, 1), parts=["mae"])
