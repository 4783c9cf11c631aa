# SPDX-License-Identifier: Apache-2.0
"""What PixelClusterMonitor adds to real training runs, part by part, at the settings of the examples.

python benchmarks/overhead.py                         # about three minutes
python benchmarks/overhead.py --long                  # a DCGAN of 64×64×3 as well: many minutes without a GPU
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cka import images
from harness import ONCE, run
from lightning import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.loggers import background

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from data import ImageData
from dcgan import DCGAN
from ddpm import DDPM

EPOCHS, FIRST = (3, 1) if ONCE else (30, 18)
"""The first evaluations load what is loaded once, and draw until the process beside the training is ready to."""


class Epochs(Callback):
    """Times the training batches of each epoch; evaluations come after the last of them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop it at the last batch."""
        if trainer.is_last_batch:
            self.seconds.append(time.perf_counter() - self._start)


def time_calls(owner: Any, method: str) -> list[float]:
    """Return a list to which each later call of an object's method adds its seconds."""
    seconds: list[float] = []
    work = getattr(owner, method)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        out = work(*args, **kwargs)
        seconds.append(time.perf_counter() - start)
        return out

    setattr(owner, method, timed)
    return seconds


def digits(folder: str) -> ImageData:
    return ImageData("digits")


def labeled_digits(folder: str) -> ImageData:
    return ImageData("digits", with_labels=True)


def drawn_images(folder: str) -> ImageData:
    """Write 2000 images of 64×64×3 to train on and 500 others as a MedMNIST file."""
    values = (127.5 * (images(2500, 3, 64).cpu() + 1)).byte().permute(0, 2, 3, 1).numpy()
    path = Path(folder) / "drawn.npz"
    np.savez(path, train_images=values[500:], val_images=values[:500])
    return ImageData("medmnist", path)


def case(
    name: str, make: Callable[[], Any], data: Callable[[str], ImageData], **settings: Any
) -> Callable[[], dict[str, Any]]:
    def train(folder: str, *callbacks: Callback) -> list[float]:
        seed_everything(0)
        epochs = Epochs()
        trainer = Trainer(
            max_epochs=EPOCHS,
            devices=1,
            log_every_n_steps=1,
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            callbacks=[epochs, *callbacks],
            logger=TensorBoardLogger(folder),
        )
        trainer.fit(make(), data(folder))
        return epochs.seconds[FIRST:]

    def measure() -> dict[str, Any]:
        monitor = PixelClusterMonitor(n_clusters=5, n_cluster_images=1297, n_samples=500, **settings)
        at_start = time_calls(monitor, "on_train_start")
        evaluations = time_calls(monitor, "on_validation_epoch_end")
        with tempfile.TemporaryDirectory() as folder:
            alone = statistics.median(train(folder))
            taken_over = time_calls(background, "deliver")
            epoch = statistics.median(train(folder, monitor))
        if not len(monitor.history) == len(evaluations) == EPOCHS:
            raise RuntimeError(f"Expected {EPOCHS} evaluations, but got {len(monitor.history)}. What warnings say why?")
        sampling, measuring = (
            statistics.median(record[f"{part}_seconds"] for record in monitor.history[FIRST:])
            for part in ("sampling", "metric")
        )
        # what was drawn is taken over between batches, of which some belong to each evaluation
        evaluation = statistics.median(evaluations[FIRST:]) + sum(taken_over) / EPOCHS
        return {
            "epoch alone s": f"{alone:.2f}",
            "epoch s": f"{epoch:.2f}",
            "at the start s": f"{at_start[0]:.2f}",
            "sampling s": f"{sampling:.3f}",
            "measuring s": f"{measuring:.3f}",
            "the rest s": f"{evaluation - sampling - measuring:.3f}",
            "whole evaluation s": f"{evaluation:.3f}",
            "all but sampling, of the epoch": f"{(evaluation - sampling) / alone:.0%}",
            "of an epoch of a minute": f"{(evaluation - sampling) / 60:.2%}",
        }

    measure.__name__ = name
    return measure


def ddpm() -> DDPM:
    return DDPM(image_shape=(1, 8, 8), widths=(32, 64), classes=10, sampling_steps=25, lr=1e-3)


if __name__ == "__main__":
    cases = [
        case("DCGAN_digits", lambda: DCGAN((1, 8, 8), lr=1e-3), digits),
        case("DDPM_digits", ddpm, labeled_digits, prompts=list(range(10))),
    ]
    long = [case("DCGAN_64x64x3", lambda: DCGAN((3, 64, 64)), drawn_images)]
    legend = (
        "500 samples against 500 real ones at every epoch; digits have 8×8 pixels. Epoch alone: the training batches "
        "of an epoch without a monitor; epoch: the same with one, whose figures a second process draws meanwhile. "
        "Whole evaluation: all that the training waits for, sampling included. Measuring is the permutations of the "
        "two-sample test for the most part: 200 splits of 1000 images, in each region by kernels of four widths."
    )
    run(__file__, cases, "What an evaluation costs in a real run", long, legend)
