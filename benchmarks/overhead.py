# SPDX-License-Identifier: Apache-2.0
"""What PixelClusterMonitor adds to real training runs, part by part, at the settings of examples/dcgan.py.

python benchmarks/overhead.py                         # about four minutes
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

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from data import ImageData
from dcgan import DCGAN
from ddpm import DDPM

EPOCHS, EVERY, COUNTED = (3, 1, range(1, 2)) if ONCE else (76, 5, range(6, 14))
"""The first evaluations load what is loaded once. Of those counted every fourth has a diagnosis and figures, as in any
run, or more where much changes."""


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
    def measure() -> dict[str, Any]:
        seed_everything(0)
        epochs = Epochs()
        monitor = PixelClusterMonitor(
            n_clusters=5, n_cluster_images=1297, n_samples=500, every_n_epochs=EVERY, **settings
        )
        at_start = time_calls(monitor, "on_train_start")
        after_epochs = time_calls(monitor, "on_validation_epoch_end")
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                max_epochs=EPOCHS,
                devices=1,
                log_every_n_steps=1,
                num_sanity_val_steps=0,
                enable_progress_bar=False,
                callbacks=[epochs, monitor],
                logger=TensorBoardLogger(folder),
            )
            trainer.fit(make(), data(folder))
        evaluated = [record["epoch"] for record in monitor.history]
        if evaluated != list(range(0, EPOCHS, EVERY)):
            due = len(range(0, EPOCHS, EVERY))
            raise RuntimeError(f"Expected {due} evaluations, but got {evaluated}. What warnings say why?")
        sampling, measuring = (
            statistics.mean(monitor.history[i][f"{part}_seconds"] for i in COUNTED) for part in ("sampling", "metric")
        )
        evaluation = statistics.mean(after_epochs[EVERY * i] for i in COUNTED)
        alone = statistics.median(epochs.seconds)
        added = evaluation - sampling

        def of_epochs(fitted: bool) -> str:
            """Return the cost of those evaluations with a fit of kinds of faults, or of those without."""
            records = {i: monitor.history[i] for i in COUNTED if ("explained" in monitor.history[i]) == fitted}
            seconds = [after_epochs[EVERY * i] - record["sampling_seconds"] for i, record in records.items()]
            return f"{statistics.mean(seconds) / (EVERY * alone):.1%}" if seconds else ""

        return {
            "epoch s": f"{alone:.2f}",
            "at the start s": f"{at_start[0]:.2f}",
            "sampling s": f"{sampling:.3f}",
            "measuring s": f"{measuring:.3f}",
            "the rest s": f"{added - measuring:.3f}",
            "whole evaluation s": f"{evaluation:.3f}",
            f"all but sampling, of {EVERY} epochs, without a fit": of_epochs(fitted=False),
            "with one": of_epochs(fitted=True),
            "of an epoch of a minute": f"{added / 60:.2%}",
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
        f"500 samples against 500 real ones, evaluated every {EVERY} epochs as in dcgan.py; digits have 8×8 pixels. "
        "Epoch: its training batches. Whole evaluation: all that the training waits for, with sampling and figures; "
        "means over eight evaluations. Every fourth fits the kinds of faults, and any where much changed since the "
        "last. Measuring is the comparison with its permutations, readings, and the fit where there is one."
    )
    run(__file__, cases, "What an evaluation costs in a real run", long, legend)
