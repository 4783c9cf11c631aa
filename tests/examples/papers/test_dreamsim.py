# SPDX-License-Identifier: Apache-2.0
import json

import dreamsim as module
import pytest
import torch
from dreamsim import IMAGENET, OPENAI, dreamsim
from torch.nn.functional import conv2d, gelu, layer_norm, linear, normalize
from tuned_dreamsim import CLIP_FILES, LORA, convert

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
    monkeypatch.setitem(module.DREAMSIM_PARTS, "dino", str(tmp_path / "dino"))
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


def converted(release):
    convert(release, release / "networks")
    return release / "networks"


IMAGES = torch.rand(3, 3, TINY_SIDE, TINY_SIDE, generator=torch.Generator().manual_seed(4))


def test_tuned_features_are_those_of_the_three_networks_with_what_was_added(release, weights, lora):
    encoder = dreamsim((0, 1), converted(release))
    with torch.no_grad():
        found = encoder(IMAGES)
    expected = joined([reference(weights[name], IMAGES, name, lora[name]) for name in weights])
    assert torch.allclose(found, expected, atol=1e-5)
    assert encoder.num_features == found.shape[1] == TINY_WIDTH + 2 * TINY_SHARED
    untuned = joined([reference(weights[name], IMAGES, name) for name in weights])
    assert not torch.allclose(found, untuned, atol=1e-2)
