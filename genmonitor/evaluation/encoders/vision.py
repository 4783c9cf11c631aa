# SPDX-License-Identifier: Apache-2.0
"""Published image encoders, loaded through transformers: DINOv2, the image side of CLIP, or a folder of either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

PRETRAINED = {"dinov2": "facebook/dinov2-base", "clip": "openai/clip-vit-base-patch32"}
"""Short names of models on the Hugging Face hub."""


class ImageFeatures(nn.Module):
    """Images [n, 1 or 3, h, w] to features [n, d] of a vision transformer, prepared as its own preprocessor does.

    Args:
        tower: of transformers, whose output has `pooler_output` [n, k].
        projection: from there to the features.
        num_features: d.
        preprocessor: the model's `preprocessor_config.json`.
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
        preprocessor: dict[str, Any],
        value_range: tuple[float, float],
    ) -> None:
        super().__init__()
        self.tower, self.projection, self.num_features = tower, projection, num_features
        self.short_side, self.side = preprocessor["size"]["shortest_edge"], preprocessor["crop_size"]["height"]
        self.value_range = value_range
        self.register_buffer("mean", torch.tensor(preprocessor["image_mean"])[:, None, None])
        self.register_buffer("std", torch.tensor(preprocessor["image_std"])[:, None, None])

    def to_inputs(self, images: Tensor) -> Tensor:
        """Return what the tower sees [n, 3, side, side]: short side resized (bicubic), center cropped, normalized."""
        low, high = self.value_range
        height, width = images.shape[2:]
        scale = self.short_side / min(height, width)
        size = (max(self.short_side, int(height * scale)), max(self.short_side, int(width * scale)))
        x = (images.float() - low) / (high - low)
        x = interpolate(x, size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
        top, left = (size[0] - self.side) // 2, (size[1] - self.side) // 2
        x = x[:, :, top : top + self.side, left : left + self.side].expand(-1, 3, -1, -1)
        inputs: Tensor = (x - self.mean) / self.std
        return inputs

    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        features: Tensor = self.projection(self.tower(pixel_values=self.to_inputs(images)).pooler_output)
        return features

    def extra_repr(self) -> str:
        """Return how images are prepared."""
        return f"short_side={self.short_side}, side={self.side}, value_range={self.value_range}"


def image_encoder(name: str | Path, value_range: tuple[float, float]) -> ImageFeatures:
    """Load an image encoder from this machine's files; nothing is downloaded.

    Args:
        name: "dinov2" (facebook/dinov2-base), "clip" (openai/clip-vit-base-patch32), another model of these kinds by
            its name on the Hugging Face hub, or the folder of one.
        value_range: (low, high) of the images that will be encoded, (-1, 1) for a generator that ends in a tanh.

    Returns:
        A Module from images [n, 1 or 3, h, w] to features [n, d]: DINOv2's normalized class token, or CLIP's embedding.

    Raises:
        ModuleNotFoundError: if transformers is not installed.
        FileNotFoundError: if the model is not on this machine, saying how to get it.
        ValueError: if it is of another kind, or the range is empty.

    References:
        Oquab et al., "DINOv2: Learning Robust Visual Features without Supervision", arXiv 2304.07193.
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", arXiv 2103.00020.
        Stein et al., "Exposing flaws of generative model evaluation metrics and their unfair treatment of diffusion
            models", arXiv 2306.04675, for DINOv2 in place of Inception.
    """
    low, high = check_range(value_range)
    transformers = import_transformers("A pretrained encoder")
    where = PRETRAINED.get(str(name), name)
    try:
        model: Any = transformers.AutoModel.from_pretrained(where, local_files_only=True)
        preprocessor, _ = transformers.ImageProcessingMixin.get_image_processor_dict(where, local_files_only=True)
    except (OSError, ValueError) as error:  # the latter where a folder holds something else
        get = "Give the folder of a saved model." if Path(where).is_dir() else f"Run: hf download {where!s}"
        raise FileNotFoundError(
            f"Expected `name` to be a model on this machine, but {where!s} holds none, or not all of it. Nothing is "
            f"downloaded while a run waits. {get}"
        ) from error
    kind, config = model.config.model_type, model.config
    if kind == "clip":
        parts = (model.vision_model, model.visual_projection, config.projection_dim)
    elif kind == "dinov2":
        parts = (model, nn.Identity(), config.hidden_size)
    else:
        raise ValueError(f"Expected `name` to be a DINOv2 or CLIP model, but {where!s} is of kind {kind!r}.")
    return ImageFeatures(*parts, preprocessor, (low, high)).eval()


def check_range(value_range: tuple[float, float]) -> tuple[float, float]:
    """Return a value range as floats; raise ValueError if it is no (low, high) with low < high."""
    if not (isinstance(value_range, (tuple, list)) and len(value_range) == 2 and value_range[0] < value_range[1]):
        raise ValueError(f"Expected `value_range` as (low, high) with low < high, but got {value_range!r}.")
    return float(value_range[0]), float(value_range[1])


def import_transformers(what: str) -> Any:
    """Return the package; raise ModuleNotFoundError that says how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise ModuleNotFoundError(
            f'{what} needs transformers, which is not installed. Run: pip install "genmonitor[clip]"'
        ) from error
    return transformers
