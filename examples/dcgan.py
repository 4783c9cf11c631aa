# SPDX-License-Identifier: Apache-2.0
"""Train a DCGAN (Radford et al., arXiv 1511.06434) and watch, region by region, where its images go wrong.

python examples/dcgan.py                                                # scikit-learn's digits, less than a minute
python examples/dcgan.py --data medmnist --path chestmnist.npz
python examples/dcgan.py --data folder --path img_align_celeba
python examples/dcgan.py --data planted --spoil-region 3 --spoil-from 4   # no GAN: will the monitor name region 3?
"""

from __future__ import annotations

import argparse
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from data import ImageData
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from planted import PlantedGenerator, planted_labels
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from genmonitor.callbacks import PixelClusterMonitor

# Sides of the feature maps, from the latent vector to the image and from the image to the logit, and the width of the
# generator's first map in multiples of `generator_features`; it halves at every step. 28 and 64 px are the networks of
# the paper on pixel clusters (arXiv 2409.01314). At 8 px there is little to halve: one step at full size instead.
GENERATOR_SIDES = {8: (4, 8, 8), 16: (4, 8, 16), 28: (4, 7, 14, 28), 32: (4, 8, 16, 32), 64: (4, 8, 16, 32, 64)}
DISCRIMINATOR_SIDES = {8: (8, 8, 4, 1), 16: (16, 8, 4), 28: (28, 14, 7, 4), 32: (32, 16, 8, 4), 64: (64, 32, 16, 8, 4)}
FIRST_WIDTH = {8: 2, 16: 4, 28: 8, 32: 8, 64: 8}

# What each data set is trained with unless the command line says otherwise. The DCGAN paper's learning rate is 2e-4,
# the pixel-cluster paper's for ChestMNIST 1e-5. The digits have ten batches an epoch: 1e-3 gets there in 81 epochs, and
# networks of half the width get as far. At 8 px a second thread costs more than it computes.
DEFAULTS = {
    "digits": {"epochs": 81, "lr": 1e-3, "n_clusters": 5, "features": 32, "threads": 1},
    "planted": {"epochs": 10, "lr": 2e-4, "n_clusters": int(planted_labels().max()), "features": 64, "threads": None},
    "folder": {"epochs": 20, "lr": 2e-4, "n_clusters": 5, "features": 64, "threads": None},
    "medmnist": {"epochs": 20, "lr": 1e-5, "n_clusters": 6, "features": 64, "threads": None},
}


def geometry(side: int, next_side: int) -> dict[str, Any]:
    """Return the arguments of the convolution between maps of these sides, in either direction."""
    if side == next_side:
        return {"kernel_size": 3, "stride": 1, "padding": 1}
    if max(side, next_side) == 2 * min(side, next_side):
        return {"kernel_size": 4, "stride": 2, "padding": 1}
    return {"kernel_size": 4, "stride": 1, "padding": 0}


def make_generator(channels: int, side: int, latent_dim: int, features: int) -> nn.Sequential:
    """Return a network from z [n, latent_dim, 1, 1] to images [n, channels, side, side] in [-1, 1]."""
    sides = GENERATOR_SIDES[side]
    width = FIRST_WIDTH[side] * features
    layers: list[nn.Module] = [nn.ConvTranspose2d(latent_dim, width, sides[0], bias=False)]
    for here, there in pairwise(sides[:-1]):
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.ConvTranspose2d(width, width // 2, **geometry(here, there), bias=False)]
        width //= 2
    layers += [nn.BatchNorm2d(width), nn.ReLU()]
    layers += [nn.ConvTranspose2d(width, channels, **geometry(*sides[-2:]), bias=False), nn.Tanh()]
    return nn.Sequential(*layers).apply(init_weights)


def make_discriminator(channels: int, side: int, features: int) -> nn.Sequential:
    """Return a network from images [n, channels, side, side] to logits [n, 1, 1, 1], positive for real."""
    sides = DISCRIMINATOR_SIDES[side]
    width = features
    layers: list[nn.Module] = [nn.Conv2d(channels, width, **geometry(*sides[:2]), bias=False), nn.LeakyReLU(0.2)]
    for here, there in pairwise(sides[1:]):
        layers += [nn.Conv2d(width, 2 * width, **geometry(here, there), bias=False)]
        layers += [nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2)]
        width *= 2
    layers += [nn.Conv2d(width, 1, sides[-1], bias=False)]
    return nn.Sequential(*layers).apply(init_weights)


def init_weights(layer: nn.Module) -> None:
    """Draw weights as the paper does: N(0, 0.02), around 1 for BatchNorm."""
    if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(layer.weight, 0.0, 0.02)
    elif isinstance(layer, nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1.0, 0.02)


