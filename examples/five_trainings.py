# SPDX-License-Identifier: Apache-2.0
"""Five trainings in the shapes that published code has, each with a monitor in three added lines.

    python examples/five_trainings.py latent_diffusion

Latent diffusion with Lightning, a diffusion model of scans, a GAN with adaptive augmentation, EDM with classes by
accelerate, flow matching. The models are tiny and the images are drawn, so each takes a minute or two on two cores. The
lines that end in "# monitor" are all that was added; without them the weights are the same to the last bit.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from data import digits
from diffusers import DDIMScheduler, DDPMScheduler
from drawn_faces import faces
from lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from genmonitor import LoopMonitor  # monitor
from genmonitor.callbacks import PixelClusterMonitor  # monitor


class Net(nn.Module):
    """A network from images, times and classes to images of the same size; class -1 stands for none.

    Args:
        channels: of the images.
        width: channels inside.
        classes: their number.
    """

    def __init__(self, channels: int, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.of_time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.of_class = nn.Embedding(classes + 1, width)
        self.start = nn.Conv2d(channels, width, 3, padding=1)
        self.middle = nn.Sequential(
            nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.SiLU(), nn.Dropout(0.05)
        )
        self.end = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, images: Tensor, times: Tensor, classes: Tensor | None = None) -> Tensor:
        """Return images [n, c, h, w] for noisy ones, their times [n] and perhaps classes [n]."""
        inside = self.of_time(times.float().view(-1, 1))
        inside = inside + (0 if classes is None else self.of_class(classes + 1))
        features = self.start(images) + inside[:, :, None, None]
        end: Tensor = self.end(features + self.middle(features))
        return end


# Latent diffusion: a frozen autoencoder, a U-Net of latents with an average of its weights, guidance without a
# classifier, and images that the module draws for its log.


class FirstStage(nn.Module):
    """A tiny autoencoder, trained before."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.SiLU(), nn.Conv2d(32, 4, 3, padding=1))
        self.decoder = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), nn.SiLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))

    def fit(self, images: Tensor) -> FirstStage:
        """Train it to give images back."""
        optimizer = torch.optim.Adam(self.parameters(), 3e-3)
        for batch in DataLoader(TensorDataset(images), 64, shuffle=True):
            loss = F.mse_loss(self.decoder(self.encoder(batch[0])), batch[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return self


class LatentDiffusion(LightningModule):
    """Denoises latents of a frozen first stage."""

    def __init__(self, first_stage: FirstStage) -> None:
        super().__init__()
        self.first_stage_model = first_stage.eval().requires_grad_(False)
        self.model, self.schedule = Net(4), DDPMScheduler(100)
        self.model_ema = deepcopy(self.model).requires_grad_(False)
        self.register_buffer("scale_factor", torch.tensor(1.0))

    @contextmanager
    def ema_scope(self) -> Iterator[None]:
        """Use the averaged weights inside the block."""
        own, self.model = self.model, self.model_ema
        try:
            yield
        finally:
            self.model = own

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Scale latents to unit variance, by the first batch."""
        if self.global_step == 0:
            self.scale_factor.fill_(1 / self.first_stage_model.encoder(batch[0]).std())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Predict the noise in latents, of one image in ten without its class."""
        latents = self.scale_factor * self.first_stage_model.encoder(batch[0])
        classes = torch.where(torch.rand(len(latents), device=self.device) < 0.1, -1, batch[1])
        noise, times = torch.randn_like(latents), torch.randint(100, (len(latents),), device=self.device)
        loss = F.mse_loss(self.model(self.schedule.add_noise(latents, noise, times), times / 100, classes), noise)
        self.log("train/loss_simple", loss)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        """Move the average."""
        for average, own in zip(self.model_ema.parameters(), self.model.parameters(), strict=True):
            average.lerp_(own.detach(), 0.01)

    @torch.no_grad()
    def log_images(self, n: int = 8, steps: int = 10, guidance: float = 2.0) -> dict[str, Tensor]:
        """Draw images for the log."""
        sampler = DDIMScheduler.from_config(self.schedule.config)
        sampler.set_timesteps(steps)
        latents, classes = torch.randn(n, 4, 4, 4, device=self.device), torch.arange(n, device=self.device) % 10
        with self.ema_scope():
            for time in sampler.timesteps:
                times = torch.full((n,), int(time) / 100, device=self.device)
                with_class, without = self.model(latents, times, classes), self.model(latents, times)
                latents = sampler.step(without + guidance * (with_class - without), time, latents).prev_sample
        return {"samples": self.first_stage_model.decoder(latents / self.scale_factor).clamp(-1, 1)}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Optimize the U-Net alone."""
        return torch.optim.AdamW(self.model.parameters(), 1e-3)


def latent_diffusion(folder: Path, epochs: int = 20) -> nn.Module:
    """Train it on digits by Lightning's Trainer."""
    images, classes = (torch.stack([*x]) for x in zip(*digits(with_labels=True)[0], strict=True))
    loader = DataLoader(TensorDataset(images, classes), 64, shuffle=True)
    model = LatentDiffusion(FirstStage().fit(images))
    trainer = Trainer(
        max_epochs=epochs,
        callbacks=[PixelClusterMonitor(sample_fn=lambda model, n: model.log_images(n)["samples"])],  # monitor
        default_root_dir=folder,
        gradient_clip_val=1.0,
        enable_progress_bar=False,
    )
    trainer.fit(model, loader)
    return model


# Scans: dictionaries that a chain of transforms makes, mixed precision, and a separate object that draws.


def window(item: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scale intensities to [0, 1]."""
    return {**item, "image": item["image"].clamp(0, 4095) / 4095}


def mirror(item: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Mirror half of the scans."""
    return {**item, "image": item["image"].flip(-1) if random.random() < 0.5 else item["image"]}


class Scans(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Scans drawn in code, [channels, 16, 16] of 12 bits: an oval body with an organ."""

    def __init__(self, count: int, channels: int, transforms: tuple[Callable[[Any], Any], ...]) -> None:
        generator = torch.Generator().manual_seed(count)
        y, x = torch.meshgrid(*2 * [torch.linspace(-1, 1, 16)], indexing="ij")
        width, bright = (0.2 * torch.rand(2, count, 1, 1, 1, generator=generator)).unbind()
        body = (6 * (0.7 + width - torch.hypot(x, y / 1.2))).sigmoid()
        organ = (9 * (0.3 + width - torch.hypot(x - 0.2, y + 0.2))).sigmoid() * (0.3 + bright)
        noise = torch.randn(count, channels, 16, 16, generator=generator)
        self.scans = (4095 * (0.5 * body + organ + 0.02 * noise)).round()
        self.transforms = transforms

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        item: dict[str, Tensor] = {"image": self.scans[index]}
        for transform in self.transforms:
            item = transform(item)
        return item


class Inferer:
    """Draws by a model and a schedule."""

    def __init__(self, scheduler: DDIMScheduler, shape: tuple[int, int, int]) -> None:
        self.scheduler, self.shape = scheduler, shape

    @torch.no_grad()
    def sample(self, n: int, model: nn.Module) -> Tensor:
        """Draw n images."""
        images = torch.randn(n, *self.shape)
        self.scheduler.set_timesteps(10)
        for time in self.scheduler.timesteps:
            images = self.scheduler.step(model(images, torch.full((n,), time / 100)), time, images).prev_sample
        return images.clamp(0, 1)


def scans(folder: Path, epochs: int = 40, channels: int = 1, val_interval: int = 10) -> nn.Module:
    """Train a diffusion model of scans with one channel or three, in a loop of its own."""
    train, held_out = Scans(600, channels, (window, mirror)), Scans(500, channels, (window,))
    model, scheduler = Net(channels), DDPMScheduler(100)
    inferer = Inferer(DDIMScheduler.from_config(scheduler.config), (channels, 16, 16))
    optimizer, scaler = torch.optim.Adam(model.parameters(), 1e-3), torch.amp.GradScaler("cpu")
    monitor = LoopMonitor(folder=folder, real_images=train, validation_images=held_out)  # monitor
    for epoch in range(epochs):
        model.train()
        for batch in DataLoader(train, 64, shuffle=True):
            images = batch["image"]
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16):
                noise, times = torch.randn_like(images), torch.randint(100, (len(images),))
                loss = F.mse_loss(model(scheduler.add_noise(images, noise, times), times / 100).float(), noise)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if (epoch + 1) % val_interval == 0:
            model.eval()
            monitor.evaluate(lambda n: inferer.sample(n, model), model, step=epoch, epoch=epoch)  # monitor
            torch.save(model.state_dict(), folder / "model.pth")
    return model


# A GAN with adaptive augmentation: the augmentation is as strong as keeps the discriminator's signs on real images
# where they should be; penalties in some steps only; the average is what draws.


class Generator(nn.Module):
    """A mapping of codes to styles, a constant that they modulate, and noise that it adds."""

    def __init__(self) -> None:
        super().__init__()
        self.mapping = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32))
        self.constant, self.noise = nn.Parameter(torch.randn(32, 4, 4)), nn.Parameter(torch.zeros(()))
        self.end = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 1, 3, padding=1))
        self.register_buffer("w_avg", torch.zeros(32))

    def forward(self, codes: Tensor, truncation: float = 1.0) -> Tensor:
        """Return images for codes [n, 16]."""
        styles = self.mapping(F.normalize(codes))
        if self.training:
            self.w_avg.copy_(styles.detach().mean(0).lerp(self.w_avg, 0.99))
        styles = self.w_avg.lerp(styles, truncation)
        features = self.constant * (1 + styles[:, :, None, None])
        images: Tensor = self.end(F.leaky_relu(features + self.noise * torch.randn_like(features[:, :1]), 0.2))
        return images.tanh()


class Augment(nn.Module):
    """Shifts and brightens images with a probability that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("p", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        """Augment each image, or not."""
        chosen = torch.rand(len(images), 1, 1, 1, device=images.device) < self.p
        shifted = images.roll(int(torch.randint(-1, 2, ())), 3) + 0.2 * torch.randn_like(images[:, :1, :1, :1])
        return torch.where(chosen, shifted, images)


def adaptive_gan(folder: Path, kimg: float = 40.96, batch_size: int = 32, tick: int = 10240) -> nn.Module:
    """Train it on digits, counting images rather than epochs."""
    images = torch.stack([*digits()[0]])
    generator, augment = Generator(), Augment()
    discriminator = nn.Sequential(
        nn.Conv2d(1, 32, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()
    ).append(nn.Linear(256, 1))
    average = deepcopy(generator).eval().requires_grad_(False)
    of_g, of_d = (torch.optim.Adam(x.parameters(), 2e-3, betas=(0.0, 0.99)) for x in (generator, discriminator))
    seen, signs = 0, []

    def draw(n: int) -> Tensor:
        return average(torch.randn(n, 16), truncation=0.9)

    monitor = LoopMonitor(folder=folder, real_images=images)  # monitor
    while seen < 1000 * kimg:
        real = images[torch.randint(len(images), (batch_size,))]
        of_g.zero_grad()
        F.softplus(-discriminator(augment(generator(torch.randn(batch_size, 16))))).mean().backward()
        of_g.step()
        real = augment(real).requires_grad_(seen // batch_size % 16 == 0)
        logits = discriminator(real)
        fake = generator(torch.randn(batch_size, 16)).detach()
        loss = F.softplus(-logits).mean() + F.softplus(discriminator(augment(fake))).mean()
        if real.requires_grad:  # the penalty is lazy
            (gradient,) = torch.autograd.grad(logits.sum(), real, create_graph=True)
            loss = loss + 16 * 0.5 * gradient.square().sum((1, 2, 3)).mean()
        of_d.zero_grad()
        loss.backward()
        of_d.step()
        for own, moved in zip(generator.parameters(), average.parameters(), strict=True):
            moved.lerp_(own.detach(), 0.02)
        for own, moved in zip(generator.buffers(), average.buffers(), strict=True):
            moved.copy_(own)
        seen += batch_size
        signs.append(float(logits.detach().sign().mean()))
        if len(signs) == 4:
            adjust = (1 if sum(signs) / 4 > 0.6 else -1) * 4 * batch_size / 5000
            augment.p.add_(adjust).clamp_(0, 0.8)
            signs.clear()
        if seen % tick == 0:
            monitor.evaluate(draw, average, step=seen, epoch=seen / 1000)  # monitor
            torch.save(average.state_dict(), folder / f"network-snapshot-{seen:06d}.pt")
    return nn.ModuleList([generator, discriminator, augment, average])


# EDM: a preconditioned denoiser of images with classes, its loss weighed by noise level, Heun's sampler, accelerate.


class Preconditioned(nn.Module):
    """A denoiser whose inputs and outputs have unit variance at every noise level."""

    def __init__(self, net: Net, sigma_data: float = 0.5) -> None:
        super().__init__()
        self.net, self.sigma_data = net, sigma_data

    def forward(self, noisy: Tensor, sigma: Tensor, classes: Tensor) -> Tensor:
        """Return denoised images for noise levels [n]."""
        s, d = sigma.view(-1, 1, 1, 1), self.sigma_data
        total = (s**2 + d**2).sqrt()
        found: Tensor = self.net(noisy / total, sigma.log() / 4, classes)
        return noisy * d**2 / total**2 + found * s * d / total

    @torch.no_grad()
    def draw(self, n: int, steps: int = 6) -> Tensor:
        """Draw n images, of each class in turn, in Heun's steps."""
        classes = torch.arange(n) % 3
        levels = torch.cat([torch.linspace(80 ** (1 / 7), 0.02 ** (1 / 7), steps) ** 7, torch.zeros(1)])
        images = levels[0] * torch.randn(n, 3, 32, 32)
        for now, after in pairwise(levels):
            slope = (images - self(images, now.expand(n), classes)) / now
            moved = images + (after - now) * slope
            if after:
                slope = (slope + (moved - self(moved, after.expand(n), classes)) / after) / 2
            images = images + (after - now) * slope
        return images.clamp(-1, 1)


def edm(folder: Path, steps: int = 400) -> nn.Module:
    """Train it on drawn faces of 32×32×3, whose classes are the shapes of their eyes."""
    images, classes = faces(2000, torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(2 * images - 1, classes), 32, shuffle=True)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = Preconditioned(Net(3, 16, classes=3))
    average = deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    warmed_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 20))
    model, optimizer, loader, warmed_up = accelerator.prepare(model, optimizer, loader, warmed_up)
    monitor = LoopMonitor(folder=folder, real_images=2 * images - 1)  # monitor
    step = 0
    while step < steps:
        for clean, of_class in loader:
            with accelerator.accumulate(model):
                sigma = (1.2 * torch.randn(len(clean)) - 1.2).exp()
                weight = (sigma**2 + 0.25) / (0.5 * sigma) ** 2
                denoised = model(clean + sigma.view(-1, 1, 1, 1) * torch.randn_like(clean), sigma, of_class)
                loss = (weight * (denoised - clean).square().mean((1, 2, 3))).mean()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                warmed_up.step()
                optimizer.zero_grad()
            inside = accelerator.unwrap_model(model)
            for own, moved in zip(inside.parameters(), average.parameters(), strict=True):
                moved.lerp_(own.detach(), 0.02)
            step += 1
            if step % (steps // 2) == 0:
                accelerator.save(average.state_dict(), folder / f"{step}.pt")
                monitor.evaluate(average.draw, average, step=step, epoch=step / len(loader))  # monitor
            if step == steps:
                break
    return nn.ModuleList([inside, average])


# Flow matching: the velocity of straight lines from noise to images, batches without end, a warmed-up rate.


def endless(loader: DataLoader[Any]) -> Iterator[Tensor]:
    """Yield batches of one pass after another."""
    while True:
        for (batch,) in loader:
            yield batch


def flow_matching(folder: Path, steps: int = 800) -> nn.Module:
    """Train it on digits."""
    images = torch.stack([*digits()[0]])
    batches = endless(DataLoader(TensorDataset(images), 128, shuffle=True, drop_last=True))
    net = Net(1)
    average = deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    warmed_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step, 50) / 50)
    monitor = LoopMonitor(folder=folder, real_images=images)  # monitor

    @torch.no_grad()
    def integrate(n: int, steps: int = 10) -> Tensor:
        x = torch.randn(n, 1, 8, 8)
        for step in range(steps):
            x = x + average(x, torch.full((n,), step / steps)) / steps
        return x.clamp(-1, 1)

    for step in range(1, steps + 1):
        optimizer.zero_grad()
        image = next(batches)
        noise, time = torch.randn_like(image), torch.rand(len(image))
        between = torch.lerp(noise, image, time.view(-1, 1, 1, 1))
        F.mse_loss(net(between, time), image - noise).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        warmed_up.step()
        for own, moved in zip(net.state_dict().values(), average.state_dict().values(), strict=True):
            moved.lerp_(own, 0.01)
        if step % (steps // 2) == 0:
            torch.save(average.state_dict(), folder / f"ema-{step}.pt")
            monitor.evaluate(integrate, average, step=step, epoch=step / 10)  # monitor
    return nn.ModuleList([net, average])


TRAININGS = {x.__name__: x for x in (latent_diffusion, scans, adaptive_gan, edm, flow_matching)}


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", choices=TRAININGS)
    parser.add_argument("--out", type=Path, help="folder of the run (default: runs/ and the training's name)")
    args = parser.parse_args()
    folder = args.out or Path("runs") / args.training
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    TRAININGS[args.training](folder)


if __name__ == "__main__":
    main()
