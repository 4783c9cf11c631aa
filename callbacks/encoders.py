# SPDX-License-Identifier: Apache-2.0
"""Encoders of images and prompts: any callable from a batch to features [n, d], kept frozen and out of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from genmonitor._validation import check_features

Encoder = nn.Module | Callable[[Any], Tensor]


def pixels(images: Tensor) -> Tensor:
    """Return the images' values themselves, [n, c·h·w].

    Example:
        >>> pixels(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
    """
    return images.flatten(1)


class OneHot:
    """Class labels [n] as rows of the identity [n, number of classes].

    Args:
        labels: all that occur, in any order, more than once too.

    Example:
        >>> OneHot([3, 7, 3])(torch.tensor([7, 3]))
        tensor([[0., 1.],
                [1., 0.]])
    """

    def __init__(self, labels: Iterable[int]) -> None:
        self.classes = torch.tensor(sorted(set(labels)))

    def __call__(self, labels: Tensor) -> Tensor:
        """Encode labels [n]."""
        return (labels[:, None] == self.classes.to(labels.device)).float()


def check_not_meta(name: str, encoder: nn.Module) -> None:
    """Refuse an encoder that has no weights yet."""
    if any(parameter.is_meta for parameter in encoder.parameters()):
        raise ValueError(
            f"Expected `{name}` with weights, but those of {type(encoder).__qualname__} are on the meta device, which "
            "holds none. Load its weights first."
        )


class Frozen:
    """An encoder that is run in eval mode, without gradients, batch by batch.

    Args:
        name: the argument that it came by, for errors.
        encoder: any callable from a batch to features [n, d]; a Module is switched to eval mode and needs no gradient
            from then on.

    Raises:
        TypeError: if it cannot be called.
    """

    def __init__(self, name: str, encoder: Encoder) -> None:
        if not callable(encoder):
            raise TypeError(
                f"Expected `{name}` to be a callable or Module from a batch to features [n, d], "
                f"but got {type(encoder).__name__}."
            )
        self.name = name
        self.encoder = encoder

    def prepare(self, pl_module: nn.Module) -> None:
        """Freeze a Module and move it to the trained module's device.

        Raises:
            ValueError: if it shares parameters with the trained module, which freezing it would stop, or has none yet.
        """
        if not isinstance(self.encoder, nn.Module):
            return
        trained = {id(parameter) for parameter in pl_module.parameters()}
        if any(id(parameter) in trained for parameter in self.encoder.parameters()):
            raise ValueError(
                f"Expected `{self.name}` to be apart from the trained module, but they share parameters: freezing one "
                "would stop the other's training, and curves would move with it. Give copy.deepcopy(encoder)."
            )
        check_not_meta(self.name, self.encoder)
        device: Any = pl_module.device
        self.encoder.eval().requires_grad_(False).to(device)

    def described(self) -> str:
        """Return the encoder's name, for the manifest."""
        return getattr(self.encoder, "__qualname__", type(self.encoder).__qualname__)

    @torch.no_grad()
    def __call__(self, batch: Any, batch_size: int) -> Tensor:
        """Encode n images [n, C, H, W] or prompts, a list or [n], to finite features [n, d]; n at least 1.

        Raises:
            TypeError, ValueError: if what comes back is not of this shape.
        """
        parts = []
        for start in range(0, len(batch), batch_size):
            part = batch[start : start + batch_size]
            features = check_features(f"what {self.name} returns", self.encoder(part))
            if len(features) != len(part):
                raise ValueError(
                    f"Expected `{self.name}` to return one row per sample, but got {len(features)} for {len(part)}."
                )
            parts.append(features)
        return torch.cat(parts)


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