class DCGAN(LightningModule):
    """A DCGAN of images [n, c, h, w] in [-1, 1].

    The loss is binary cross-entropy on logits: the paper's sigmoid and logarithm in one, without their overflow. The
    optimizers are Adam with betas (0.5, 0.999).

    Args:
        image_shape: (c, h, w), square, 8, 16, 28, 32 or 64 pixels wide.
        latent_dim: length of z.
        generator_features: unit of the generator's widths; its last feature map has one or two of them per pixel.
        discriminator_features: width of the discriminator's first feature map.
        lr: learning rate of both networks.

    Raises:
        ValueError: if there is no network for this size.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...] = (1, 8, 8),
        latent_dim: int = 100,
        generator_features: int = 64,
        discriminator_features: int = 64,
        lr: float = 2e-4,
    ) -> None:
        super().__init__()
        channels, height, width = image_shape
        if height != width or height not in GENERATOR_SIDES:
            raise ValueError(
                f"Expected `image_shape` as (c, h, w) with h = w one of {list(GENERATOR_SIDES)}, "
                f"but got {tuple(image_shape)}. Resize the images."
            )
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.latent_dim, self.lr = latent_dim, lr
        self.generator = make_generator(channels, height, latent_dim, generator_features)
        self.discriminator = make_discriminator(channels, height, discriminator_features)

    def sample(self, n: int) -> Tensor:
        """Draw n images."""
        z = torch.randn(n, self.latent_dim, device=self.device)
        images: Tensor = self.generator(z[:, :, None, None])
        return images

    def training_step(self, images: Tensor, batch_index: int) -> None:
        """Take one step of the discriminator and one of the generator, on the same fake images."""
        self.take_step(images, self.sample(len(images)))

    def take_step(self, real: Tensor, fake: Tensor) -> None:
        """Take one step of both networks; real and fake are what the discriminator judges."""
        optimizer_g, optimizer_d = self.optimizers()  # type: ignore[attr-defined]

        real_logits, fake_logits = self.discriminator(real), self.discriminator(fake.detach())
        loss_d = binary_cross_entropy_with_logits(real_logits, torch.ones_like(real_logits))
        loss_d = loss_d + binary_cross_entropy_with_logits(fake_logits, torch.zeros_like(fake_logits))
        optimizer_d.zero_grad()
        self.manual_backward(loss_d)
        optimizer_d.step()

        # The discriminator only passes the gradient on here: its own weights need none.
        self.discriminator.requires_grad_(False)
        logits = self.discriminator(fake)
        loss_g = binary_cross_entropy_with_logits(logits, torch.ones_like(logits))
        optimizer_g.zero_grad()
        self.manual_backward(loss_g)
        optimizer_g.step()
        self.discriminator.requires_grad_(True)

        self.log_dict({"loss_g": loss_g, "loss_d": loss_d}, on_step=False, on_epoch=True, prog_bar=True)

    def validation_step(self, images: Tensor, batch_index: int) -> None:
        """Only there so that the Trainer has a validation loop, in which monitors run."""

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the generator's and the discriminator's optimizer."""
        networks = (self.generator, self.discriminator)
        return [torch.optim.Adam(network.parameters(), self.lr, betas=(0.5, 0.999)) for network in networks]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(DEFAULTS), default="digits")
    parser.add_argument("--path", help="the image folder, or the MedMNIST .npz file")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--n-clusters", type=int)
    parser.add_argument("--features", type=int, help="width of both networks")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument(
        "--spoil-region", type=int, help="planted: no GAN, but true images with this region (1-4) spoiled"
    )
    parser.add_argument("--spoil-from", type=int, default=5, help="the first epoch, from 0, with --spoil-region")
    parser.add_argument("--out", type=Path, help="where runs are written (runs/dcgan-DATA)")
    given = parser.parse_args()
    if given.spoil_region is not None and given.data != "planted":
        parser.error("--spoil-region needs --data planted: only there the true regions are known")
    for name, value in DEFAULTS[given.data].items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    given.out = given.out or Path("runs") / f"dcgan-{given.data}"
    return given


def main() -> None:
    """Train, and say where to look."""
    args = arguments()
    warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # from within Lightning
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    seed_everything(0, verbose=False)
    data = ImageData(args.data, args.path, args.batch_size)
    model: LightningModule = DCGAN(
        data.image_shape, generator_features=args.features, discriminator_features=args.features, lr=args.lr
    )
    if args.spoil_region is not None:
        model = PlantedGenerator(args.spoil_region, args.spoil_from)

    monitor = PixelClusterMonitor(
        n_clusters=args.n_clusters,
        n_cluster_images=min(2000, len(data.train_images)),
        n_samples=500,
        every_n_epochs=max(1, args.epochs // 15),
    )
    best = ModelCheckpoint(monitor="cms/error_ratio_image", filename="best-{epoch}")
    logger = TensorBoardLogger(args.out.parent, name=args.out.name, default_hp_metric=False)
    trainer = Trainer(
        max_epochs=args.epochs,
        devices=1,
        logger=logger,
        callbacks=[monitor, best],
        log_every_n_steps=1,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    if best.best_model_score is not None:  # for TensorBoard's HPARAMS; as a curve it is one dot, so it comes last
        logger.log_hyperparams(logger.hparams, {"summary/best_error_ratio": float(best.best_model_score)})

    print(f"Curves: tensorboard --logdir {args.out}")


if __name__ == "__main__":
    main()
