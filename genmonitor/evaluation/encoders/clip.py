# SPDX-License-Identifier: Apache-2.0
"""CLIP's two encoders, loaded through transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from genmonitor.evaluation.encoders.vision import ImageFeatures, check_range, import_transformers


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


def clip_encoders(name: str | Path, value_range: tuple[float, float]) -> tuple[ImageFeatures, CLIPTexts]:
    """Load CLIP's two encoders through transformers.

    Args:
        name: a local folder, or a name on the Hugging Face hub such as "openai/clip-vit-base-patch32".
        value_range: (low, high) of the images that will be encoded, (-1, 1) for a generator that ends in a tanh.

    Returns:
        `output_encoder` and `prompt_encoder` for a monitor: images [n, 1 or 3, h, w] and strings to embeddings [n, d]
        in one space.

    Raises:
        ModuleNotFoundError: if transformers is not installed.
        OSError: if the folder or the hub lacks the model, the tokenizer or the preprocessor's configuration.
        ValueError: if the range is empty.
    """
    checked, transformers = check_range(value_range), import_transformers("CLIP")
    model: Any = transformers.CLIPModel.from_pretrained(name)
    preprocessor, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name)
    width = model.config.projection_dim
    images = ImageFeatures(model.vision_model, model.visual_projection, width, preprocessor, checked)
    length = model.config.text_config.max_position_embeddings
    tokenizer = transformers.CLIPTokenizer.from_pretrained(name)
    return images, CLIPTexts(model.text_model, model.text_projection, tokenizer, length)
