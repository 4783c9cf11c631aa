# SPDX-License-Identifier: Apache-2.0
"""Train a small VAE (Kingma and Welling, arXiv 1312.6114) on drawn faces, and find out what is wrong with its images.

python examples/faces.py                 # a minute or two; a run in runs/faces/version_0
python examples/faces.py --centered      # the same with a remedy, in runs/faces/version_1

The faces, 32×32 in color, are drawn in code. Beside the runs lie held-out faces, real.npy, and samples of either,
plain.npy and centered.npy, for `genmonitor compare`.
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch
from curves import curves_of
from data import Images
from drawn_faces import faces
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.report.run import read_run

HELD_OUT = 1000
SHAPE = (3, 32, 32)


class VAE(LightningModule):
    """A variational autoencoder of images [n, 3, 32, 32] in [0, 1], with a squared error.

    Args:
        centered: whether images are in [-1, 1]: their mean is near 0, and errors count four times as much.
        latent: length of z.
        width: of the hidden layers.
    """

    def __init__(self, centered: bool = False, latent: int = 32, width: int = 256) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.latent = latent
        values = int(np.prod(SHAPE))
        self.encoder = nn.Sequential(*(nn.Flatten(), nn.Linear(values, width), nn.ReLU()), nn.Linear(width, 2 * latent))
        self.decoder = nn.Sequential(
            *(nn.Linear(latent, width), nn.ReLU()),
            *(nn.Linear(width, values), nn.Tanh() if centered else nn.Sigmoid(), nn.Unflatten(1, SHAPE)),
        )

    def sample(self, n: int) -> Tensor:
        """Draw n images."""
        images: Tensor = self.decoder(torch.randn(n, self.latent, device=self.device))
        return images

    def training_step(self, images: Tensor, batch_index: int) -> Tensor:
        """Return the negative evidence lower bound of a batch."""
        mean, log_variance = self.encoder(images).chunk(2, 1)
        decoded = self.decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp())
        error = (images - decoded).square().sum((1, 2, 3)).mean() / 2
        divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(1).mean() / 2
        loss = error + divergence
        self.log("loss", loss)
        return loss

    def validation_step(self, images: Tensor, batch_index: int) -> None:
        """Only there so that the Trainer has a validation loop, in which monitors run."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), 1e-3)


def main() -> None:
    """Train, say what is wrong, and leave the images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--centered", action="store_true", help="train on images in [-1, 1], not [0, 1]")
    parser.add_argument("--epochs", type=int, default=21)
    parser.add_argument("--images", type=int, default=4000, help="to train on")
    parser.add_argument("--n-samples", type=int, default=500, help="images per evaluation")
    parser.add_argument("--out", type=Path, default=Path("runs/faces"), help="where runs are written")
    parser.add_argument("--pictures", metavar="PREFIX", help="copy the last figures to PREFIX-diagnosis.png and so on")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # from within Lightning
    torch.set_num_threads(1)  # a second thread costs more than it computes
    seed_everything(0, verbose=False)
    images, _ = faces(args.images + HELD_OUT, torch.Generator().manual_seed(0))
    scaled = 2 * images - 1 if args.centered else images
    training, held_out = scaled[: args.images], scaled[args.images :]

    monitor = PixelClusterMonitor(
        n_clusters=3,
        n_samples=args.n_samples,
        every_n_epochs=max(1, args.epochs // 2),
        on_error="raise",
    )
    best = ModelCheckpoint(monitor="cms/error_ratio_image", filename="best-{epoch}")
    logger = CSVLogger(args.out.parent, name=args.out.name)
    trainer = Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=logger,
        callbacks=[monitor, best],
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = VAE(args.centered)
    loaders = DataLoader(Images(training), 64, shuffle=True, drop_last=True), DataLoader(Images(held_out), 64)
    trainer.fit(model, *loaders)

    run = Path(logger.log_dir)
    np.save(args.out / "real.npy", images[args.images :].numpy())
    with torch.no_grad():
        samples = model.eval().sample(HELD_OUT)
    name = "centered" if args.centered else "plain"
    np.save(args.out / f"{name}.npy", ((samples + 1) / 2 if args.centered else samples).numpy())
    if args.pictures:
        latest = max((run / "genmonitor").glob("cms_diagnosis_*.png"))
        shutil.copy(latest, f"{args.pictures}-diagnosis.png")
        (left,) = read_run(run / "genmonitor").monitors
        curves_of(left).savefig(f"{args.pictures}-curves.png")


if __name__ == "__main__":
    main()
