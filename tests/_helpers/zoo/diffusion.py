# SPDX-License-Identifier: Apache-2.0
"""Diffusion in the shapes that diffusers' training scripts have."""

import copy
import math

import torch
from _helpers.autoencoders import tiny_vae
from _helpers.zoo.shape import Shape
from diffusers import DDIMScheduler, DDPMScheduler
from lightning import LightningModule
from torch import nn
from torch.nn import functional as F


class Denoiser(nn.Module):
    """Guesses noise from images, time, and a code of what is wanted."""

    def __init__(self, channels=1, side=8, width=8):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, channels, 3, padding=1)
        self.norm, self.dropout = nn.GroupNorm(4, width), nn.Dropout(0.1)
        self.width = width

    def forward(self, x, time, code=None):
        time = torch.as_tensor(time, device=x.device).expand(len(x)).to(x.dtype)
        waves = time[:, None] / 10 * torch.arange(1, self.width + 1, device=x.device)
        hidden = self.enter(x) + waves.sin()[:, :, None, None].to(x.dtype)
        hidden = hidden if code is None else hidden + code[:, :, None, None]
        return self.leave(self.dropout(F.silu(self.norm(hidden))))


class DDPM(LightningModule):
    """Trains and samples by the same scheduler object, whose timesteps sampling sets."""

    shape = (1, 8, 8)

    def __init__(self):
        super().__init__()
        self.net = Denoiser(self.shape[0])
        self.scheduler = DDPMScheduler(num_train_timesteps=20)

    def loss(self, x, code=None):
        noise = torch.randn_like(x)
        steps = torch.randint(0, self.scheduler.config.num_train_timesteps, (len(x),), device=x.device)
        return F.mse_loss(self.net(self.scheduler.add_noise(x, noise, steps), steps, code), noise)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch[0])
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch[0]))

    def denoise(self, guess, n):
        x = torch.randn(n, *self.shape, device=self.device)
        self.scheduler.set_timesteps(4)
        for step in self.scheduler.timesteps:
            x = self.scheduler.step(guess(x, step), step, x).prev_sample
        return x.clamp(-1, 1)

    def sample(self, n):
        return self.denoise(self.net, n)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / math.sqrt(1 + step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class BorrowedAverage(DDPM):
    """For sampling it lends the averaged weights to the network, and takes them back."""

    def __init__(self):
        super().__init__()
        self.scheduler = DDIMScheduler(num_train_timesteps=20)
        self.average = copy.deepcopy(self.net).requires_grad_(False)

    def on_before_zero_grad(self, optimizer):
        for slow, fast in zip(self.average.parameters(), self.net.parameters(), strict=True):
            slow.lerp_(fast.detach(), 0.2)

    def sample(self, n):
        stored = [x.detach().clone() for x in self.net.parameters()]
        for fast, slow in zip(self.net.parameters(), self.average.parameters(), strict=True):
            fast.data.copy_(slow.data)
        try:
            return super().sample(n)
        finally:
            for fast, before in zip(self.net.parameters(), stored, strict=True):
                fast.data.copy_(before)


class OnlyLatents(DDPM):
    """Diffuses what a frozen autoencoder makes of images; its samples are latents, of another size than images."""

    shape = (2, 4, 4)

    def __init__(self):
        super().__init__()
        self.vae = tiny_vae(latent_channels=2).eval().requires_grad_(False)

    def encode(self, images):
        return self.vae.encode(images.expand(-1, 3, -1, -1)).latent_dist.mean

    def training_step(self, batch, batch_idx):
        with torch.no_grad():
            latents = self.encode(batch[0])
        loss = self.loss(latents)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)


def decoded(module, n):
    return module.vae.decode(module.sample(n)).sample.mean(1, keepdim=True).clamp(-1, 1)


def pooled_sites(images):
    return F.avg_pool2d(images, 2)


WORDS = ("a zero", "a one", "a two", "a three", "a four")


def embed_words(prompts):
    letters = torch.tensor([[float(ord(c)) for c in prompt.ljust(8)[:8]] for prompt in prompts])
    return (letters / 50).sin()


class GuidedByText(DDPM):
    """Takes strings, which batches hold as captions in a dictionary, and makes no image without one."""

    sample = None

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8)

    def code(self, prompts):
        return self.project(embed_words(prompts).to(self.device, self.project.weight.dtype))

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch["pixel_values"], self.code(batch["caption"]))
        self.log("loss", loss, batch_size=len(batch["caption"]))
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def sample_prompts(self, prompts):
        code = self.code(prompts)
        return self.denoise(lambda x, step: self.net(x, step, code), len(prompts))


def captioned(image, label):
    return {"pixel_values": image, "caption": WORDS[label % 5]}


TEXT = {"prompt_encoder": embed_words}
SHAPES = {
    "DDPM with one scheduler": Shape(DDPM),
    "DDIM that borrows its average": Shape(BorrowedAverage),
    "latent diffusion, latents only": Shape(
        OnlyLatents, {"sample_fn": decoded}, {"site_encoder": pooled_sites}, refused="`sample_fn`"
    ),
    "guided by text": Shape(
        GuidedByText,
        clusters={"prompts": WORDS},
        prompts=WORDS,
        prompted=TEXT,
        item=captioned,
        refused="Give `prompts=`",
    ),
}
