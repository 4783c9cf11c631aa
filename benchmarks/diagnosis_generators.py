# SPDX-License-Identifier: Apache-2.0
"""Small generators that `diagnosis.py` trains, each with a fault that is known to come of how it is made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diagnosis_images import ImageSet, image_set
from diffusers import DDIMScheduler, DDPMScheduler
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.nn.functional import mse_loss, softplus

sys.path[:0] = [str(Path(__file__).parents[1] / "examples")]
from dcgan import init_weights, make_discriminator, make_generator  # noqa: E402
from ddpm import ANCESTRAL, STEPS  # noqa: E402

BATCH = 64
HELD_OUT = 2000
"""The last images of a set are not trained on."""


class VAE(nn.Module):
    """A variational autoencoder of images in [0, 1] with an L2 loss; no weight of the prior makes it a plain one."""

    def __init__(self, shape: tuple[int, int, int], latent: int = 16, width: int = 200, prior: float = 1.0) -> None:
        super().__init__()
        self.shape, self.latent, self.prior = shape, latent, prior
        pixels = int(np.prod(shape))
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, pixels), nn.Sigmoid())
        self.optimizer = torch.optim.Adam(self.parameters(), 1e-3, fused=True)

    def step(self, x: Tensor) -> None:
        """Take a step on a batch of images."""
        mean, logvar = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (logvar / 2).exp() if self.prior else mean
        divergence = (logvar.exp() + mean.square() - 1 - logvar).sum(1).mean() / 2
        loss = 10 * mse_loss(self.decode(z), x, reduction="sum") / len(x) + self.prior * divergence
        descend(self.optimizer, loss)

    def decode(self, z: Tensor) -> Tensor:
        """Turn latent vectors into images."""
        return self.decoder(z).reshape(len(z), *self.shape)

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """Draw n images."""
        return self.decode(torch.randn(n, self.latent))


class ConvolutionalVAE(VAE):
    """The same with a decoder of convolutions, which see zeros beyond the border."""

    def __init__(self, shape: tuple[int, int, int], latent: int = 16, width: int = 200, prior: float = 1.0) -> None:
        super().__init__(shape, latent, width, prior)
        side = shape[1] // 4
        self.decoder = nn.Sequential(
            *(nn.Linear(latent, 32 * side * side), nn.ReLU(), nn.Unflatten(1, (32, side, side))),
            *(nn.Upsample(scale_factor=2), nn.Conv2d(32, 16, 5, padding=2), nn.ReLU()),
            *(nn.Upsample(scale_factor=2), nn.Conv2d(16, shape[0], 5, padding=2), nn.Sigmoid()),
        )
        self.optimizer = torch.optim.Adam(self.parameters(), 1e-3, fused=True)


class GAN(nn.Module):
    """The examples' DCGAN of images in [0, 1].

    Args:
        shape: of an image.
        kernel: of the transposed convolutions of stride 2; 3 is no multiple of it.
        features: width of the networks.
    """

    def __init__(self, shape: tuple[int, int, int], kernel: int = 4, features: int = 16) -> None:
        super().__init__()
        self.generator = make_generator(shape[0], shape[1], 64, features)
        if kernel == 3:
            for name, layer in list(self.generator.named_children()):
                if isinstance(layer, nn.ConvTranspose2d) and layer.stride == (2, 2):
                    uneven = nn.ConvTranspose2d(layer.in_channels, layer.out_channels, 3, 2, 1, 1, bias=False)
                    setattr(self.generator, name, uneven.apply(init_weights))
        self.discriminator = make_discriminator(shape[0], shape[1], features)
        both = (self.generator, self.discriminator)
        self.optimizers = [torch.optim.Adam(net.parameters(), 1e-3, betas=(0.5, 0.999), fused=True) for net in both]

    def step(self, x: Tensor) -> None:
        """Take a step of both networks."""
        fake = self.generator(torch.randn(len(x), 64, 1, 1))
        real, false = self.discriminator(2 * x - 1), self.discriminator(fake.detach())  # batch norm: not in one batch
        descend(self.optimizers[1], softplus(-real).mean() + softplus(false).mean())
        descend(self.optimizers[0], softplus(-self.discriminator(fake)).mean())

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """Draw n images."""
        return (self.generator(torch.randn(n, 64, 1, 1)) + 1) / 2


class Diffusion(nn.Module):
    """A diffusion model of images in [0, 1] that predicts the image; the last of few ancestral steps adds noise."""

    def __init__(self, shape: tuple[int, int, int], steps: int = 20, ancestral: bool = False, width: int = 300) -> None:
        super().__init__()
        self.shape, self.steps, pixels = shape, steps, int(np.prod(shape))
        self.times = nn.Embedding(STEPS, 32)
        layers = (
            nn.Linear(pixels + 32, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, pixels),
        )
        self.net = nn.Sequential(*layers)
        kind, more = (DDPMScheduler, ANCESTRAL) if ancestral else (DDIMScheduler, {})
        schedule = {"num_train_timesteps": STEPS, "prediction_type": "sample", "timestep_spacing": "trailing"}
        self.scheduler = kind(**schedule, **more)
        self.optimizer = torch.optim.Adam(self.parameters(), 1e-3, fused=True)

    def predict(self, x: Tensor, times: Tensor) -> Tensor:
        """Return the images without noise."""
        return self.net(torch.cat([x.flatten(1), self.times(times)], 1)).unflatten(1, self.shape)

    def step(self, x: Tensor) -> None:
        """Take a step on a batch of images."""
        times = torch.randint(STEPS, (len(x),))
        noised = self.scheduler.add_noise(2 * x - 1, torch.randn_like(x), times)
        descend(self.optimizer, mse_loss(self.predict(noised, times), 2 * x - 1))

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """Draw n images."""
        images = torch.randn(n, *self.shape)
        self.scheduler.set_timesteps(self.steps)
        for time in self.scheduler.timesteps:
            images = self.scheduler.step(self.predict(images, time.expand(n)), time, images).prev_sample
        return ((images + 1) / 2).clamp(0, 1)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take a step down a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def trained(model: nn.Module, images: Tensor, steps: int, after_step: Callable[[int], None] = lambda _: None) -> None:
    """Train a model for so many steps on images in random order."""
    torch.set_flush_denormal(True)  # which Adam's means of pixels that never vary become, ten times as slow
    for i in range(steps):
        model.step(images[torch.randint(len(images), (BATCH,))])
        after_step(i)
    torch.set_flush_denormal(False)


# generators with a fault: images to train on -> n samples


def of(make: Callable[..., nn.Module], steps: int, /, **arguments: object) -> Callable[[ImageSet, int], Tensor]:
    """Return a generator that is trained as it should be, and is wrong by what it is."""

    def draw(data: ImageSet, n: int) -> Tensor:
        model = make(tuple(data.images.shape[1:]), **arguments)
        trained(model, data.images, steps)
        return model.eval().sample(n)

    return draw


def mixture(data: ImageSet, n: int, make: type[VAE] = VAE, steps: int = 2000) -> Tensor:
    """Draw from an autoencoder whose codes follow a mixture of Gaussians (Ghosh et al. 2020, arXiv 1903.12436)."""
    model = make(tuple(data.images.shape[1:]), latent=32, prior=0.0)
    trained(model, data.images, steps)
    with torch.no_grad():
        codes = model.encoder(data.images).chunk(2, 1)[0].double().numpy()
        fitted = GaussianMixture(40, random_state=0, reg_covar=1e-4).fit(codes)
        return model.decode(torch.tensor(fitted.sample(n)[0], dtype=torch.float32))[torch.randperm(n)]


def padded(data: ImageSet, n: int) -> Tensor:
    """Return images of a decoder whose convolutions see zeros beyond the border."""
    return mixture(data, n, ConvolutionalVAE, 500)


def of_half_range(data: ImageSet, n: int) -> Tensor:
    """Return images of half their range: what is learned in [0, 1] is written as if it were in [-1, 1]."""
    return mixture(data, n) / 2


def denormalized_wrong(data: ImageSet, n: int) -> Tensor:
    """Return images whose normalization is undone with another data set's mean and deviation."""
    mean, deviation = data.images.mean(), data.images.std()
    return (mixture(data, n) - mean) / deviation * (1.3 * deviation) + mean + 0.05


