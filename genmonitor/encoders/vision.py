# SPDX-License-Identifier: Apache-2.0
"""Published image encoders, loaded through transformers: DINOv2, the image side of CLIP and SigLIP, and DreamSim."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from genmonitor._validation import check_bool, check_one_of
from genmonitor.encoders.hub import DREAMSIM_PARTS, IMAGE_MODELS, check_range, import_transformers, load_local

BICUBIC = 3
INTERPOLATION = {2: "bilinear", BICUBIC: "bicubic"}
"""By Pillow's numbers, which preprocessors use."""
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
OPENAI = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}

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


def image_encoder(
    name: str | Path, value_range: tuple[float, float], *, crop: bool | None = None
) -> ImageFeatures | DreamSim:
    """Load an image encoder from this machine's files; nothing is downloaded.

    Args:
        name: "dinov2" (facebook/dinov2-base), "clip" (openai/clip-vit-base-patch32), "siglip", "siglip2"
            (google/siglip-base-patch16-224, google/siglip2-base-patch16-224), another model of these kinds by its name
            on the Hugging Face hub, or the folder of one; "dreamsim", or the folder of its weights, see `dreamsim`.
        value_range: (low, high) of the images that will be encoded, (-1, 1) for a generator that ends in a tanh.
        crop: True for the center that the model's own preprocessor cuts out, which hides 23 % of a square image from
            DINOv2; False to resize the whole image to the model's square, as FD-DINOv2 and CMMD are published. None:
            False for DINOv2, True for others. SigLIP and DreamSim never crop.

    Returns:
        A Module from images [n, 1 or 3, h, w] to features [n, d]: DINOv2's normalized class token, or the embedding
        that CLIP's and SigLIP's images share with texts, as `text_encoder` gives these.

    Raises:
        ModuleNotFoundError: if transformers is not installed.
        FileNotFoundError: if the model is not on this machine, saying how to get it.
        TypeError: if `crop` is neither a bool nor None.
        ValueError: if it is of another kind, or the range is empty.

    References:
        Oquab et al., "DINOv2: Learning Robust Visual Features without Supervision", arXiv 2304.07193.
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", arXiv 2103.00020.
        Zhai et al., "Sigmoid Loss for Language Image Pre-Training", arXiv 2303.15343.
        Tschannen et al., "SigLIP 2: Multilingual Vision-Language Encoders", arXiv 2502.14786.
        Stein et al., "Exposing flaws of generative model evaluation metrics and their unfair treatment of diffusion
            models", arXiv 2306.04675, for DINOv2 in place of Inception.
    """
    if crop is not None:
        check_bool("crop", crop)
    checked, transformers = check_range(value_range), import_transformers()
    if name == "dreamsim" or (Path(name) / LORA).is_dir():
        return dreamsim(checked, None if name == "dreamsim" else name)
    where = IMAGE_MODELS.get(str(name), name)
    model: Any = load_local(where, transformers.AutoModel.from_pretrained)
    kind, config = model.config.model_type, model.config
    if kind == "clip":
        parts = (model.vision_model, model.visual_projection, config.projection_dim)
    elif kind == "siglip":
        parts = (model.vision_model, nn.Identity(), config.vision_config.hidden_size)
    elif kind == "dinov2":
        parts = (model, nn.Identity(), config.hidden_size)
    else:
        raise ValueError(f"Expected `name` to be a DINOv2, CLIP or SigLIP model, but {where!s} is of kind {kind!r}.")
    preprocessor = load_local(where, transformers.AutoImageProcessor.from_pretrained)
    space = None if kind == "dinov2" else str(where)
    cropped = kind != "dinov2" if crop is None else crop
    return ImageFeatures(*parts, preprocessor, checked, space, crop=cropped).eval()


class ImageFeatures(nn.Module):
    """Features [n, d] of images [n, 1 or 3, h, w] by a vision transformer, prepared as by its own processor.

    Args:
        tower: a model of transformers, whose output has `pooler_output` [n, k].
        projection: from the pooled output to the features.
        num_features: d.
        preprocessor: the model's image processor, of transformers.
        value_range: (low, high) of the images.
        space: name of the space that the features share with those of texts; None where they share none.
        crop: False to resize whole images to a square where the processor would cut out their center.

    Attributes:
        num_features: d, where torchmetrics looks for it.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        tower: nn.Module,
        projection: nn.Module,
        num_features: int,
        preprocessor: Any,
        value_range: tuple[float, float],
        space: str | None = None,
        *,
        crop: bool = True,
    ) -> None:
        super().__init__()
        self.tower, self.projection, self.num_features, self.space = tower, projection, num_features, space
        size, center = dict(preprocessor.size), preprocessor.crop_size
        crops = "shortest_edge" in size
        self.side = center["height"] if crops else size["height"]
        self.short_side = size["shortest_edge"] if crops and crop else None  # None: the whole image becomes a square
        self.interpolation, self.value_range = INTERPOLATION[int(preprocessor.resample)], value_range
        self.register_buffer("mean", torch.tensor(preprocessor.image_mean)[:, None, None])
        self.register_buffer("std", torch.tensor(preprocessor.image_std)[:, None, None])

    def to_inputs(self, images: Tensor) -> Tensor:
        """Resize, center crop and normalize images to the inputs of the tower [n, 3, side, side].

        Raises:
            ValueError: if the images have other than 1 or 3 channels.
        """
        if images.shape[1] not in (1, 3):
            raise ValueError(
                f"Expected images of 1 or 3 channels for a pretrained encoder, but got {images.shape[1]}. Give "
                "three of them, as images[:, :3] does, or use an encoder made for as many."
            )
        low, high = self.value_range
        size, top, left = self._resized(*images.shape[2:])
        x = (images.float() - low) / (high - low)
        x = interpolate(x, size, mode=self.interpolation, antialias=True, align_corners=False).clamp(0, 1)
        x = x[:, :, top : top + self.side, left : left + self.side].expand(-1, 3, -1, -1)
        return (x - self.mean) / self.std

    def _resized(self, height: int, width: int) -> tuple[tuple[int, int], int, int]:
        """Return the size before the crop, and the crop's upper left corner."""
        if self.short_side is None:
            return (self.side, self.side), 0, 0
        scale = self.short_side / min(height, width)
        size = (max(self.short_side, int(height * scale)), max(self.short_side, int(width * scale)))
        return size, (size[0] - self.side) // 2, (size[1] - self.side) // 2

    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        return self.projection(self.tower(pixel_values=self.to_inputs(images)).pooler_output)

    def extra_repr(self) -> str:
        """Return the settings of the preprocessing."""
        prepared = f"short_side={self.short_side}, side={self.side}, interpolation={self.interpolation}"
        return f"{prepared}, value_range={self.value_range}"


