# SPDX-License-Identifier: Apache-2.0
"""Published encoders, loaded through transformers: DINOv2, and both sides of CLIP and SigLIP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from genmonitor._validation import check_bool

IMAGE_MODELS = {
    "dinov2": "facebook/dinov2-base",
    "clip": "openai/clip-vit-base-patch32",
    "siglip": "google/siglip-base-patch16-224",
    "siglip2": "google/siglip2-base-patch16-224",
}
"""Short names that `image_encoder` takes."""
TEXT_MODELS = {name: IMAGE_MODELS[name] for name in ("clip", "siglip", "siglip2")}
"""Short names that `text_encoder` takes."""


def image_encoder(name: str | Path, value_range: tuple[float, float], *, crop: bool | None = None) -> ImageFeatures:
    """Load an image encoder from this machine's files; nothing is downloaded.

    Args:
        name: "dinov2" (facebook/dinov2-base), "clip" (openai/clip-vit-base-patch32), "siglip"
            (google/siglip-base-patch16-224) or "siglip2" (google/siglip2-base-patch16-224). Another model of these
            kinds by its name on the Hugging Face hub, or its folder.
        value_range: Range (low, high) of the images to encode, (-1, 1) for a generator that ends in a tanh.
        crop: True for the center crop of the model's own preprocessor, which hides 23 % of a square image from DINOv2.
            False to resize the whole image to the model's square, as in the published FD-DINOv2 and CMMD. None for
            False with DINOv2 and True with others. SigLIP never crops.

    Returns:
        A Module from images [n, 1 or 3, h, w] to features [n, d]. These are the normalized class token of DINOv2, or
        the embedding that images of CLIP and SigLIP share with texts (see `text_encoder`).

    Raises:
        ModuleNotFoundError: If transformers is not installed.
        FileNotFoundError: If the model is not on this machine, with instructions to get it.
        TypeError: If `crop` is neither a bool nor None.
        ValueError: If it is of another kind, or the range is empty.

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
    """Features [n, d] of images [n, 1 or 3, h, w] by a vision transformer, with the preparation of its own processor.

    Args:
        tower: Model of transformers whose output has `pooler_output` [n, k].
        projection: Module from the pooled output to the features.
        num_features: Number d of features.
        preprocessor: Image processor of the model, from transformers.
        value_range: Range (low, high) of the images.
        space: Name of the space that the features share with those of texts; None if they share none.
        crop: False to resize whole images to a square instead of cropping their center.

    Attributes:
        num_features: Number d of features, an attribute that torchmetrics reads.
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
        by_number = {2: "bilinear", 3: "bicubic"}  # Pillow's
        self.interpolation, self.value_range = by_number[int(preprocessor.resample)], value_range
        self.register_buffer("mean", torch.tensor(preprocessor.image_mean)[:, None, None])
        self.register_buffer("std", torch.tensor(preprocessor.image_std)[:, None, None])

    def to_inputs(self, images: Tensor) -> Tensor:
        """Resize, center crop and normalize images to the inputs of the tower [n, 3, side, side].

        Raises:
            ValueError: If the images have other than 1 or 3 channels.
        """
        if images.shape[1] not in (1, 3):
            raise ValueError(
                f"Expected images of 1 or 3 channels for a pretrained encoder, but got {images.shape[1]}. Give "
                "three of them, as images[:, :3] does, or use an encoder for this number."
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


def load_local(where: str | Path, load: Callable[[Path], Any]) -> Any:
    """Return the result of `load` for the folder of a model.

    Args:
        where: Folder, or the model's name on the Hugging Face hub, whose local cache is used.
        load: Function of the folder. Given a name, transformers would ask the hub for a better format of old weights,
            even if only local files are allowed.

    Raises:
        FileNotFoundError: If a file is missing, with instructions to get it.
    """
    try:
        return load(local_folder(where))
    except (OSError, ValueError) as error:  # the latter where a folder holds something else
        get = "Give the folder of a saved model." if Path(where).is_dir() else f"Run: hf download {where!s}"
        raise FileNotFoundError(
            f"Expected a model on this machine, but {where!s} is none, or not all of one. Nothing is "
            f"downloaded during a run. {get}"
        ) from error


def local_folder(where: str | Path) -> Path:
    """Return the folder of a model's files; raise OSError if the hub's cache has none of them."""
    if Path(where).is_dir():
        return Path(where)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(str(where), "config.json")
    if not isinstance(found, str):
        raise FileNotFoundError(f"{where} is not in the cache.")
    return Path(found).parent


def check_range(value_range: tuple[float, float]) -> tuple[float, float]:
    """Return a value range as floats; raise ValueError unless it is (low, high) with low < high."""
    if not (isinstance(value_range, (tuple, list)) and len(value_range) == 2 and value_range[0] < value_range[1]):
        raise ValueError(f"Expected `value_range` as (low, high) with low < high, but got {value_range!r}.")
    return float(value_range[0]), float(value_range[1])


def import_transformers() -> Any:
    """Return the package transformers, or raise ModuleNotFoundError with instructions to install it."""
    try:
        import transformers
    except ImportError as error:
        raise ModuleNotFoundError(
            'A pretrained encoder needs transformers, which is not installed. Run: pip install "genmonitor[clip]"'
        ) from error
    return transformers


class TextFeatures(nn.Module):
    """Embeddings [n, d] of strings in the space that they share with images; long strings are truncated.

    Args:
        tower: Text model of transformers whose output has `pooler_output` [n, k].
        projection: Module from the pooled output to the embeddings.
        tokenizer: Tokenizer of the model.
        length: Largest number of tokens of a string.
        padded: True to pad every lowercase string to `length` and attend to the padding, as in SigLIP's training.
        space: Name of the space that the embeddings share with those of images.
    """

    def __init__(
        self, tower: nn.Module, projection: nn.Module, tokenizer: Any, length: int, padded: bool, space: str
    ) -> None:
        super().__init__()
        self.tower, self.projection, self.tokenizer = tower, projection, tokenizer
        self.length, self.padded, self.space = length, padded, space

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Embed strings."""
        texts = [text.lower() if self.padded else text for text in texts]
        padding = "max_length" if self.padded else True
        tokens = self.tokenizer(texts, padding=padding, truncation=True, max_length=self.length, return_tensors="pt")
        tokens = tokens.to(next(self.parameters()).device)
        given = {} if self.padded else {"attention_mask": tokens["attention_mask"]}
        return self.projection(self.tower(input_ids=tokens["input_ids"], **given).pooler_output)


