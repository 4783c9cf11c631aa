# SPDX-License-Identifier: Apache-2.0
"""Published text encoders, loaded through transformers: the text side of CLIP and SigLIP, and sentence encoders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from genmonitor.encoders.hub import TEXT_MODELS, import_transformers, load_local, local_folder

MEAN, FIRST = ("mean", "pooling_mode_mean_tokens"), ("cls", "pooling_mode_cls_token")
"""Names of a pooling in sentence-transformers: since version 6, and before."""


class TextFeatures(nn.Module):
    """Embeddings [n, d] of strings; long ones are truncated.

    Args:
        tower: Model of transformers from tokens to hidden states.
        head: Function from its output and the mask of tokens to the embeddings.
        tokenizer: Tokenizer of the model.
        length: Largest number of tokens of a string.
        padded: True to pad every string to `length` and attend to the padding, as in SigLIP's training.
        lower: True to lowercase strings first.
        space: Name of the space that the embeddings share with those of images; None if they share none.
    """

    def __init__(
        self,
        tower: nn.Module,
        head: nn.Module,
        tokenizer: Any,
        length: int,
        padded: bool = False,
        lower: bool = False,
        space: str | None = None,
    ) -> None:
        super().__init__()
        self.space = space
        self.tower, self.head, self.tokenizer = tower, head, tokenizer
        self.length, self.padded, self.lower = length, padded, lower

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Embed strings."""
        texts = [text.lower() if self.lower else text for text in texts]
        padding = "max_length" if self.padded else True
        tokens = self.tokenizer(texts, padding=padding, truncation=True, max_length=self.length, return_tensors="pt")
        device = next(self.parameters()).device
        ids, mask = (tokens[name].to(device) if name in tokens else None for name in ("input_ids", "attention_mask"))
        out = self.tower(input_ids=ids) if self.padded else self.tower(input_ids=ids, attention_mask=mask)
        return self.head(out, mask)

    def extra_repr(self) -> str:
        """Return the settings of the tokenization."""
        return f"length={self.length}, padded={self.padded}, lower={self.lower}"


class _Projection(nn.Module):
    """Embedding of CLIP and SigLIP, in the space shared with images."""

    def __init__(self, projection: nn.Module) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, out: Any, mask: Tensor) -> Tensor:
        return self.projection(out.pooler_output)


class _Pooling(nn.Module):
    """Embedding of a sentence encoder: the state of the first token or the mean of all, optionally of unit length."""

    def __init__(self, first_token: bool, unit_length: bool) -> None:
        super().__init__()
        self.first_token, self.unit_length = first_token, unit_length

    def forward(self, out: Any, mask: Tensor) -> Tensor:
        states, weights = out.last_hidden_state, mask[:, :, None]
        pooled: Tensor = states[:, 0] if self.first_token else (states * weights).sum(1) / weights.sum(1)
        return normalize(pooled) if self.unit_length else pooled

    def extra_repr(self) -> str:
        """Return the settings, which distinguish encoders with the same weights."""
        return f"first_token={self.first_token}, unit_length={self.unit_length}"


def text_encoder(name: str | Path) -> TextFeatures:
    """Load a text encoder from this machine's files; nothing is downloaded.

    Args:
        name: "clip", "siglip" or "siglip2" for the text side of the `image_encoder` of this name, or "minilm"
            (sentence-transformers/all-MiniLM-L6-v2). Another model of these kinds by its name on the Hugging Face hub,
            or its folder. Sentence encoders are those saved by sentence-transformers, with mean or CLS pooling.

    Returns:
        A Module from strings to embeddings [n, d], for example for the `prompt_encoder` of a monitor.

    Raises:
        ModuleNotFoundError: If transformers is not installed.
        FileNotFoundError: If the model is not on this machine, with instructions to get it.
        ValueError: If it is of another kind.

    References:
        Reimers, Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", arXiv 1908.10084.
    """
    transformers = import_transformers()
    where = TEXT_MODELS.get(str(name), name)
    model: Any = load_local(where, transformers.AutoModel.from_pretrained)
    tokenizer = load_local(where, transformers.AutoTokenizer.from_pretrained)
    kind, config = model.config.model_type, model.config
    if kind == "clip":
        length = config.text_config.max_position_embeddings
        projection = _Projection(model.text_projection)
        return TextFeatures(model.text_model, projection, tokenizer, length, space=str(where)).eval()
    if kind == "siglip":
        length = config.text_config.max_position_embeddings
        tower, pooled = model.text_model, _Projection(nn.Identity())
        return TextFeatures(tower, pooled, tokenizer, length, padded=True, lower=True, space=str(where)).eval()
    head, limits = _sentence_head(local_folder(where)), _read(local_folder(where) / "sentence_bert_config.json") or {}
    lengths = (
        limits.get("max_seq_length"),
        tokenizer.model_max_length,
        getattr(config, "max_position_embeddings", None),
    )
    length = min(x for x in lengths if x)
    return TextFeatures(model, head, tokenizer, length, lower=bool(limits.get("do_lower_case"))).eval()


def _sentence_head(where: Path) -> _Pooling:
    """Return the pooling configured in the files of sentence-transformers."""
    steps = [step["type"].rpartition(".")[2] for step in _read(where / "modules.json") or []]
    pooling = _read(where / "1_Pooling" / "config.json") or {}
    asked = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on]
    asked = asked or [pooling.get("pooling_mode")]  # as sentence-transformers 6 writes it
    if steps not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(
            "Expected `name` to be a CLIP or SigLIP model, or a sentence encoder of the modules Transformer, Pooling "
            f"and perhaps Normalize, but {where!s} has {', '.join(steps) or 'no modules.json'}."
        )
    if len(asked) != 1 or asked[0] not in (*MEAN, *FIRST):
        raise ValueError(
            f"Expected `name` to be a sentence encoder with the pooling {MEAN[0]} or {FIRST[0]}, but "
            f"1_Pooling/config.json of {where!s} asks for {', '.join(map(str, asked))}."
        )
    return _Pooling(asked[0] in FIRST, "Normalize" in steps)


def _read(file: Path) -> Any:
    """Read a JSON file of the model; None if there is none."""
    return json.loads(file.read_text()) if file.exists() else None
