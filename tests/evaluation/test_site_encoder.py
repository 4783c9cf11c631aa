# SPDX-License-Identifier: Apache-2.0
"""Clusters of a VAE's latents on 256×256 images, with diffusers' autoencoder loaded from a folder."""

import pytest
import torch
from _helpers.autoencoders import tiny_vae
from _helpers.modules import LIGHTNING_SAYS, fit, loader, measured
from lightning import LightningModule
from vae_latents import Latents

from genmonitor import PixelPartition
from genmonitor.callbacks import PixelClusterMonitor

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:PixelClusterMonitor.{1,4}(there is|the yard|only)")]


def halves(n, seed, spoiled=False):
    """Photographs, almost: left and right half of 256×256 images have a brightness of their own."""
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.rand(2, n, 1, 1, 1, generator=generator) * 1.6 - 0.8
    images = torch.cat([left.expand(n, 3, 256, 128), right.expand(n, 3, 256, 128)], dim=3)
    if spoiled:
        images[..., 128:] = 0.9
    return images + 0.1 * torch.randn(n, 3, 256, 256, generator=generator)


class Halves(LightningModule):
    """Draws such images, the right half always bright."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def sample(self, n):
        return torch.cat([halves(1, int(torch.randint(10**6, (1, 1))), spoiled=True) for _ in range(n)])

    def training_step(self, batch, index):
        return self.unused.square()

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    tiny_vae(latent_channels=4, sides=4).save_pretrained(tmp_path / "vae")
    return tmp_path / "vae"


def test_latents_are_the_means_that_the_autoencoder_gives(folder):
    encoder = Latents(folder)
    images = halves(2, 0)
    found = encoder(images)
    assert found.shape == (2, 4, 32, 32)
    assert torch.equal(found, encoder.vae.encode(images).latent_dist.mode())
    assert not encoder.training
    assert not any(p.requires_grad for p in encoder.parameters())


def test_a_folder_without_an_autoencoder_is_refused(tmp_path):
    with pytest.raises(OSError, match=str(tmp_path)):
        Latents(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("found", [True, False])
def test_regions_of_latents_are_found_or_given_and_drawn_on_256_pixel_images(tmp_path, folder, found):
    regions = {"n_clusters": 3} if found else {"partition": PixelPartition.grid((32, 32), 1, 2)}
    settings = {"n_samples": 12, "n_cluster_images": 40, "sample_batch_size": 12, "on_error": "raise"}
    monitor = PixelClusterMonitor(**regions, site_encoder=Latents(folder), **settings)
    train, val = loader(halves(60, 1), 30), loader(halves(12, 2), 12)
    fit(tmp_path, monitor, module=Halves(), train=train, val=val, max_epochs=1)
    (check,) = measured(monitor)
    assert check["image"] < monitor.baseline["image"][0]
    if not found:
        assert check["share_2"] > 0.5  # the right half; the encoder mixes the two
    labels, shown = monitor.partition.labels, monitor._image_labels()
    assert labels.shape == (32, 32)
    assert shown.shape == (256, 256)
    assert torch.equal(shown[::8, ::8], labels)
    assert (tmp_path / "genmonitor" / "cms_clusters_over_average.png").exists()
