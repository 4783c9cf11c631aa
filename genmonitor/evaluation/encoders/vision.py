# SPDX-License-Identifier: Apache-2.0
"""Published image encoders, loaded through transformers: DINOv2, the image side of CLIP and SigLIP, and DreamSim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from genmonitor.evaluation.encoders.registry import IMAGE_MODELS, check_range, import_transformers, load_local

INTERPOLATION = {2: "bilinear", 3: "bicubic"}
"""By Pillow's numbers, which preprocessors give."""


class ImageFeatures(nn.Module):
    """Images [n, 1 or 3, h, w] to features [n, d] of a vision transformer, prepared as its own preprocessor does.

    Args:
        tower: of transformers, whose output has `pooler_output` [n, k].
        projection: from there to the features.
        num_features: d.
        preprocessor: the model's image processor, of transformers.
        value_range: (low, high) of the images.

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
    ) -> None:
        super().__init__()
        self.tower, self.projection, self.num_features = tower, projection, num_features
        size, crop = dict(preprocessor.size), preprocessor.crop_size
        self.short_side = size.get("shortest_edge")  # None where the whole image becomes a square
        self.side = size["height"] if self.short_side is None else crop["height"]
        self.interpolation, self.value_range = INTERPOLATION[int(preprocessor.resample)], value_range
        self.register_buffer("mean", torch.tensor(preprocessor.image_mean)[:, None, None])
        self.register_buffer("std", torch.tensor(preprocessor.image_std)[:, None, None])

    def to_inputs(self, images: Tensor) -> Tensor:
        """Return what the tower sees [n, 3, side, side]: resized, center cropped, normalized."""
        low, high = self.value_range
        size, top, left = self._resized(*images.shape[2:])
        x = (images.float() - low) / (high - low)
        x = interpolate(x, size, mode=self.interpolation, antialias=True, align_corners=False).clamp(0, 1)
        x = x[:, :, top : top + self.side, left : left + self.side].expand(-1, 3, -1, -1)
        inputs: Tensor = (x - self.mean) / self.std
        return inputs

    def _resized(self, height: int, width: int) -> tuple[tuple[int, int], int, int]:
        """Return the size before the crop, and the crop's upper left corner."""
        if self.short_side is None:
            return (self.side, self.side), 0, 0
        scale = self.short_side / min(height, width)
        size = (max(self.short_side, int(height * scale)), max(self.short_side, int(width * scale)))
        return size, (size[0] - self.side) // 2, (size[1] - self.side) // 2

    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        features: Tensor = self.projection(self.tower(pixel_values=self.to_inputs(images)).pooler_output)
        return features

    def extra_repr(self) -> str:
        """Return how images are prepared."""
        prepared = f"short_side={self.short_side}, side={self.side}, interpolation={self.interpolation}"
        return f"{prepared}, value_range={self.value_range}"


def image_encoder(name: str | Path, value_range: tuple[float, float]) -> ImageFeatures:
    """Load an image encoder from this machine's files; nothing is downloaded.

    Args:
        name: "dinov2" (facebook/dinov2-base), "clip" (openai/clip-vit-base-patch32), "siglip", "siglip2"
            (google/siglip-base-patch16-224, google/siglip2-base-patch16-224), another model of these kinds by its name
            on the Hugging Face hub, or the folder of one.
        value_range: (low, high) of the images that will be encoded, (-1, 1) for a generator that ends in a tanh.

    Returns:
        A Module from images [n, 1 or 3, h, w] to features [n, d]: DINOv2's normalized class token, or the embedding
        that CLIP's and SigLIP's images share with texts, as `text_encoder` gives these.

    Raises:
        ModuleNotFoundError: if transformers is not installed.
        FileNotFoundError: if the model is not on this machine, saying how to get it.
        ValueError: if it is of another kind, or the range is empty.

    References:
        Oquab et al., "DINOv2: Learning Robust Visual Features without Supervision", arXiv 2304.07193.
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", arXiv 2103.00020.
        Zhai et al., "Sigmoid Loss for Language Image Pre-Training", arXiv 2303.15343.
        Tschannen et al., "SigLIP 2: Multilingual Vision-Language Encoders", arXiv 2502.14786.
        Stein et al., "Exposing flaws of generative model evaluation metrics and their unfair treatment of diffusion
            models", arXiv 2306.04675, for DINOv2 in place of Inception.
    """
    checked, transformers = check_range(value_range), import_transformers()
    where = IMAGE_MODELS.get(str(name), name)
    model: Any = load_local(where, lambda: transformers.AutoModel.from_pretrained(where, local_files_only=True))
    kind, config = model.config.model_type, model.config
    if kind == "clip":
        parts = (model.vision_model, model.visual_projection, config.projection_dim)
    elif kind == "siglip":
        parts = (model.vision_model, nn.Identity(), config.vision_config.hidden_size)
    elif kind == "dinov2":
        parts = (model, nn.Identity(), config.hidden_size)
    else:
        raise ValueError(f"Expected `name` to be a DINOv2, CLIP or SigLIP model, but {where!s} is of kind {kind!r}.")
    processor = transformers.AutoImageProcessor
    preprocessor = load_local(where, lambda: processor.from_pretrained(where, local_files_only=True))
    return ImageFeatures(*parts, preprocessor, checked).eval()
