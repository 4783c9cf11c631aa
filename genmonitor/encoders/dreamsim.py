# SPDX-License-Identifier: Apache-2.0
"""DreamSim: three vision transformers side by side, tuned to what people see as similar."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from genmonitor._validation import check_one_of
from genmonitor.encoders.dreamsim_weights import add_lora, read_clip, read_lora
from genmonitor.encoders.image_features import ImageFeatures
from genmonitor.encoders.registry import DREAMSIM_PARTS, check_range, import_transformers, load_local

LORA = "ensemble_lora"
CLIP_FILES = {"clip": "clip_vitb16_pretrain.pth.tar", "open_clip": "open_clip_vitb16_pretrain.pth.tar"}
"""In the folder of DreamSim's own weights."""
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
OPENAI = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
BICUBIC = 3


class DreamSim(nn.Module):
    """Images [n, 1 or 3, h, w] to DreamSim's features [n, d]: those of its parts, centered and of unit length.

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


def is_dreamsim(where: str | Path) -> bool:
    """Return whether this is a folder of DreamSim's own weights."""
    return (Path(where) / LORA).is_dir()


def dreamsim(
    value_range: tuple[float, float],
    folder: str | Path | None = None,
    parts: Sequence[str] = tuple(DREAMSIM_PARTS),
) -> DreamSim:
    """Load DreamSim, whose cosine distance is near to how different people find two images; nothing is downloaded.

    Args:
        value_range: (low, high) of the images that will be encoded.
        folder: where dreamsim_ensemble_checkpoint.zip of DreamSim's release was unzipped: the weights as tuned to
            people's judgments. None for the three networks as they were before, whose OpenCLIP has seen other images.
        parts: which of "dino", "clip" and "open_clip", ViT-B/16 each.

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
    lora = None if folder is None else load_local(folder, lambda where: read_lora(where / LORA, list(DREAMSIM_PARTS)))
    found = []
    for name in parts:
        model: Any = _load(transformers, name, folder)
        if lora is not None:
            add_lora(model, lora[name])
        found.append(_features(model, name, checked))
    return DreamSim(found).eval()


def _load(transformers: Any, name: str, folder: str | Path | None) -> Any:
    """Return one network of transformers."""
    if folder is not None and name in CLIP_FILES:
        return load_local(folder, lambda where: read_clip(transformers, where / CLIP_FILES[name], name == "clip"))
    if name == "dino":
        return load_local(DREAMSIM_PARTS[name], partial(transformers.ViTModel.from_pretrained, add_pooling_layer=False))
    return load_local(DREAMSIM_PARTS[name], transformers.CLIPVisionModelWithProjection.from_pretrained)


def _features(model: Any, name: str, value_range: tuple[float, float]) -> ImageFeatures:
    """Return what DreamSim takes of a network: DINO's last class token, before its norm, and CLIP's embedding."""
    side, looks = model.config.image_size, IMAGENET if name == "dino" else OPENAI
    preprocessor = SimpleNamespace(size={"height": side, "width": side}, crop_size=None, resample=BICUBIC, **looks)
    if name == "dino":
        model.layernorm, model.pooler = nn.Identity(), _FirstToken()
        return ImageFeatures(model, nn.Identity(), model.config.hidden_size, preprocessor, value_range)
    width = model.config.projection_dim
    return ImageFeatures(model.vision_model, model.visual_projection, width, preprocessor, value_range)


class _FirstToken(nn.Module):
    def forward(self, states: Tensor) -> Tensor:
        return states[:, 0]
