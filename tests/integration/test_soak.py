# SPDX-License-Identifier: Apache-2.0
"""Five hundred evaluations in one process leave nothing behind: no memory, no open file, no figure."""

import gc
import os

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, plain
from _helpers.presenters import present_with
from _helpers.prompted import Prompted
from _helpers.slow import nightly_but
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib import pyplot
from matplotlib.figure import Figure

from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, PixelClusterMonitor

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Plain.*", "ignore:.*samples depend on the batch")]
EVALUATIONS = 500
PAGE = os.sysconf("SC_PAGE_SIZE")


def small_figure(evaluation, history, samples):
    """Draw a small figure; what is soaked is what happens to it."""
    figure = Figure((1, 1))
    figure.add_subplot().imshow(samples.images[0, 0].numpy())
    return {"samples": figure}


class Watch(Callback):
    """What the process holds after each step."""

    def __init__(self, after):
        self.after, self.held = after, {}

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step in self.after:
            self.held[trainer.global_step] = holds()


def holds():
    gc.collect()
    objects = gc.get_objects()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * PAGE / 2**20
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "figures": sum(issubclass(type(x), Figure) for x in objects),
        "tensors": sum(issubclass(type(x), torch.Tensor) for x in objects),
        "megabytes": memory,
    }


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files as Linux shows them")
def test_five_hundred_evaluations_leave_nothing_behind(tmp_path, record_property):
    logger = TensorBoardLogger(tmp_path)
    settings = {"n_samples": 20, "every_n_train_steps": 1, "on_error": "raise"}
    monitor = plain(n_clusters=2, n_cluster_images=50, **settings)
    present_with(monitor.evaluator, figures=small_figure)
    early, late = EVALUATIONS // 5, EVALUATIONS
    watch = Watch((early, late))
    train = loader(digits(0, 100), 20)
    fit(tmp_path, watch, monitor, module=Linear(), train=train, max_epochs=EVALUATIONS // 5, logger=logger)
    assert len(monitor.history) == EVALUATIONS
    before, after = watch.held[early], watch.held[late]
    assert after["files"] == before["files"]
    assert after["figures"] <= before["figures"] <= 1
    assert after["tensors"] <= before["tensors"] + 2
    assert after["megabytes"] < before["megabytes"] + 40
    for what in after:
        record_property(f"soaked: {what} after {early} evaluations", round(before[what]))
        record_property(f"soaked: {what} after {late} evaluations", round(after[what]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(["clusters", "diversity", "disagreement"], "clusters"))
def test_figures_of_every_evaluation_are_freed(tmp_path, kind):
    make = {
        "clusters": lambda: PixelClusterMonitor(3, n_samples=40, n_cluster_images=100, on_error="raise"),
        "diversity": lambda: DiversityMonitor(range(5), 40, on_error="raise"),
        "disagreement": lambda: DisagreementMonitor(range(5), 40, reference="start", on_error="raise"),
    }
    with pytest.MonkeyPatch.context() as patch:
        made = []
        original = Figure.__init__

        def counted(figure, *args, **kwargs):
            made.append(1)
            original(figure, *args, **kwargs)

        patch.setattr(Figure, "__init__", counted)
        fit(tmp_path, make[kind](), module=Prompted(), val=loader(digits(300, 400)), max_epochs=3)
    assert len(made) >= 3
    assert holds()["figures"] == 0
    assert pyplot.get_fignums() == []
