# SPDX-License-Identifier: Apache-2.0
"""CLIP's two encoders, loaded through transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate


class CLIPImages(nn.Module):
    """CLIP's image side: images [n, 1 or 3, h, w] to embeddings [n, d] in the space that texts share."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        tower: nn.Module,
        projection: nn.Module,
        side: int,
        mean: Sequence[float],
        std: Sequence[float],
        value_range: tuple[float, float],
    ) -> None:
        super().__init__()
        self.tower, self.projection, self.side, self.value_range = tower, projection, side, value_range
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])

    def to_inputs(self, images: Tensor) -> Tensor:
        """Return what the tower sees [n, 3, side, side]: short side resized (bicubic), center cropped, normalized."""
        low, high = self.value_range
        height, width = images.shape[2:]
        scale = self.side / min(height, width)
        size = (max(self.side, int(height * scale)), max(self.side, int(width * scale)))
        x = (images.float() - low) / (high - low)
        x = interpolate(x, size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
        top, left = (size[0] - self.side) // 2, (size[1] - self.side) // 2
        x = x[:, :, top : top + self.side, left : left + self.side].expand(-1, 3, -1, -1)
        inputs: Tensor = (x - self.mean) / self.std
        return inputs

    def forward(self, images: Tensor) -> Tensor:
        """Embed images."""
        embedded: Tensor = self.projection(self.tower(pixel_values=self.to_inputs(images)).pooler_output)
        return embedded


class CLIPTexts(nn.Module):
    """CLIP's text side: strings to embeddings [n, d] in the space that images share; long ones are cut."""

    def __init__(self, tower: nn.Module, projection: nn.Module, tokenizer: Any, length: int) -> None:
        super().__init__()
        self.tower, self.projection, self.tokenizer, self.length = tower, projection, tokenizer, length

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Embed strings."""
        settings = {"padding": True, "truncation": True, "max_length": self.length, "return_tensors": "pt"}
        tokens = self.tokenizer(list(texts), **settings).to(next(self.parameters()).device)
        out = self.tower(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
        embedded: Tensor = self.projection(out.pooler_output)
        return embedded


def clip_encoders(name: str | Path, value_range: tuple[float, float]) -> tuple[CLIPImages, CLIPTexts]:
    """Load CLIP's two encoders through transformers.

    Args:
        name: a local folder, or a name on the Hugging Face hub such as "openai/clip-vit-base-patch32".
        value_range: (low, high) of the images that will be encoded, (-1, 1) for a generator that ends in a tanh.

    Returns:
        `output_encoder` and `prompt_encoder` for a monitor.

    Raises:
        ModuleNotFoundError: if transformers is not installed.
        OSError: if the folder or the hub lacks the model, the tokenizer or the preprocessor's configuration.
        ValueError: if the range is empty.
    """
    if not (isinstance(value_range, (tuple, list)) and len(value_range) == 2 and value_range[0] < value_range[1]):
        raise ValueError(f"Expected `value_range` as (low, high) with low < high, but got {value_range!r}.")
    low, high = value_range
    try:
        from transformers import CLIPModel, CLIPTokenizer, ImageProcessingMixin
    except ImportError as error:
        raise ModuleNotFoundError(
            'CLIP needs transformers, which is not installed. Run: pip install "genmonitor[clip]"'
        ) from error
    model: Any = CLIPModel.from_pretrained(name)
    preprocessor, _ = ImageProcessingMixin.get_image_processor_dict(name)
    images = CLIPImages(
        model.vision_model,
        model.visual_projection,
        model.config.vision_config.image_size,
        preprocessor["image_mean"],
        preprocessor["image_std"],
        (float(low), float(high)),
    )
    length = model.config.text_config.max_position_embeddings
    tokenizer = CLIPTokenizer.from_pretrained(name)
    return images, CLIPTexts(model.text_model, model.text_projection, tokenizer, length)
