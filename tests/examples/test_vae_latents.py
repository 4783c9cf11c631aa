# SPDX-License-Identifier: Apache-2.0
"""Regions of a VAE's latents on 256×256 images, with diffusers' autoencoder loaded from a folder."""

import pytest
import torch
from _helpers.autoencoders import tiny_vae
from _helpers.evaluations import evaluate, fit, region_evaluator
from vae_latents import Latents

from genmonitor import PixelPartition
from genmonitor.evaluation import ImageSet


def photographs(n, seed, spoiled=False):
    """Photographs, almost: left and right half of 256×256 images have a brightness of their own."""
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.rand(2, n, 1, 1, 1, generator=generator) * 1.6 - 0.8
    images = torch.cat([left.expand(n, 3, 256, 128), right.expand(n, 3, 256, 128)], dim=3)
    if spoiled:
        images[..., 128:] = 0.9
    return images + 0.1 * torch.randn(n, 3, 256, 256, generator=generator)


@pytest.mark.slow
def test_spoiled_half_is_found_in_the_latents(tmp_path):
    torch.manual_seed(0)
    tiny_vae(latent_channels=4, sides=4).save_pretrained(tmp_path / "vae")
    encoder, partition = Latents(tmp_path / "vae"), PixelPartition.grid((32, 32), 1, 2)
    evaluator = region_evaluator(partition=partition, n_samples=12, site_encoder=encoder, batch_size=12)
    samples = photographs(12, 2, spoiled=True)
    assert torch.equal(encoder(samples[:2]), encoder.vae.encode(samples[:2]).latent_dist.mode())
    fit(evaluator, ImageSet.of_training(photographs(60, 1), photographs(12, 3)), samples)
    values = evaluate(evaluator, samples).values
    assert values["image"] < evaluator.baseline["image"][0]
    assert values["share_2"] > 0.5  # the right half; the encoder mixes the two
