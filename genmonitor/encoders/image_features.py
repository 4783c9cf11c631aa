# SPDX-License-Identifier: Apache-2.0
"""From images to the features of a vision transformer, by way of what its own preprocessor does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

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
        """Return what the tower sees [n, 3, side, side]: resized, center cropped, normalized.

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