def without_class(data: ImageSet, n: int) -> Tensor:
    """Return images of all classes but those of odd number."""
    kept = data.labels % 2 == 0
    return mixture(ImageSet(data.images[kept], data.labels[kept]), n)


def memorized(data: ImageSet, n: int) -> Tensor:
    """Return images of an autoencoder that was trained on 60 images until it knows no others."""
    few = data.images[:60]
    model = VAE(tuple(few.shape[1:]), latent=60, prior=0.0)
    trained(model, few, 1500)
    with torch.no_grad():
        codes = model.encoder(few).chunk(2, 1)[0][torch.randint(len(few), (n,))]
        return model.decode(codes + 0.05 * codes.std() * torch.randn_like(codes))


def slow_average(data: ImageSet, n: int) -> Tensor:
    """Return images by averaged weights that half remember where training began."""
    model = VAE(tuple(data.images.shape[1:]))
    average = deepcopy(model)

    def follow(_: int) -> None:
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.data.lerp_(fast.data, 1 / 1500)

    trained(model, data.images, 1000, follow)
    return average.sample(n)


@dataclass(frozen=True)
class Generator:
    """A generator with a known fault.

    Attributes:
        draw: images to train on and a number -> that many samples.
        names: kinds that say what is wrong; "" for any, where `area` says it.
        area: what the finding's place must say; "" for any.
    """

    draw: Callable[[ImageSet, int], Tensor]
    names: tuple[str, ...]
    area: str = ""


