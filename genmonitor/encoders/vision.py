# SPDX-License-Identifier: Apache-2.0
"""Published image encoders, loaded through transformers: DINOv2, the image side of CLIP and SigLIP, and DreamSim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from genmonitor.encoders.dreamsim import DreamSim, dreamsim, is_dreamsim
from genmonitor.encoders.image_features import ImageFeatures
from genmonitor.encoders.registry import IMAGE_MODELS, check_range, import_transformers, load_local


def image_encoder(name: str | Path, value_range: tuple[float, float]) -> ImageFeatures | DreamSim:
    """Load an image encoder from this machine's files; nothing is downloaded.

    Args:
        name: "dinov2" (facebook/dinov2-base), "clip" (openai/clip-vit-base-patch32), "siglip", "siglip2"
            (google/siglip-base-patch16-224, google/siglip2-base-patch16-224), another model of these kinds by its name
            on the Hugging Face hub, or the folder of one; "dreamsim", or the folder of its weights, see `dreamsim`.
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
    if name == "dreamsim" or is_dreamsim(name):
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
    return ImageFeatures(*parts, preprocessor, checked).eval()
