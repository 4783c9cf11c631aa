# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of "Read the curves": what a monitor shows of four generators of digits whose state is known.

python docs/pictures.py [FOLDER]     # half a minute; docs/pictures if no folder is given

Nothing is learned here. Each generator draws real digits that the monitor has not seen, under noise that fades over
the first epochs; from epoch 8 on three of them have a fault.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from lightning import LightningModule, Trainer, seed_everything
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from torch.utils.data import DataLoader

from genmonitor import PRDC, RKEScore
from genmonitor.callbacks import PixelClusterMonitor

EPOCHS, CLEAR, FAULT = 12, 5, 8
CASES = ("good", "collapsed", "regional", "memorized")


def split_digits() -> tuple[Tensor, Tensor, Tensor]:
    """Return scikit-learn's digits in [-1, 1]: 800 to train on, 497 for validation, 500 that nobody else sees."""
    images = torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    training, validation, unseen = images[order].split([800, 497, 500])
    return training, validation, unseen


class Faulty(LightningModule):
    """A generator in one of the four states."""

    def __init__(self, case: str, training: Tensor, unseen: Tensor) -> None:
        super().__init__()
        self.case, self.training_images, self.unseen = case, training, unseen
        self.unused = nn.Parameter(torch.zeros(()))  # a Trainer wants something to train

    def sample(self, n: int) -> Tensor:
        """Draw n images [n, 1, 8, 8]."""
        faulty = self.current_epoch >= FAULT
        pool = self.training_images if self.case == "memorized" and faulty else self.unseen
        kinds = 12 if self.case == "collapsed" and faulty else len(pool)
        # no image twice where there are enough: the test would see that real ones do not repeat
        order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(0))
        images = pool[order[torch.arange(n) % kinds]].clone()
        if self.case == "regional" and faulty:
            images[..., 4:, 4:] = avg_pool2d(images, 3, 1, 1)[..., 4:, 4:]  # blurs the lower right
        noise = torch.randn(n, 1, 8, 8) * 0.8 * max(0.0, 1 - self.current_epoch / CLEAR)
        return (images + noise).clamp(-1, 1)

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        """Train nothing."""
        return self.unused.square()

    def validation_step(self, batch: Tensor, index: int) -> None:
        """Only there so that the Trainer has a validation loop, in which monitors run."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer that moves nothing."""
        return torch.optim.SGD(self.parameters(), lr=0.0)


def watch(case: str, folder: Path) -> str:
    """Run one generator under a monitor, keep its pictures, and return a row of the table."""
    seed_everything(0, verbose=False)
    training, validation, unseen = split_digits()
    model = Faulty(case, training, unseen)
    monitor = PixelClusterMonitor(n_clusters=4, n_samples=480, sample_batch_size=480, linkage="smoothed")
    with tempfile.TemporaryDirectory() as run:
        trainer = Trainer(
            max_epochs=EPOCHS,
            default_root_dir=run,
            callbacks=[monitor],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, DataLoader(training, 100), DataLoader(validation, 100))
        (curves,) = Path(run).rglob("cms_curves.png")
        shutil.copy(curves, folder / f"{case}-curves.png")
        (diagnosis,) = Path(run).rglob(f"cms_diagnosis_epoch_{EPOCHS - 1:04}_*.png")
        shutil.copy(diagnosis, folder / f"{case}-diagnosis.png")
        (last,) = Path(run).rglob(f"cms_samples_epoch_{EPOCHS - 1:04}_*.png")
        with Image.open(last) as grid:  # without its last five rows
            grid.crop((0, 0, grid.width, grid.height - 532)).save(folder / f"{case}-samples.png")
    found = monitor.history[-1]
    of_regions = [spec.key for spec in monitor.values() if spec.scale == "p" and spec.region != "image"]
    smallest = min(found[key] for key in of_regions)
    torch.manual_seed(1)
    generated = model.sample(480)
    measures = PRDC()
    measures.update(validation.flatten(1), real=True)
    measures.update(generated.flatten(1), real=False)
    prdc, modes = measures.compute(), RKEScore()
    modes.update(generated.flatten(1) + 1)
    # how near the training images lie: of held-out images and of generated ones
    nearest = [torch.cdist(side.flatten(1), training.flatten(1)).amin(1).median() for side in (generated, validation)]
    values = [found["error_ratio_image"], prdc["precision"], prdc["coverage"], modes.compute(), nearest[0] / nearest[1]]
    return f"| {case} | {smallest:.3f} | " + " | ".join(f"{float(value):.2f}" for value in values) + " |"


def main() -> None:
    """Draw everything."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["smallest p", "error of the image", "precision", "coverage", "RKE", "distance to training"]
    header = f"| generator | {' | '.join(columns)} |"
    rows = [watch(case, folder) for case in CASES]
    (folder / "table.md").write_text("\n".join([header, "| --- |" + " ---: |" * 6, *rows]) + "\n")
    print((folder / "table.md").read_text())


if __name__ == "__main__":
    main()
