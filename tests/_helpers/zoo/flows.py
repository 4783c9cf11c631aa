# SPDX-License-Identifier: Apache-2.0
"""Flows, autoregressive models and energies."""

import torch
from _helpers.zoo.shape import Shape
from lightning import LightningModule
from torch import nn
from torch.nn import functional as F


class Energy(LightningModule):
    """Samples by following gradients of an energy, from chains that a first call of `sample` starts."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Softplus(), nn.Linear(16, 1))
        self.register_buffer("chains", None, persistent=False)

    def descend(self, x, steps=3):
        for _ in range(steps):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True)
                slope = torch.autograd.grad(self.energy(x).sum(), x)[0]
            x = x.detach() - 0.1 * slope.detach() + 0.05 * torch.randn_like(x)
        return x.clamp(-1, 1)

    def sample(self, n):
        self.chains = self.descend(torch.rand(n, 1, 8, 8, device=self.device) * 2 - 1)
        return self.chains

    def training_step(self, batch, batch_idx):
        fake = self.chains[: len(batch[0])] if self.chains is not None else self.sample(len(batch[0]))
        self.chains = self.descend(fake)
        real_energy, fake_energy = self.energy(batch[0]), self.energy(self.chains)
        loss = real_energy.mean() - fake_energy.mean() + 0.1 * (real_energy.square() + fake_energy.square()).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Coupling(nn.Module):
    """Shifts and scales one half of the pixels by the other."""

    def __init__(self, flip):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 64))
        self.flip = flip

    def halves(self, x):
        a, b = x.chunk(2, 1)
        return (b, a) if self.flip else (a, b)

    def forward(self, x, back=False):
        a, b = self.halves(x)
        shift, scale = self.net(a).chunk(2, 1)
        scale = scale.tanh()
        b = (b - shift) * (-scale).exp() if back else b * scale.exp() + shift
        return torch.cat((b, a) if self.flip else (a, b), 1), scale.sum(1)


class ActNorm(nn.Module):
    """Takes its scale from its first batch, and remembers in a buffer that it did."""

    def __init__(self, size):
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.ones(size))
        self.register_buffer("initialized", torch.tensor(False))

    def forward(self, x, back=False):
        if self.training and not self.initialized:
            self.shift.data.copy_(-x.mean(0))
            self.scale.data.copy_(1 / (x.std(0) + 0.5))
            self.initialized.fill_(True)
        x = x / self.scale - self.shift if back else (x + self.shift) * self.scale
        return x, self.scale.abs().log().sum().expand(len(x))


class Flow(LightningModule):
    """Couplings with ActNorm between; `sample(num)` goes back from noise."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([ActNorm(64), Coupling(False), Coupling(True)])
        self.register_buffer("base_mean", torch.zeros(64))

    def log_likelihood(self, images):
        x = images.flatten(1) + 0.05 * torch.rand_like(images).flatten(1)
        total = 0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return total - 0.5 * (x - self.base_mean).square().sum(1)

    def training_step(self, batch, batch_idx):
        loss = -self.log_likelihood(batch[0]).mean() / 64
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_bpd", -self.log_likelihood(batch[0]).mean())

    @torch.no_grad()
    def sample(self, num):
        x = self.base_mean + torch.randn(num, 64, device=self.device)
        for layer in reversed(self.layers):
            x, _ = layer(x, back=True)
        return x.view(num, 1, 8, 8).clamp(-1, 1)

    def configure_optimizers(self):
        return torch.optim.Adamax(self.parameters(), lr=1e-3)


class PixelCNN(LightningModule):
    """Draws pixel after pixel; its images and those of its data are bytes."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 2, 1)
        mask = torch.ones(3, 3)
        mask[1, 1:] = mask[2] = 0
        self.register_buffer("mask", mask)

    def forward(self, images):
        hidden = F.conv2d(images, self.first.weight * self.mask, self.first.bias, padding=1)
        return self.last(hidden.relu())

    def training_step(self, batch, batch_idx):
        images = batch[0].to(self.last.weight.dtype) / 127.5 - 1
        loss = F.cross_entropy(self(images), (images[:, 0] > 0).long())
        self.log("loss", loss)
        return loss

    @torch.no_grad()
    def sample(self, n):
        image = torch.full((n, 1, 8, 8), -1.0, device=self.device)
        for row in range(8):
            for column in range(8):
                chances = self(image)[:, :, row, column].float().softmax(1)
                image[:, 0, row, column] = 2.0 * torch.multinomial(chances, 1)[:, 0] - 1
        return ((image + 1) * 127.5).round().to(torch.uint8)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def as_bytes(image, label):
    return ((image + 1) * 127.5).round().to(torch.uint8), label


SHAPES = {
    "energy with chains": Shape(Energy),
    "flow": Shape(Flow),
    "PixelCNN in bytes": Shape(PixelCNN, item=as_bytes),
}
