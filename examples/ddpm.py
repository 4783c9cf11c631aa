# SPDX-License-Identifier: Apache-2.0
"""A diffusion model (Ho et al., arXiv 2006.11239) on diffusers' U-Net and schedulers, by class if there are classes.

`python examples/train.py fit --config examples/configs/ddpm-digits.yaml` trains one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from lightning import LightningModule
from torch import Tensor
from torch.nn.functional import mse_loss

STEPS = 1000
BETAS = (1e-4, 0.02)  # linear between them, as in both papers
ANCESTRAL = {"variance_type": "fixed_large", "clip_sample": False}  # variance beta, no clipping before the last step


def make_unet(
    image_shape: Sequence[int], widths: Sequence[int], blocks: int, attention: bool, classes: int | None
) -> UNet2DModel:
    """Return a U-Net that halves the image's side once between two widths.

    Args:
        image_shape: (c, h, w); h and w must be multiples of 2 to the power of len(widths) - 1.
        widths: channels at each resolution, the image's own first; multiples of 8.
        blocks: residual blocks at each resolution.
        attention: whether all resolutions but the first have self-attention.
        classes: their number; there is one more embedding, for "no class". None: no embedding.

    Raises:
        ValueError: if the side cannot be halved so often.
    """
    channels, *sides = image_shape
    factor = 2 ** (len(widths) - 1)
    if any(side % factor for side in sides):
        raise ValueError(
            f"Expected `image_shape` (c, h, w) with h and w multiples of {factor} for {len(widths)} `widths`, but got "
            f"{tuple(image_shape)}. Give fewer widths or other images."
        )
    kinds = ["", *(["Attn" if attention else ""] * (len(widths) - 1))]
    return UNet2DModel(
        sample_size=tuple(sides),  # which the pipelines of diffusers read
        in_channels=channels,
        out_channels=channels,
        down_block_types=tuple(f"{kind}DownBlock2D" for kind in kinds),
        up_block_types=tuple(f"{kind}UpBlock2D" for kind in reversed(kinds)),
        block_out_channels=tuple(widths),
        layers_per_block=blocks,
        norm_num_groups=8,
        add_attention=attention,
        num_class_embeds=None if classes is None else classes + 1,
    )


class DDPM(LightningModule):
    """A denoising diffusion model of images [n, c, h, w] in [-1, 1].

    It learns to predict the noise on a linear schedule. With `classes` it learns with and without them
    (classifier-free guidance, Ho and Salimans, arXiv 2207.12598) and batches are pairs of images and labels.

    Args:
        image_shape: (c, h, w).
        widths: see `make_unet`. The paper on pixel clusters (arXiv 2409.01314) uses 64, 128, 256, 256 at 64 px.
        blocks: see `make_unet`.
        attention: see `make_unet`.
        classes: number of classes; None for a model without.
        label_dropout: fraction of the training images whose class is withheld.
        guidance: 1 samples each class as it was learned, 0 ignores it; beyond 1 classes are clearer and less varied, at
            twice the time.
        steps: of the schedule; the paper on pixel clusters draws its samples of ChestMNIST in 400.
        sampler: "ddim" (Song et al., arXiv 2010.02502), where the noise at the start is the only one and few steps are
            enough, or "ancestral" (Ho et al., Algorithm 2, with the larger of the two variances), which adds noise at
            each step and wants all of them: the paper's.
        sampling_steps: a divisor of `steps`.
        lr: learning rate of AdamW.
        weight_decay: of AdamW.

    Raises:
        ValueError: if the image's side does not fit the widths, the steps are no divisor, or there is no such sampler.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...] = (1, 8, 8),
        widths: tuple[int, ...] = (32, 64),
        blocks: int = 1,
        attention: bool = False,
        classes: int | None = None,
        label_dropout: float = 0.1,
        guidance: float = 1.0,
        steps: int = STEPS,
        sampler: Literal["ddim", "ancestral"] = "ddim",
        sampling_steps: int = 50,
        lr: float = 1e-3,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__()
        if steps % sampling_steps:  # diffusers would stop short of the image
            raise ValueError(
                f"Expected `sampling_steps` to divide `steps`={steps}, but got {sampling_steps}. Give a tenth of them."
            )
        if sampler not in ("ddim", "ancestral"):
            raise ValueError(f'Expected `sampler` as "ddim" or "ancestral", but got {sampler!r}.')
        self.save_hyperparameters()
        self.image_shape, self.classes = tuple(image_shape), classes
        self.label_dropout, self.guidance, self.sampling_steps = label_dropout, guidance, sampling_steps
        self.lr, self.weight_decay = lr, weight_decay
        self.unet = make_unet(image_shape, widths, blocks, attention, classes)
        self.schedule = DDPMScheduler(num_train_timesteps=steps, beta_start=BETAS[0], beta_end=BETAS[1])
        # "trailing" begins at the last step, where an image is nothing but noise: that is what sampling starts from
        kind, more = (DDIMScheduler, {}) if sampler == "ddim" else (DDPMScheduler, ANCESTRAL)
        self.sampler = kind.from_config(self.schedule.config, timestep_spacing="trailing", **more)

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        """Predict the noise in images at random steps."""
        images, labels = self.unpack(batch)
        noise = torch.randn_like(images)
        times = torch.randint(self.schedule.config.num_train_timesteps, (len(images),), device=self.device)
        if labels is not None:
            labels = self.withhold(labels, torch.rand(len(labels), device=self.device) < self.label_dropout)
        loss = mse_loss(self.predict(self.schedule.add_noise(images, noise, times), times, labels), noise)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(images))
        return loss

    def unpack(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """Return a batch's images and labels, if the model has classes."""
        return (batch, None) if self.classes is None else batch

    def withhold(self, labels: Tensor, where: Tensor) -> Tensor:
        """Replace labels [n] by "no class" where a mask [n] says so."""
        assert self.classes is not None
        return labels.masked_fill(where, self.classes)

    def predict(self, images: Tensor, times: Tensor, labels: Tensor | None) -> Tensor:
        """Return the noise in images [n, c, h, w] at these steps, given their labels."""
        noise: Tensor = self.unet(images, times, class_labels=labels).sample
        return noise

    def validation_step(self, batch: Any, batch_index: int) -> None:
        """Only there so that the Trainer has a validation loop, in which monitors run."""

    def sample(self, n: int) -> Tensor:
        """Draw n images, of random classes if there are classes."""
        labels = None if self.classes is None else torch.randint(self.classes, (n,), device=self.device)
        return self.denoise(torch.randn(n, *self.image_shape, device=self.device), labels)

    def sample_prompts(self, labels: Tensor) -> Tensor:
        """Draw an image of each class [n]."""
        return self.denoise(torch.randn(len(labels), *self.image_shape, device=self.device), labels)

    def denoise(self, images: Tensor, labels: Tensor | None) -> Tensor:
        """Turn noise [n, c, h, w] into images in [-1, 1]."""
        self.sampler.set_timesteps(self.sampling_steps, device=self.device)
        for time in self.sampler.timesteps:
            images = self.sampler.step(self.guided(images, time, labels), time, images).prev_sample
        return images.clamp(-1, 1)

    def guided(self, images: Tensor, time: Tensor, labels: Tensor | None) -> Tensor:
        """Return the noise in images [n, c, h, w], guided by their labels."""
        if labels is None or self.guidance == 1:
            return self.predict(images, time, labels)
        without = self.withhold(labels, torch.ones(len(labels), dtype=torch.bool, device=labels.device))
        both = self.predict(images.repeat(2, 1, 1, 1), time, torch.cat([labels, without]))
        given, ignored = both.chunk(2)
        return ignored + self.guidance * (given - ignored)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.parameters(), self.lr, weight_decay=self.weight_decay)
