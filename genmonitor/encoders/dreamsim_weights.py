# SPDX-License-Identifier: Apache-2.0
"""DreamSim's own files: two CLIP towers under the names of timm, and low-rank additions to all three networks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HEAD_WIDTH = 64
"""Of every ViT-B."""
LORA_KEY = re.compile(r"extractor_list\.(\d+)\.model\.blocks\.(\d+)\.attn\.qkv\.lora_([AB])\.weight$")
LAYER_NAMES = {
    "norm1": "layer_norm1",
    "attn.proj": "self_attn.out_proj",
    "norm2": "layer_norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def read_clip(transformers: Any, file: Path, quick: bool) -> Any:
    """Return the image side of a CLIP whose weights have the names of timm.

    Args:
        transformers: the package.
        file: has `state_dict`.
        quick: whether its activation is OpenAI's approximation of a GELU.

    Raises:
        OSError: if there is no such file.
    """
    old = torch.load(file, map_location="cpu", weights_only=True)["state_dict"]
    patches, proj = old["patch_embed.proj.weight"], old["proj"]
    layers = 1 + max(int(name.split(".")[1]) for name in old if name.startswith("blocks."))
    config = transformers.CLIPVisionConfig(
        hidden_size=len(patches),
        intermediate_size=len(old["blocks.0.mlp.fc1.weight"]),
        projection_dim=proj.shape[1],
        num_hidden_layers=layers,
        num_attention_heads=len(patches) // HEAD_WIDTH,
        image_size=round((old["pos_embed"].shape[1] - 1) ** 0.5) * patches.shape[-1],
        patch_size=patches.shape[-1],
        hidden_act="quick_gelu" if quick else "gelu",
    )
    positions = old["pos_embed"][0].clone()
    if "patch_embed.proj.bias" in old:  # transformers has none; each patch gets its position added, so it fits there
        positions[1:] += old["patch_embed.proj.bias"]
    new = {
        "vision_model.embeddings.class_embedding": old["cls_token"].flatten(),
        "vision_model.embeddings.patch_embedding.weight": patches,
        "vision_model.embeddings.position_embedding.weight": positions,
        "visual_projection.weight": proj.T,
    }
    for what in ("weight", "bias"):
        new[f"vision_model.pre_layrnorm.{what}"] = old[f"pos_drop.{what}"]
        new[f"vision_model.post_layernorm.{what}"] = old[f"norm.{what}"]
        for i in range(layers):
            layer, block = f"vision_model.encoder.layers.{i}", f"blocks.{i}"
            for theirs, ours in LAYER_NAMES.items():
                new[f"{layer}.{ours}.{what}"] = old[f"{block}.{theirs}.{what}"]
            for letter, part in zip("qkv", old[f"{block}.attn.qkv.{what}"].chunk(3), strict=True):
                new[f"{layer}.self_attn.{letter}_proj.{what}"] = part
    model = transformers.CLIPVisionModelWithProjection(config)
    model.load_state_dict({name: value.float().contiguous() for name, value in new.items()})
    return model


def read_lora(folder: Path, networks: Sequence[str]) -> dict[str, list[Tensor]]:
    """Return what is added to the joint query, key and value weights [3d, d], by network and layer.

    Args:
        folder: of the package peft.
        networks: their names, in the order of the folder's numbers.

    Raises:
        OSError: if a file is missing.
        ValueError: if it adds to other weights.
    """
    config = json.loads((folder / "adapter_config.json").read_text())
    if (folder / "adapter_model.safetensors").exists():
        from safetensors.torch import load_file

        weights = load_file(folder / "adapter_model.safetensors")
    else:
        weights = torch.load(folder / "adapter_model.bin", map_location="cpu", weights_only=True)
    factors: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in networks}
    for name, value in weights.items():
        found = LORA_KEY.search(name)
        if found is None or int(found[1]) >= len(networks):
            raise ValueError(f"Expected additions to attn.qkv of {len(networks)} networks, but got {name}.")
        factors[networks[int(found[1])]].setdefault(int(found[2]), {})[found[3]] = value.float()
    scale = config["lora_alpha"] / config["r"]
    return {name: [scale * layers[i]["B"] @ layers[i]["A"] for i in sorted(layers)] for name, layers in factors.items()}


@torch.no_grad()
def add_lora(model: nn.Module, additions: list[Tensor]) -> None:
    """Add to the query, key and value weights of a vision transformer, layer by layer."""
    modules = [(name.rpartition(".")[2], module) for name, module in model.named_modules()]
    for i, names in enumerate((("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"))):
        for (_, module), addition in zip([m for m in modules if m[0] in names], additions, strict=True):
            module.weight += addition.chunk(3)[i]