GENERATORS: dict[str, tuple[Generator, tuple[str, ...]]] = {
    "VAE, L2 loss": (Generator(of(VAE, 3000), ("blurred",)), ("digits", "faces", "clothes")),
    "GAN, 3×3 transposed convolutions of stride 2": (
        Generator(of(GAN, 500, kernel=3), ("periodic",)),
        ("digits", "faces", "photographs"),
    ),
    "diffusion, 5 ancestral steps": (Generator(of(Diffusion, 1500, steps=5, ancestral=True), ("noisy",)), ("digits",)),
    "diffusion, 20 ancestral steps": (Generator(of(Diffusion, 1500, steps=20, ancestral=True), ("noisy",)), ("faces",)),
    "range halved": (Generator(of_half_range, ("faded", "darker")), ("faces", "clothes")),
    "wrong normalization": (Generator(denormalized_wrong, ("stronger", "brighter")), ("faces", "digits")),
    "classes of odd number left out": (Generator(without_class, ("modes",)), ("digits", "scenes")),
    "memorizer of 60 images": (Generator(memorized, ("copies", "modes")), ("digits", "faces")),
    "zero padding": (Generator(padded, (), "border"), ("photographs", "ovals")),
    "slow average of weights": (Generator(slow_average, ("less_varied", "blurred", "faded")), ("digits", "clothes")),
}
"""Each generator, and the sets that it is trained on."""


def samples(name: str, of_set: str, seed: int, n: int, cache: Path) -> Tensor:
    """Return n samples of a generator, trained at the first call and read from a file of the cache from then on."""
    file = cache / f"{name.replace(' ', '_')}-{of_set}-{seed}-{n}.npz"
    if not file.exists():
        torch.manual_seed(seed)
        whole = image_set(of_set)
        data = ImageSet(whole.images[:-HELD_OUT].clamp(0, 1), whole.labels[:-HELD_OUT])
        drawn = GENERATORS[name][0].draw(data, n).float()
        cache.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, images=drawn.numpy())
    return torch.from_numpy(np.load(file)["images"])
