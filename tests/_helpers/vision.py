# SPDX-License-Identifier: Apache-2.0
"""Tiny vision models with random weights, saved as the published ones are."""

import json

import pytest
import torch

SIDE, WIDTH, SHORT = 28, 16, 32
MEAN, STD = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]


def save_dinov2(folder):
    """Save a DINOv2 of 16 features for pictures of 28 pixels, cut from 32."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, image_size=SIDE, patch_size=14
    )
    torch.manual_seed(0)
    transformers.Dinov2Model(config).save_pretrained(folder)
    settings = {"size": {"shortest_edge": SHORT}, "crop_size": {"height": SIDE, "width": SIDE}, "resample": 3}
    settings |= {"image_mean": MEAN, "image_std": STD, "image_processor_type": "BitImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder
