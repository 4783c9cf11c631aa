# SPDX-License-Identifier: Apache-2.0
"""GANs: optimized by hand, with gradients clipped, with low-resolution inputs."""

from collections import deque

import torch
from _helpers.zoo.shape import Shape
from lightning import LightningModule
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm


def small_generator(latent=4):
    return nn.Sequential(nn.Linear(latent, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 64), nn.Tanh())


def small_critic(inputs=64):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 16), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(16, 1))


class GAN(LightningModule):
    """Toggles its two optimizers; `forward(z)`, an example input, a fixed z for pictures, no `sample`."""

    def __init__(self, latent_dim=4, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator, self.discriminator = small_generator(latent_dim), small_critic()
        self.validation_z = torch.randn(8, latent_dim)
        self.example_input_array = torch.zeros(2, latent_dim)

    def forward(self, z):
        return self.generator(z).view(-1, 1, 8, 8)

    def noise(self, like):
        return torch.randn(len(like), self.hparams.latent_dim).type_as(like)

    def adversarial(self, scores, real):
        return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))

    def learn(self, optimizer, loss, name):
        self.log(name, loss, prog_bar=True)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def training_step(self, batch):
        images = batch[0]
        optimizer_g, optimizer_d = self.optimizers()
        self.toggle_optimizer(optimizer_g)
        scores = self.discriminator(self(self.noise(images)))
        self.learn(optimizer_g, self.adversarial(scores, True), "loss_g")
        self.untoggle_optimizer(optimizer_g)
        self.toggle_optimizer(optimizer_d)
        fake = self(self.noise(images)).detach()
        real_loss = self.adversarial(self.discriminator(images), True)
        loss = (real_loss + self.adversarial(self.discriminator(fake), False)) / 2
        self.learn(optimizer_d, loss, "loss_d")
        self.untoggle_optimizer(optimizer_d)

    def validation_step(self, batch):
        pass

    def on_validation_epoch_end(self):
        self(self.validation_z.type_as(self.generator[0].weight))

    def configure_optimizers(self):
        lr = self.hparams.lr
        return [torch.optim.Adam(part.parameters(), lr=lr) for part in (self.generator, self.discriminator)], []


def from_latents(module, n):
    return module(torch.randn(n, module.hparams.latent_dim, device=module.device))


class DCGAN(GAN):
    """Convolutions with weights of its own choosing, spectral norms, and something to say in a checkpoint."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(
            nn.Unflatten(1, (4, 1, 1)),
            nn.ConvTranspose2d(4, 8, 4),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 4, 2, 1),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            spectral_norm(nn.Conv2d(1, 4, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(), spectral_norm(nn.Linear(64, 1))
        )
        self.generator.apply(self.initialize)
        self.saved = 0

    @staticmethod
    def initialize(part):
        if isinstance(part, (nn.ConvTranspose2d, nn.BatchNorm2d)):
            nn.init.normal_(part.weight, float(isinstance(part, nn.BatchNorm2d)), 0.02)

    def on_validation_epoch_end(self):
        pass

    def on_save_checkpoint(self, checkpoint):
        checkpoint["saved"] = self.saved = self.saved + 1

    def on_load_checkpoint(self, checkpoint):
        self.saved = checkpoint["saved"]

    def sample(self, n):
        return self(torch.randn(n, 4, device=self.device))


class Noise(nn.Module):
    """Draws from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.source = torch.Generator().manual_seed(5)

    def forward(self, n, device):
        return torch.randn(n, 4, generator=self.source).to(device)


class WassersteinGAN(GAN):
    """Clips gradients by hand, trains its critic twice, and draws noise in a part with its own torch.Generator."""

    def __init__(self):
        super().__init__()
        self.draw = Noise()

    def penalty(self, real, fake):
        t = torch.rand(len(real), 1, 1, 1, device=real.device)
        between = (t * real + (1 - t) * fake).detach().requires_grad_(True)
        slope = torch.autograd.grad(self.discriminator(between).sum(), between, create_graph=True)[0]
        return (slope.flatten(1).norm(dim=1) - 1).square().mean()

    def training_step(self, batch, batch_idx):
        real = batch[0]
        optimizer_g, optimizer_d = self.optimizers()
        for _ in range(2):
            fake = self.sample(len(real)).detach()
            loss = self.discriminator(fake).mean() - self.discriminator(real).mean() + self.penalty(real, fake)
            optimizer_d.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(optimizer_d, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer_d.step()
        self.learn(optimizer_g, -self.discriminator(self.sample(len(real))).mean(), "loss_g")
        self.log("loss_d", loss)

    def sample(self, n):
        return self(self.draw(n, self.device))


class Remembering(GAN):
    """Keeps what it drew, counts how often, and trains on what it keeps."""

    def __init__(self):
        super().__init__()
        self.replay, self.drawn, self.log_of_draws = deque(maxlen=3), 0, {"sizes": []}

    def sample(self, n):
        images = self(torch.randn(n, 4, device=self.device))
        self.drawn += n
        self.replay.append(images.detach())
        return images

    def training_step(self, batch):
        images = batch[0]
        optimizer_g, optimizer_d = self.optimizers()
        self.learn(optimizer_g, self.adversarial(self.discriminator(self.sample(len(images))), True), "loss_g")
        past = torch.cat(list(self.replay)).to(images.dtype)
        loss = self.adversarial(self.discriminator(past), False) * (1 + self.drawn / 1000)
        self.learn(optimizer_d, loss + self.adversarial(self.discriminator(images), True), "loss_d")


LATENTS = {"sample_fn": from_latents}
SHAPES = {
    "GAN": Shape(GAN, LATENTS, manual=True, refused="`sample_fn="),
    "DCGAN": Shape(DCGAN, manual=True),
    "GAN with a replay buffer": Shape(Remembering, manual=True),
    "WGAN, its own torch.Generator": Shape(WassersteinGAN, manual=True),
}
