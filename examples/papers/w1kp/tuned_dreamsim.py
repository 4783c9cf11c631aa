# SPDX-License-Identifier: Apache-2.0
"""Turn DreamSim's release into models of transformers, which `dreamsim.py` takes by their folder.

python examples/papers/w1kp/tuned_dreamsim.py dreamsim_ensemble_checkpoint/ tuned-dreamsim/

The first folder is dreamsim_ensemble_checkpoint.zip of release v0.2.0, unzipped. DINO comes from the cache of the
Hugging Face hub: hf download facebook/dino-vitb16.
"""

from __future__ import annotations

import argparse
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from dreamsim import DREAMSIM_PARTS
from torch import Tensor, nn

from genmonitor.encoders.pretrained import import_transformers, load_local

LORA = "ensemble_lora"
CLIP_FILES = {"clip": "clip_vitb16_pretrain.pth.tar", "open_clip": "open_clip_vitb16_pretrain.pth.tar"}
"""In the folder of DreamSim's release."""
HEAD_WIDTH = 64
"""Of every ViT-B."""
CLIP_NAMES = {
    r"^cls_token$": "embeddings.class_embedding",
    r"^pos_embed$": "embeddings.position_embedding.weight",
    r"^patch_embed\.proj\.": "embeddings.patch_embedding.",
    r"^pos_drop\.": "pre_layrnorm.",
    r"^norm\.": "post_layernorm.",
    r"^blocks\.": "encoder.layers.",
    r"\.norm": ".layer_norm",
    r"\.attn\.proj\.": ".self_attn.out_proj.",
    r"\.attn\.": ".self_attn.",
}
"""Patterns of timm's names in DreamSim's release, and transformers' names for them."""
LORA_KEY = re.compile(r"extractor_list\.(\d+)\.model\.blocks\.(\d+)\.attn\.qkv\.lora_([AB])\.weight$")


def convert(release: Path, out: Path) -> None:
    """Write the three networks with what was added to their weights.

    Args:
        release: the folder of DreamSim's release.
        out: gets the folders `dino`, `clip` and `open_clip`.
    """
    transformers = import_transformers()
    lora = load_local(release, lambda where: _read_lora(where / LORA))
    for name in DREAMSIM_PARTS:
        model: Any
        if name == "dino":
            model = load_local(
                DREAMSIM_PARTS[name], partial(transformers.ViTModel.from_pretrained, add_pooling_layer=False)
            )
        else:
            model = load_local(release, partial(_read_clip, transformers, CLIP_FILES[name], name == "clip"))
        _add_lora(model, lora[name])
        model.save_pretrained(out / name)


def _read_clip(transformers: Any, file: str, quick: bool, folder: Path) -> Any:
    """Read the image side of a CLIP from weights under the names of timm.

    Args:
        transformers: the package.
        file: its name in the folder; has `state_dict`.
        quick: True if its activation is OpenAI's approximation of a GELU.
        folder: of the release.

    Raises:
        OSError: if there is no such file.
    """
    old = torch.load(folder / file, map_location="cpu", weights_only=True)["state_dict"]
    patches, projection = old["patch_embed.proj.weight"], old.pop("proj")
    config = transformers.CLIPVisionConfig(
        hidden_size=len(patches),
        intermediate_size=len(old["blocks.0.mlp.fc1.weight"]),
        projection_dim=projection.shape[1],
        num_hidden_layers=sum(name.endswith(".norm1.bias") for name in old),
        num_attention_heads=len(patches) // HEAD_WIDTH,
        image_size=round((old["pos_embed"].shape[1] - 1) ** 0.5) * patches.shape[-1],
        patch_size=patches.shape[-1],
        hidden_act="quick_gelu" if quick else "gelu",
    )
    old["cls_token"], old["pos_embed"] = old["cls_token"].flatten(), old["pos_embed"][0].clone()
    # transformers' patches have no bias; each has its position added, which takes the bias up
    old["pos_embed"][1:] += old.pop("patch_embed.proj.bias", 0)
    new = {"visual_projection.weight": projection.T}
    for name, value in old.items():
        for pattern, theirs in CLIP_NAMES.items():
            name = re.sub(pattern, theirs, name)
        split = list(zip("qkv", value.chunk(3), strict=True)) if ".qkv." in name else [("", value)]
        new |= {f"vision_model.{name.replace('qkv', f'{letter}_proj')}": part for letter, part in split}
    model = transformers.CLIPVisionModelWithProjection(config)
    model.load_state_dict({name: value.float().contiguous() for name, value in new.items()})
    return model


def _read_lora(folder: Path) -> dict[str, list[Tensor]]:
    """Read the additions to the joint query, key and value weights [3d, d] of every layer, by network.

    Args:
        folder: written by the package peft.

    Raises:
        OSError: if a file is missing.
        ValueError: if other weights are adapted.
    """
    config = json.loads((folder / "adapter_config.json").read_text())
    if (folder / "adapter_model.safetensors").exists():
        from safetensors.torch import load_file

        weights = load_file(folder / "adapter_model.safetensors")
    else:
        weights = torch.load(folder / "adapter_model.bin", map_location="cpu", weights_only=True)
    networks, factors = list(DREAMSIM_PARTS), dict[tuple[int, int, str], Tensor]()
    for name, value in weights.items():
        found = LORA_KEY.search(name)
        if found is None or int(found[1]) >= len(networks):
            raise ValueError(f"Expected additions to attn.qkv of {len(networks)} networks, but got {name}.")
        factors[int(found[1]), int(found[2]), found[3]] = value.float()
    scale = config["lora_alpha"] / config["r"]
    out: dict[str, list[Tensor]] = {name: [] for name in networks}
    for network, layer in sorted({key[:2] for key in factors}):
        out[networks[network]].append(scale * factors[network, layer, "B"] @ factors[network, layer, "A"])
    return out


@torch.no_grad()
def _add_lora(model: nn.Module, additions: list[Tensor]) -> None:
    """Add to the query, key and value weights of a vision transformer, layer by layer."""
    for i, ends in enumerate(((".q_proj", ".query"), (".k_proj", ".key"), (".v_proj", ".value"))):
        modules = [module for name, module in model.named_modules() if name.endswith(ends)]
        for module, addition in zip(modules, additions, strict=True):
            module.weight += addition.chunk(3)[i]


def main() -> None:
    """Convert the release that the command line names."""
    parser = argparse.ArgumentParser(description="Turn DreamSim's release into models of transformers.")
    parser.add_argument("release", type=Path, help="folder of the unzipped dreamsim_ensemble_checkpoint.zip")
    parser.add_argument("out", type=Path, help="folder to write")
    arguments = parser.parse_args()
    convert(arguments.release, arguments.out)


if __name__ == "__main__":
    main()
