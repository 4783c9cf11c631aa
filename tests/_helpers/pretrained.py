# SPDX-License-Identifier: Apache-2.0
"""Tiny pretrained models with random weights, saved as the published ones are."""

import json

import pytest
import torch

SIDE, WIDTH, SHORT = 28, 16, 32
MEAN, STD = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]
LENGTH, SHARED = 12, 6
WORDS = ["a", "white", "cat", "dog", "photo", "of"]


def save_dinov2(folder):
    """Save a DINOv2 of 16 features for pictures of 28 pixels, cut from 32."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, image_size=SIDE, patch_size=14
    )
    torch.manual_seed(0)
    transformers.Dinov2Model(config).save_pretrained(folder)
    _save_preprocessor(folder, "BitImageProcessor", size={"shortest_edge": SHORT}, crop_size=_square(SIDE))
    return folder


def save_clip(folder):
    """Save a CLIP of 6 features for pictures of 32 pixels and 12 tokens, each letter one."""
    transformers = pytest.importorskip("transformers")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    text = {"vocab_size": len(words), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config = transformers.CLIPConfig(
        text_config=_tower() | text | {"max_position_embeddings": LENGTH},
        vision_config=_tower() | {"image_size": SHORT, "patch_size": 8},
        projection_dim=SHARED,
    )
    torch.manual_seed(0)
    transformers.CLIPModel(config).save_pretrained(folder)
    # whole numbers, as in the files of openai's models
    _save_preprocessor(folder, "CLIPImageProcessor", size=SHORT, crop_size=SHORT)
    return folder


def save_siglip(folder, resample=3):
    """Save a SigLIP of 16 features for pictures of 28 pixels and 12 tokens, each word one."""
    transformers = pytest.importorskip("transformers")
    config = transformers.SiglipConfig(
        text_config=_tower() | {"vocab_size": 2 + len(WORDS), "max_position_embeddings": LENGTH},
        vision_config=_tower() | {"image_size": SIDE, "patch_size": 14},
    )
    torch.manual_seed(0)
    transformers.SiglipModel(config).save_pretrained(folder)
    _save_tokenizer(folder)
    _save_preprocessor(folder, "SiglipImageProcessor", resample=resample, size=_square(SIDE))
    return folder


def _tower():
    return {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def _square(side):
    return {"height": side, "width": side}


def _save_preprocessor(folder, kind, **settings):
    settings = {"resample": 3, "image_mean": MEAN, "image_std": STD, "image_processor_type": kind} | settings
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


def _save_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=LENGTH
    ).save_pretrained(folder)
