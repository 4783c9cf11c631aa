# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of "Read the curves" and of "Where images are wrong, and how", of faults that are planted.

python docs/pictures.py [FOLDER]     # a minute; docs/pictures if no folder is given

Nothing is learned here. For the curves, each of four generators draws real digits that the monitor has not seen, under
noise that fades over the first epochs; from epoch 8 on three of them have a fault. The others are of real images in
two halves: one of them has a class with less contrast and three odd images, or is blurred.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from lightning import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from curves import curves_of

from genmonitor import PRDC, RKEScore, diagnose
from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.regions.presenter import diagnosis_figures
from genmonitor.report.run import read_run

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
        (left,) = read_run(monitor.publisher.folder.path).monitors
        curves_of(left).savefig(folder / f"{case}-curves.png")
        (diagnosis,) = Path(run).rglob(f"cms_diagnosis_epoch_{EPOCHS - 1:04}_*.png")
        shutil.copy(diagnosis, folder / f"{case}-diagnosis.png")
        (samples,) = Path(run).rglob(f"cms_samples_epoch_{EPOCHS - 1:04}_*.png")
        shutil.copy(samples, folder / f"{case}-samples.png")
    found = monitor.history[-1]
    # not of the constant region: copies of training images cannot vary there, while a few held-out images do
    smallest = min(value for key, value in found.items() if re.fullmatch(r"p_\d+", key))
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


def draw_odd_samples(folder: Path) -> None:
    """Plant a class with less contrast and three odd images among digits; draw what is shown of both."""
    loaded = load_digits()
    images, classes = torch.from_numpy(loaded.images).float()[:, None] / 16, torch.from_numpy(loaded.target)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(images), generator=generator)[:1600]
    (fake, real), (of_fake, of_real) = images[order].split(800), classes[order].split(800)
    threes, fake = of_fake == 3, fake.clone()
    fake[threes] = 0.6 * fake[threes] + 0.4 * fake[threes].mean((1, 2, 3), keepdim=True)
    fake[17] += 0.4 * torch.rand(8, 8, generator=generator)
    fake[203] = 1 - fake[203]
    fake[431] = fake[431].flatten()[torch.randperm(64, generator=generator)].view(1, 8, 8)
    sets = {"odd-samples": (fake, real, "single_samples"), "class-3": (fake[threes], real[of_real == 3], "diagnosis")}
    for name, (generated, others, figure) in sets.items():
        found = diagnose(fake=generated, real=others)
        diagnosis_figures(found, found.findings[0], (0, 1))[figure]().savefig(folder / f"{name}.png", dpi=80)


def main() -> None:
    """Draw everything."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["smallest p of a cluster", "error of the image", "precision", "coverage", "RKE", "distance to training"]
    header = f"| generator | {' | '.join(columns)} |"
    draw_odd_samples(folder)
    rows = [watch(case, folder) for case in CASES]
    (folder / "table.md").write_text("\n".join([header, "| --- |" + " ---: |" * 6, *rows]) + "\n")
    print((folder / "table.md").read_text())


if __name__ == "__main__":
    main()
