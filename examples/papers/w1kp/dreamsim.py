# SPDX-License-Identifier: Apache-2.0
"""DreamSim, the encoder that W1KP was published with, as an encoder of a monitor or a metric.

dreamsim((-1, 1), "tuned-dreamsim/") encodes images in [-1, 1]; tuned_dreamsim.py makes the folder.
"""

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
from genmonitor.encoders.pretrained import ImageFeatures, check_range, import_transformers, load_local

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
OPENAI = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
DREAMSIM_PARTS = {
    "dino": "facebook/dino-vitb16",
    "clip": "openai/clip-vit-base-patch16",
    "open_clip": "laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
}
"""The three networks, before they were tuned."""


class DreamSim(nn.Module):
    """DreamSim's features [n, d] of images [n, 1 or 3, h, w]: those of its networks, joined, centered, normalized.

    Args:
        parts: Networks.

    Attributes:
        num_features: Number d of features, an attribute that torchmetrics reads.
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
    """Load DreamSim, whose cosine distance agrees with human judgments of similarity; nothing is downloaded.

    Args:
        value_range: Range (low, high) of the images to encode.
        folder: Folder with the networks as models of transformers in `dino`, `clip` and `open_clip`.
            `tuned_dreamsim.py` makes the tuned ones from DreamSim's release. None for three
            pretrained networks that are not tuned, where OpenCLIP was trained on other images.
        parts: Names of networks among "dino", "clip" and "open_clip", each a ViT-B/16.

    Returns:
        A Module from images [n, 1 or 3, h, w] to features [n, d].

    Raises:
        ModuleNotFoundError: If transformers is not installed.
        FileNotFoundError: If a file is not on this machine, with instructions to get it.
        ValueError: If a part is unknown, or the range is empty.

    References:
        Fu et al., "DreamSim: Learning New Dimensions of Human Visual Similarity using Synthetic Data",
            arXiv 2306.09344.
        Tang et al., "Words Worth a Thousand Pictures", arXiv 2406.08482, measures variability with it.
    """
    checked, transformers = check_range(value_range), import_transformers()
    for part in parts:
        check_one_of("parts", part, tuple(DREAMSIM_PARTS))
    return DreamSim([_features(_load(transformers, name, folder), name, checked) for name in parts]).eval()


def _load(transformers: Any, name: str, folder: str | Path | None) -> Any:
    """Load one network of DreamSim as a model of transformers."""
    where = DREAMSIM_PARTS[name] if folder is None else Path(folder) / name
    if name == "dino":
        return load_local(where, partial(transformers.ViTModel.from_pretrained, add_pooling_layer=False))
    return load_local(where, transformers.CLIPVisionModelWithProjection.from_pretrained)


def _features(model: Any, name: str, value_range: tuple[float, float]) -> ImageFeatures:
    """Return the features that DreamSim uses: DINO's last class token, before its norm, and CLIP's embedding."""
    side, moments = model.config.image_size, IMAGENET if name == "dino" else OPENAI
    preprocessor = SimpleNamespace(size={"height": side, "width": side}, crop_size=None, resample=3, **moments)
    if name == "dino":
        model.layernorm, model.pooler = nn.Identity(), _FirstToken()
        return ImageFeatures(model, nn.Identity(), model.config.hidden_size, preprocessor, value_range)
    width = model.config.projection_dim
    return ImageFeatures(model.vision_model, model.visual_projection, width, preprocessor, value_range)


class _FirstToken(nn.Module):
    """Pooling to the class token."""

    def forward(self, states: Tensor) -> Tensor:
        return states[:, 0]
