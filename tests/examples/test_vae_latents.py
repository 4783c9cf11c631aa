# SPDX-License-Identifier: Apache-2.0
"""Regions of a VAE's latents on 256×256 images, with diffusers' autoencoder loaded from a folder."""

import pytest
import torch
from _helpers.autoencoders import tiny_vae
from _helpers.evaluations import evaluate, fit, region_evaluator
from _helpers.slow import nightly_but
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


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    tiny_vae(latent_channels=4, sides=4).save_pretrained(tmp_path / "vae")
    return tmp_path / "vae"


def test_latents_are_the_means_that_the_autoencoder_gives(folder):
    encoder, images = Latents(folder), photographs(2, 0)
    found = encoder(images)
    assert found.shape == (2, 4, 32, 32)
    assert torch.equal(found, encoder.vae.encode(images).latent_dist.mode())


def test_latents_are_frozen(folder):
    encoder = Latents(folder)
    assert not encoder.training
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_latents_refuse_a_folder_without_an_autoencoder(tmp_path):
    with pytest.raises(OSError, match=str(tmp_path)):
        Latents(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("found", nightly_but([True, False], False), ids=["found", "given"])
def test_latents_have_regions(folder, found):
    regions = {"n_clusters": 3} if found else {"partition": PixelPartition.grid((32, 32), 1, 2)}
    evaluator = region_evaluator(**regions, n_samples=12, site_encoder=Latents(folder), batch_size=12)
    samples = photographs(12, 2, spoiled=True)
    fit(evaluator, ImageSet.of_training(photographs(60, 1), photographs(12, 3)), samples)
    values = evaluate(evaluator, samples).values
    assert evaluator.partition.labels.shape == (32, 32)
    assert values["image"] < evaluator.baseline["image"][0]
    if not found:
        assert values["share_2"] > 0.5  # the right half; the encoder mixes the two