def text_encoder(name: str | Path) -> TextFeatures:
    """Load a text encoder from this machine's files; nothing is downloaded.

    Args:
        name: "clip", "siglip" or "siglip2" for the text side of the `image_encoder` of this name. Another model of
            these kinds by its name on the Hugging Face hub, or its folder.

    Returns:
        A Module from strings to embeddings [n, d], for example for the `prompt_encoder` of a monitor.

    Raises:
        ModuleNotFoundError: If transformers is not installed.
        FileNotFoundError: If the model is not on this machine, with instructions to get it.
        ValueError: If it is of another kind.
    """
    transformers = import_transformers()
    where = TEXT_MODELS.get(str(name), name)
    model: Any = load_local(where, transformers.AutoModel.from_pretrained)
    kind = model.config.model_type
    if kind not in ("clip", "siglip"):
        raise ValueError(
            f"Expected `name` to be a CLIP or SigLIP model, but {where!s} is of kind {kind!r}. Any function from "
            "strings to features [n, e] is an encoder too, such as one that calls `encode` of sentence-transformers."
        )
    tokenizer = load_local(where, transformers.AutoTokenizer.from_pretrained)
    projection = model.text_projection if kind == "clip" else nn.Identity()
    length = model.config.text_config.max_position_embeddings
    return TextFeatures(model.text_model, projection, tokenizer, length, kind == "siglip", str(where)).eval()
