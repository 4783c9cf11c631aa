# SPDX-License-Identifier: Apache-2.0
"""Published text encoders, loaded through transformers: the text side of CLIP and SigLIP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from genmonitor.encoders.hub import TEXT_MODELS, import_transformers, load_local


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
