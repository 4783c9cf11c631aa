# SPDX-License-Identifier: Apache-2.0
"""What `detection.py` finds of faults that real generators have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from detection_images import N
from lightning import Trainer
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader

from genmonitor.findings.finding import LEVEL
from genmonitor.functional import relative_similarity_test, two_sample_test

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
from dcgan import DCGAN  # noqa: E402
from regions import digits, photographs  # noqa: E402


def real_fault_rows() -> Iterator[list[str]]:
    """Yield what the test says of faults of real generators, of whole images."""
    images, labels = digits()[0], torch.tensor(load_digits().target)
    for missing in (1, 3, 8):
        found = []
        for seed in range(20):
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
            fake, real = order[:800], order[800:1400]
            found.append(float(two_sample_test(images[fake[labels[fake] != missing]], images[real])) <= LEVEL)
        yield [f"digits, class {missing} never drawn", f"{np.mean(found):.2f}"]
    gray = photographs(2000)[0]
    color = torch.cat([gray, gray.roll(1, 2), gray.flip(3)], 1)
    found = []
    for seed in range(20):
        order = torch.randperm(2000, generator=torch.Generator().manual_seed(seed))
        fake, real = color[order[:N]].clone(), color[order[N : 2 * N]]
        fake[:, 2] = fake[:, 2].mean()
        found.append(float(two_sample_test(fake, real)) <= LEVEL)
    yield ["color patches, a dead channel", f"{np.mean(found):.2f}"]


def dcgan_samples(images: Tensor, epochs: int, n: int) -> Tensor:
    """Return what the examples' DCGAN draws after so many epochs on images in [0, 1]."""
    torch.manual_seed(0)
    module = DCGAN(lr=1e-3)
    loader = DataLoader(2 * images - 1, batch_size=128, shuffle=True, drop_last=True)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    Trainer(max_epochs=epochs, accelerator="cpu", **quiet).fit(module, loader)
    with torch.no_grad():
        return (module.eval().sample(n) + 1) / 2


def trained_rows() -> Iterator[list[str]]:
    """Yield what the tests say of generators that were trained, against digits that they were not trained on."""
    images, labels = digits()[0], torch.tensor(load_digits().target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    training, real = order[:1200], images[order[1200:]]
    whole = dcgan_samples(images[training], 81, len(real))
    others = {
        "stopped after 20 epochs": dcgan_samples(images[training], 20, len(real)),
        "trained without the digit 3": dcgan_samples(images[training[labels[training] != 3]], 81, len(real)),
    }
    yield ["81 epochs", f"{float(two_sample_test(whole, real)):.3f}", ""]
    for name, samples in others.items():
        farther = relative_similarity_test(samples, whole, real, alternative="farther")
        yield [name, f"{float(two_sample_test(samples, real)):.3f}", f"{float(farther.p_value):.2g}"]
