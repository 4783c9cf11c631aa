# SPDX-License-Identifier: Apache-2.0
"""A class, copied images and odd samples, planted: terminal and page name each."""

import re
import warnings
from html import unescape

import numpy as np
import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch.nn.functional import avg_pool2d, interpolate
from torch.utils.data import DataLoader, TensorDataset

from genmonitor import PixelPartition
from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.cli import main
from genmonitor.evaluation.regions.diagnosis_schedule import Diagnoses

pytestmark = pytest.mark.slow


def made(classes, seed):
    """Draw an image [1, 16, 16] of each class: a pattern of the class, shapes that vary, and some grain."""
    n, generator = len(classes), torch.Generator().manual_seed(seed)
    coarse = interpolate(torch.rand(n, 1, 5, 5, generator=generator), size=16, mode="bilinear", align_corners=True)
    grain = avg_pool2d(torch.rand(n, 1, 18, 18, generator=generator), 3, 1)
    of_class = torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(9))[classes]
    return 0.5 * coarse + 0.3 * grain + 0.2 * of_class


def images(n, seed):
    """Draw n images of four classes in turn."""
    return made(torch.arange(n) % 4, seed)


@pytest.fixture
def compared(tmp_path, capsys, monkeypatch):
    """Write sets of images, compare them, and return what the terminal and the page say."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(fake, *options):
        labels = {"fake": len(fake), "real": 1000}
        for name, n in labels.items():
            np.save(tmp_path / f"{name}_labels.npy", np.arange(n) % 4)
        for name, some in (("fake", fake), ("real", images(1000, 1)), ("train", images(600, 2))):
            np.save(tmp_path / f"{name}.npy", some.numpy())
        given = [tmp_path / name for name in ("real.npy", "fake.npy")]
        assert main(["compare", *map(str, given), "--n-clusters", "2", "--out", str(tmp_path), *options]) == 0
        page = unescape((tmp_path / "genmonitor" / "report.html").read_text())
        return capsys.readouterr().out, page

    return run, tmp_path


def test_a_class_copies_and_an_odd_sample(compared):
    run, folder = compared
    fake = images(440, 0)
    of_class = fake[2::4]
    fake[2::4] = of_class.mean((1, 2, 3), keepdim=True) + 0.7 * (of_class - of_class.mean((1, 2, 3), keepdim=True))
    for i in range(40):
        fake[4 * i + 1] = images(600, 2)[100 + 4 * i + 1] + 0.002
    fake[203, :, :6, :6] = 1.0
    labels = ["--labels", str(folder / "fake_labels.npy"), "--real-labels", str(folder / "real_labels.npy")]
    terminal, page = run(fake, *labels, "--train", str(folder / "train.npy"))
    for said in (" ".join(terminal.split()), page):
        assert "Class 2: contrast − 3" in said
        assert re.search(
            r"\d+ % of the images are near copies of the \d+ training images searched \(p < 0.0001\)\. "
            r"Copied training images: 1",
            said,
        )
        assert "Strangest samples: 203 (upper left)" in said


class FadesAClassAndCopies(LightningModule):
    """Draws images by class as the data are; from the second epoch on class 2 is faded, and images are copied."""

    def __init__(self, train):
        super().__init__()
        self.train_images, self.unused = train, torch.nn.Parameter(torch.zeros(()))

    def sample_prompts(self, classes):
        images = made(classes, int(torch.randint(2**31, ())))
        if self.current_epoch >= 1:
            mean = images.mean((1, 2, 3), keepdim=True)
            images = torch.where((classes == 2)[:, None, None, None], mean + 0.6 * (images - mean), images)
            copied = (classes == 1) & (torch.rand(len(classes)) < 0.4)
            images[copied] = self.train_images[1::4][torch.randint(300, (int(copied.sum()),))] + 0.002
        return images

    def training_step(self, batch, batch_index):
        return self.unused.square()

    def validation_step(self, batch, batch_index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def test_a_class_and_copies_during_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Diagnoses, "due", lambda *_: True)  # copies change no region, so it may be later
    train, held_out = images(1200, 2), images(800, 3)
    data = [
        DataLoader(TensorDataset(x, torch.arange(len(x)) % 4), batch_size=400, drop_last=True)
        for x in (train, held_out)
    ]
    alerts = []
    monitor = PixelClusterMonitor(
        partition=PixelPartition.grid((16, 16), 1, 2),
        n_samples=400,
        prompts=range(4),
        on_alert=alerts.append,
    )
    trainer = Trainer(
        default_root_dir=tmp_path,
        max_epochs=3,
        callbacks=[monitor],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=CSVLogger(tmp_path),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(FadesAClassAndCopies(train), *data)
    page = unescape((monitor.publisher.folder.path / "report.html").read_text())
    assert [record["p_class"] <= 0.05 for record in monitor.history] == [False, True, True]
    assert [record["copied"] > 0.05 for record in monitor.history] == [False, True, True]
    assert any("near copies of the " in alert for alert in alerts)
    for said in (str([str(x) for x in monitor.findings]), page):
        assert "Class 2: contrast − " in said
        assert re.search(r"near copies of the \d+ real images searched \(p < 0.0001\)\. Copied real images: ", said)
    assert "against real images of the class" in page
