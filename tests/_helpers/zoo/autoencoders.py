# SPDX-License-Identifier: Apache-2.0
"""Autoencoders as in the examples of Lightning, in its bolts and in tutorials."""

import torch
from _helpers.zoo.shape import Shape
from lightning import LightningModule
from torch import nn
from torch.distributions import Categorical, Gamma, Normal, kl_divergence
from torch.nn import functional as F
from torchmetrics import MeanMetric


class VAE(LightningModule):
    """Logs reconstruction and divergence as a dictionary, in every step; the prior is a buffer."""

    def __init__(self, latent=4, kl_weight=0.1):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.mean, self.log_var = nn.Linear(32, latent), nn.Linear(32, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 64), nn.Tanh())
        self.register_buffer("prior_scale", torch.ones(latent))
        self.kl_weight = kl_weight

    def _step(self, batch):
        images = batch[0]
        x = self.encoder(images)
        posterior = Normal(self.mean(x), (0.5 * self.log_var(x)).exp())
        decoded = self.decoder(posterior.rsample()).view_as(images)
        divergence = kl_divergence(posterior, Normal(torch.zeros_like(self.prior_scale), self.prior_scale)).mean()
        reconstruction = F.mse_loss(decoded, images)
        logs = {"recon": reconstruction, "kl": divergence, "loss": reconstruction + self.kl_weight * divergence}
        return logs["loss"], logs

    def training_step(self, batch, batch_idx):
        loss, logs = self._step(batch)
        self.log_dict({f"train_{name}": value for name, value in logs.items()}, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, logs = self._step(batch)
        self.log_dict({f"val_{name}": value for name, value in logs.items()})
        return loss

    def sample(self, n):
        prior = Normal(torch.zeros_like(self.prior_scale), self.prior_scale)
        return self.decoder(prior.sample((n,))).view(n, 1, 8, 8)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class ConditionalVAE(VAE):
    """Decodes a code beside a class; the classes are prompts."""

    def __init__(self):
        super().__init__(latent=4)
        self.classes = nn.Embedding(10, 4)

    def _step(self, batch):
        images, labels = batch
        x = self.encoder(images)
        z = self.mean(x) + (0.5 * self.log_var(x)).exp() * torch.randn(len(x), 4, device=self.device)
        loss = F.mse_loss(self.decoder(z + self.classes(labels)).view_as(images), images)
        return loss, {"loss": loss}

    def sample_prompts(self, labels):
        z = torch.randn(len(labels), 4, device=self.device)
        return self.decoder(z + self.classes(labels)).view(-1, 1, 8, 8)

    def sample(self, n):
        return self.sample_prompts(torch.arange(n, device=self.device) % 10)


class GammaVAE(LightningModule):
    """Draws its codes from Gamma distributions, whose rejections take an unknown number of random numbers."""

    def __init__(self):
        super().__init__()
        self.shape = nn.Parameter(torch.zeros(4))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.SiLU(), nn.Dropout(0.2), nn.Linear(16, 64))
        self.seen_loss = MeanMetric()

    def forward(self, n):
        return self.decoder(Gamma(self.shape.exp() + 0.5, 1.0).rsample((n,))).tanh().view(n, 1, 8, 8)

    def training_step(self, batch, batch_idx):
        loss = (self(len(batch[0])).mean(0) - batch[0].mean(0)).abs().mean()
        self.seen_loss(loss.detach())
        self.log("loss", self.seen_loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        return None

    def sample(self, n):
        return self(n)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)


class VectorQuantized(LightningModule):
    """Its codebook is a buffer that training moves by averages; the prior counts how often a code was used."""

    def __init__(self, codes=8):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 4), nn.Linear(4, 64)
        self.register_buffer("codebook", torch.randn(codes, 4))
        self.register_buffer("counts", torch.ones(codes))

    def quantize(self, x):
        index = torch.cdist(x, self.codebook).argmin(1)
        if self.training:
            used = F.one_hot(index, len(self.codebook)).float()
            self.counts.mul_(0.9).add_(used.sum(0), alpha=0.1)
            means = used.T @ x.detach().float() / used.sum(0).clamp(min=1)[:, None]
            self.codebook.lerp_(torch.where(used.any(0)[:, None], means.to(self.codebook.dtype), self.codebook), 0.1)
        return x + (self.codebook[index] - x).detach()

    def training_step(self, batch, batch_idx):
        images = batch[0]
        x = self.encoder(images.flatten(1))
        quantized = self.quantize(x)
        loss = F.mse_loss(self.decoder(quantized).view_as(images), images) + 0.25 * F.mse_loss(x, quantized.detach())
        self.log("loss", loss)
        return {"loss": loss, "codes": quantized.detach()}

    def sample(self, n):
        codes = Categorical(probs=self.counts).sample((n,))
        return self.decoder(self.codebook[codes]).view(n, 1, 8, 8).clamp(-1, 1)

    def configure_optimizers(self):
        return {"optimizer": torch.optim.AdamW(self.parameters(), lr=1e-3)}


class LateMade(LightningModule):
    """Makes its layers in `configure_model`, as for models that are split over devices."""

    def __init__(self):
        super().__init__()
        self.net = None

    def configure_model(self):
        if self.net is None:
            self.net = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 64), nn.Tanh())

    def sample(self, n):
        return self.net(torch.randn(n, 4, device=self.device)).view(n, 1, 8, 8)

    def training_step(self, batch, batch_idx):
        loss = (self.sample(len(batch[0])).mean(0) - batch[0].mean(0)).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", (self.sample(len(batch[0])) - batch[0]).square().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


SHAPES = {
    "VAE": Shape(VAE),
    "conditional VAE": Shape(ConditionalVAE, prompts=range(10)),
    "VAE, Gamma": Shape(GammaVAE),
    "vector quantized": Shape(VectorQuantized),
    "configure_model": Shape(LateMade),
}
