# SPDX-License-Identifier: Apache-2.0
"""Train a DCGAN on digits by class, and watch where its images go wrong and which class it fails to vary.

python examples/conditional_dcgan.py                  # about two minutes
python examples/conditional_dcgan.py --collapse 3     # from epoch 40 on every 3 is the same image; it is named
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from data import ImageData, Images
from dcgan import DCGAN, make_discriminator, make_generator
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.nn.functional import one_hot

from genmonitor import GaussianKernel
from genmonitor.callbacks import DiversityMonitor, PixelClusterMonitor
from genmonitor.functional import W1KPCalibration, calibrate

CLASSES = 10
CALIBRATED = 500
"""Real images that tell how alike those of one class are."""


class ConditionalDCGAN(DCGAN):
    """A DCGAN of digits by class: the generator sees z and the class, the discriminator the image and the class.

    Args:
        collapsed: a class whose samples all come from one z, planted for the monitor to find; training is not touched.
        collapsed_from: the first epoch of it, counted from 0.
        features: unit of both networks' widths.
        lr: learning rate of both networks.

    Raises:
        ValueError: if there is no such class.
    """

    def __init__(
        self, collapsed: int | None = None, collapsed_from: int = 0, features: int = 64, lr: float = 1e-3
    ) -> None:
        if collapsed is not None and collapsed not in range(CLASSES):
            raise ValueError(f"Expected `collapsed` to be a class in 0..{CLASSES - 1} or None, but got {collapsed!r}.")
        super().__init__((1, 8, 8), generator_features=features, discriminator_features=features, lr=lr)
        self.generator = make_generator(1, 8, self.latent_dim + CLASSES, features)
        self.discriminator = make_discriminator(1 + CLASSES, 8, features)
        self.collapsed, self.collapsed_from = collapsed, collapsed_from

    def sample_prompts(self, classes: Tensor) -> Tensor:
        """Draw an image of each class [n]."""
        z = torch.randn(len(classes), self.latent_dim, device=self.device)
        if self.collapsed is not None and self.current_epoch >= self.collapsed_from:
            z[classes == self.collapsed] = 0
        return self.generate(z, classes)

    def sample(self, n: int) -> Tensor:
        """Draw n images of random classes."""
        return self.sample_prompts(torch.randint(CLASSES, (n,), device=self.device))

    def generate(self, z: Tensor, classes: Tensor) -> Tensor:
        """Return the image of each z [n, latent_dim] and class [n]."""
        images: Tensor = self.generator(torch.cat([z, one_hot(classes, CLASSES)], dim=1)[:, :, None, None])
        return images

    def training_step(self, batch: list[Tensor], batch_index: int) -> None:  # type: ignore[override]
        """Take one step of both networks, real and fake images having the same classes."""
        images, classes = batch
        z = torch.randn(len(images), self.latent_dim, device=self.device)
        fake = self.generate(z, classes)
        self.take_step(_with_class(images, classes), _with_class(fake, classes))


def _with_class(images: Tensor, classes: Tensor) -> Tensor:
    """Add a channel for each class, 1 everywhere in the image's own: [n, 1 + classes, h, w]."""
    channels = one_hot(classes, CLASSES)[:, :, None, None].expand(-1, -1, *images.shape[2:])
    return torch.cat([images, channels], dim=1)


def real_likeness(digits: Images) -> W1KPCalibration:
    """Calibrate W1KP on real images: two as near as the nearest of one class have 1, as the farthest 0."""
    assert digits.labels is not None
    return calibrate(digits.images[:CALIBRATED].flatten(1), digits.labels[:CALIBRATED])


def make_monitors(digits: Images, n_samples: int, every_n_epochs: int) -> list[Any]:
    """Return both monitors: which region is wrong, and which class does not vary."""
    diversity = DiversityMonitor(
        range(CLASSES),
        n_samples=n_samples,
        kernel=GaussianKernel(),  # counts modes finer than the default, the cosine
        num_features=250,
        calibration=real_likeness(digits),
        every_n_epochs=every_n_epochs,
    )
    regions = PixelClusterMonitor(
        n_clusters=5, n_samples=n_samples, every_n_epochs=every_n_epochs, prompts=range(CLASSES)
    )
    return [regions, diversity]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=81)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--n-samples", type=int, default=500, help="images generated at each evaluation")
    parser.add_argument("--collapse", type=int, help="a class, 0-9: all its samples come from one z")
    parser.add_argument("--collapse-from", type=int, default=40, help="the first epoch of it, from 0")
    parser.add_argument("--out", type=Path, default=Path("runs/conditional-dcgan"), help="where runs are written")
    return parser.parse_args()


def main() -> None:
    """Train, and say where to look."""
    args = arguments()
    seed_everything(0, verbose=False)
    data = ImageData("digits", batch_size=args.batch_size, with_labels=True)
    model: LightningModule = ConditionalDCGAN(args.collapse, args.collapse_from)
    logger = TensorBoardLogger(args.out.parent, name=args.out.name)
    trainer = Trainer(
        max_epochs=args.epochs,
        logger=logger,
        callbacks=make_monitors(data.train_images, args.n_samples, max(1, args.epochs // 16)),
        enable_checkpointing=False,
        log_every_n_steps=1,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    print(f"Figures: {Path(logger.log_dir) / 'genmonitor'}")
    print(f"Curves:  tensorboard --logdir {args.out}")


if __name__ == "__main__":
    main()
