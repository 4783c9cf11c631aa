# SPDX-License-Identifier: Apache-2.0
"""Clusters and CMS on the latents of diffusers' autoencoder, for images too large to compare pixel by pixel.

    PixelClusterMonitor(n_clusters=5, site_encoder=Latents("stable-diffusion-v1-5/vae"), sample_batch_size=8)

or in a configuration, see `examples/configs`:

    site_encoder:
      class_path: vae_latents.Latents
      init_args:
        folder: stable-diffusion-v1-5/vae
"""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch import Tensor, nn


class Latents(nn.Module):
    """From images [n, 3, h, w] in [-1, 1] to latents, their mean: [n, 4, h/8, w/8] for Stable Diffusion's.

    A site of the clusters is then a place of the latents: 256×256 images have 32×32 of them.

    Args:
        folder: with the `config.json` and the weights of an AutoencoderKL, for example the folder `vae` of a download
            of Stable Diffusion. Nothing is downloaded.

    Raises:
        OSError: if the folder holds no such model.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.vae = AutoencoderKL.from_pretrained(str(folder), local_files_only=True)
        self.eval().requires_grad_(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        latents: Tensor = self.vae.to(images.device).encode(images).latent_dist.mean
        return latents
