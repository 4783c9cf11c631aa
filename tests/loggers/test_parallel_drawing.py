# SPDX-License-Identifier: Apache-2.0
"""A publisher, and a training, whose figures a worker draws."""

import threading
import time
from functools import partial

import matplotlib as mpl
import pytest
import torch
from _helpers.logged import read_tensorboard
from _helpers.loggers import AnyLogger, NotReadBack, WandbRun, collect
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader
from lightning import Callback, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.loggers import worker
from genmonitor.loggers.publisher import Publisher, finish_evaluations, finish_run
from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report.pictures import render

pytestmark = LIGHTNING_SAYS


# a publisher


@pytest.fixture
def running(beside, monkeypatch):
    monkeypatch.setattr(worker, "_running", beside)
    return beside


def publishes(folder, prefix="cms", loggers=()):
    publisher = Publisher("Name", prefix)
    publisher.start(folder, loggers, parallel=True)
    return publisher


def drawing(number=1):
    return partial(cluster_map, torch.tensor([[0, number], [2, 1]]))


def test_figures_drawn_later_are_rows_of_their_own_in_wandb(tmp_path, running):
    pytest.importorskip("wandb")
    run = WandbRun()
    publisher = publishes(tmp_path, loggers=[AnyLogger(run)])
    for step in (100, 200):
        publisher.notes.set_moment(step / 100, step)
        publisher._loggers.each(lambda x, step=step: x.log_scalars({"cms/image": 0.9}, step))
        publisher._publish_figures({"first": drawing(1), "second": drawing(2)}, step, None)
        publisher.write_report(1)
        finish_evaluations([publisher])
        while running._jobs:
            run.log({"loss": 1.0, "trainer/global_step": (step := step + 1)})  # as the user's training does
            time.sleep(0.05)
            worker.deliver()
    rows = [row for row in run.rows if "loss" not in row]
    names = ("cms/image", "cms/first", "cms/second", "genmonitor/report")
    assert [(name, row.pop("trainer/global_step")) for row in rows for name in names if name in row] == [
        (name, step) for step in (100, 200) for name in names
    ]
    assert all(len(row) == 1 for row in rows)
    assert all(row.keys() == {"loss", "trainer/global_step"} for row in run.rows if "loss" in row)


def test_figure_that_pickle_refuses_is_drawn_here_and_those_after_it(tmp_path, running):
    publisher = publishes(tmp_path)
    refused = partial(drawing().func, [[0, 1], [2, 1]])
    refused.lock = threading.Lock()
    homeless = partial(lambda: drawing()())
    homeless.func.__module__ = None
    publisher._publish_figures({"refused": refused, "homeless": homeless, "after": drawing()}, 5, 1)
    assert publisher.latest.keys() == {"refused", "homeless"}
    running.drain()
    assert len(set(publisher.latest.values())) == 1
    assert len(publisher.latest) == 3


def test_figure_that_can_be_drawn_nowhere_is_said_and_stops_nothing(tmp_path, running):
    publisher = publishes(tmp_path)
    publisher._publish_figures({"lost": partial(cluster_map, NotReadBack()), "after": drawing()}, 5, 1)
    with pytest.warns(UserWarning, match="(?s)could not be shown or written.*not a number"):
        finish_run(publisher)
    assert publisher.latest.keys() == {"after"}


def test_figures_have_the_users_settings_of_matplotlib(tmp_path, running):
    publisher, plain = publishes(tmp_path), render(drawing())
    with mpl.rc_context({"font.family": "DejaVu Serif"}):
        here = render(drawing())
        publisher._publish_figures({"map": drawing()}, 5, 1)
    running.drain()
    assert publisher.latest["map"] == here != plain


def test_every_monitor_learns_where_the_page_is(tmp_path, running):
    publishers = [publishes(tmp_path, prefix) for prefix in ("cms", "diversity")]
    running.submit("first", partial(time.sleep, 0.3), partial(collect, []))
    for publisher in publishers:
        publisher.folder.path.mkdir(exist_ok=True)
        publisher.write_report(1)
    finish_evaluations(publishers)
    finish_run(publishers[0])
    assert [publisher.page for publisher in publishers] == [tmp_path / "genmonitor" / "report.html"] * 2


# a training


class Fails(Callback):
    """Ends a training before its time."""

    def __init__(self, error):
        self.error = error

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch == 2:
            raise self.error


def monitored(n_samples=60, **settings):
    return PixelClusterMonitor(n_clusters=3, n_samples=n_samples, n_cluster_images=200, verbose=False, **settings)


def fit_with(folder, *callbacks):
    """Train, and return what the weights are then, all figures and the steps of those in TensorBoard."""
    seed_everything(0)
    logger = TensorBoardLogger(folder, name=None, version="")
    _, module = fit(folder, *callbacks, val=loader(digits(300, 400)), max_epochs=4, logger=logger)
    files = {path.name: path.read_bytes() for path in (folder / "genmonitor").glob("*.png")}
    return module.state_dict(), files, [image.step for image in read_tensorboard(folder).Images("cms/samples")]


@pytest.mark.slow
def test_training_with_figures_drawn_beside_it_is_that_without(tmp_path, running, monkeypatch):
    here, beside = monitored(on_error="raise"), monitored()
    weights, files, steps = fit_with(tmp_path / "here", here)
    sent, submit = [], running.submit
    monkeypatch.setattr(running, "submit", lambda key, *rest, **how: (sent.append(key), submit(key, *rest, **how)))
    same_weights, same_files, same_steps = fit_with(tmp_path / "beside", beside)
    assert {key[0] for key in sent} == {"figure", "page", "finish"}
    assert all(torch.equal(weights[name], same_weights[name]) for name in weights)
    assert files == same_files
    assert files.keys() >= {"cms_curves.png", "cms_samples_epoch_0003_step_11.png"}
    assert steps == same_steps
    assert beside.publisher.latest["curves"] == files["cms_curves.png"]
    assert beside.publisher.page == tmp_path / "beside" / "genmonitor" / "report.html"
    assert beside.publisher.page.exists()


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_figures_are_there_when_a_training_ends_before_its_time(tmp_path, running, error):
    with pytest.raises((RuntimeError, SystemExit)):
        fit_with(tmp_path, monitored(), Fails(error))
    written = {path.name for path in (tmp_path / "genmonitor").iterdir()}
    assert written >= {"cms_curves.png", "cms_samples_epoch_0002_step_8.png", "report.html"}
    assert len(read_tensorboard(tmp_path).Images("cms/curves")) >= 1


def test_samples_of_the_last_evaluation_are_drawn_where_only_earlier_ones_had_a_diagnosis(tmp_path, running):
    monitor = monitored(100)
    with pytest.raises(RuntimeError):
        fit_with(tmp_path, monitor, Fails(RuntimeError("no more")))
    assert ["explained" in record for record in monitor.history] == [True, False, False]
    samples = {path.name for path in (tmp_path / "genmonitor").glob("cms_samples_*.png")}
    assert samples == {"cms_samples_epoch_0000_step_2.png", "cms_samples_epoch_0002_step_8.png"}
    assert read_tensorboard(tmp_path).Images("cms/samples")[-1].step == 8


@pytest.mark.slow
def test_skipped_figures_are_said(tmp_path, running, monkeypatch):
    monkeypatch.setattr(running, "skipped", 2)
    with pytest.warns(UserWarning, match="PixelClusterMonitor: 2 figures were skipped"):
        fit_with(tmp_path, monitored())
    assert running.skipped == 0
