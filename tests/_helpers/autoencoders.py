# SPDX-License-Identifier: Apache-2.0
"""An autoencoder of diffusers' that is small and knows nothing, for the tests."""

from diffusers import AutoencoderKL


def tiny_vae(latent_channels, sides=2):
    """diffusers' autoencoder with random weights, halving the side once for two `sides` and so on."""
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * sides,
        up_block_types=("UpDecoderBlock2D",) * sides,
        block_out_channels=(4,) * sides,
        latent_channels=latent_channels,
        norm_num_groups=2,
    )
    return vae.eval().requires_grad_(False)