class DreamSim(nn.Module):
    """DreamSim's features [n, d] of images [n, 1 or 3, h, w]: those of its networks joined, centered, of unit length.

    Args:
        parts: the networks.

    Attributes:
        num_features: d, where torchmetrics looks for it.
    """

    def __init__(self, parts: Sequence[ImageFeatures]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.num_features = sum(part.num_features for part in parts)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        features = torch.cat([part(images) for part in self.parts], dim=1)
        return normalize(features - features.mean(dim=1, keepdim=True))


def dreamsim(
    value_range: tuple[float, float],
    folder: str | Path | None = None,
    parts: Sequence[str] = tuple(DREAMSIM_PARTS),
) -> DreamSim:
    """Load DreamSim, whose cosine distance agrees with people's judgments of similarity; nothing is downloaded.

    Args:
        value_range: (low, high) of the images that will be encoded.
        folder: of the unzipped dreamsim_ensemble_checkpoint.zip of DreamSim's release: the weights tuned to people's
            judgments. None for three pretrained networks that are not tuned, of which OpenCLIP saw other images.
        parts: networks among "dino", "clip" and "open_clip", each a ViT-B/16.

    Returns:
        A Module from images [n, 1 or 3, h, w] to features [n, d].

    Raises:
        ModuleNotFoundError: if transformers is not installed.
        FileNotFoundError: if a file is not on this machine, saying how to get it.
        ValueError: if a part is unknown, or the range is empty.

    References:
        Fu et al., "DreamSim: Learning New Dimensions of Human Visual Similarity using Synthetic Data",
            arXiv 2306.09344.
        Tang et al., "Words Worth a Thousand Pictures", arXiv 2406.08482, measures variability with it.
    """
    checked, transformers = check_range(value_range), import_transformers()
    for part in parts:
        check_one_of("parts", part, tuple(DREAMSIM_PARTS))
    lora: dict[str, list[Tensor]] = {} if folder is None else load_local(folder, lambda where: _read_lora(where / LORA))
    found = []
    for name in parts:
        model: Any = _load(transformers, name, folder)
        if lora:
            _add_lora(model, lora[name])
        found.append(_features(model, name, checked))
    return DreamSim(found).eval()


def _load(transformers: Any, name: str, folder: str | Path | None) -> Any:
    """Load one network of DreamSim as a model of transformers."""
    if folder is not None and name in CLIP_FILES:
        return load_local(folder, lambda where: _read_clip(transformers, where / CLIP_FILES[name], name == "clip"))
    if name == "dino":
        return load_local(DREAMSIM_PARTS[name], partial(transformers.ViTModel.from_pretrained, add_pooling_layer=False))
    return load_local(DREAMSIM_PARTS[name], transformers.CLIPVisionModelWithProjection.from_pretrained)


def _features(model: Any, name: str, value_range: tuple[float, float]) -> ImageFeatures:
    """Return the features that DreamSim uses: DINO's last class token, before its norm, and CLIP's embedding."""
    side, moments = model.config.image_size, IMAGENET if name == "dino" else OPENAI
    preprocessor = SimpleNamespace(size={"height": side, "width": side}, crop_size=None, resample=BICUBIC, **moments)
    if name == "dino":
        model.layernorm, model.pooler = nn.Identity(), _FirstToken()
        return ImageFeatures(model, nn.Identity(), model.config.hidden_size, preprocessor, value_range)
    width = model.config.projection_dim
    return ImageFeatures(model.vision_model, model.visual_projection, width, preprocessor, value_range)


class _FirstToken(nn.Module):
    """Pooling to the class token."""

    def forward(self, states: Tensor) -> Tensor:
        return states[:, 0]


def _read_clip(transformers: Any, file: Path, quick: bool) -> Any:
    """Read the image side of a CLIP from weights under the names of timm.

    Args:
        transformers: the package.
        file: has `state_dict`.
        quick: whether its activation is OpenAI's approximation of a GELU.

    Raises:
        OSError: if there is no such file.
    """
    old = torch.load(file, map_location="cpu", weights_only=True)["state_dict"]
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
