# SPDX-License-Identifier: Apache-2.0
import importlib
import warnings
from pathlib import Path

import lightning.pytorch.loggers
import pytest
from _helpers.logged import read_tensorboard
from _helpers.loggers import CHARTS, AnyLogger, BrokenLogger, cluster_figures
from torch.utils.tensorboard import SummaryWriter

from genmonitor.evaluation.results import Alert
from genmonitor.findings.tables import Table
from genmonitor.loggers import Loggers, facade
from genmonitor.loggers.backend import find_backend
from genmonitor.loggers.facade import as_logger
from genmonitor.loggers.tensorboard import TensorBoardBackend


def log_everything(loggers, step, page=Path("report.html")):
    loggers.each(lambda x: x.log_layout("cms", CHARTS))
    loggers.each(lambda x: x.log_scalars({"cms/mmd": 0.5}, step))
    loggers.each(lambda x: x.log_figures(cluster_figures(), step, epoch=1))
    loggers.each(lambda x: x.log_table("cms/prompts", Table(["prompt"], [["a cat"]]), step))
    loggers.each(lambda x: x.log_finding("cms/finding", "cluster_1 differs", step))
    loggers.each(lambda x: x.log_alert(Alert("cluster_1 got worse", "cluster_1 got worse: CMS 0.9"), step))
    loggers.each(lambda x: x.log_page(page, step))
    loggers.each(lambda x: x.finish_evaluation(step))


def test_loggers_without_backend_get_the_scalars(tmp_path):
    csv, homemade = lightning.pytorch.loggers.CSVLogger(tmp_path), AnyLogger()
    log_everything(Loggers([csv, homemade]), step=4)
    csv.save()
    assert homemade.logged == [(4, {"cms/mmd": 0.5})]
    (_, row) = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().split()
    assert set(row.split(",")) == {"0.5", "4"}


def test_broken_logger_is_named_once_and_stops_no_other(tmp_path):
    broken, tensorboard = BrokenLogger(), lightning.pytorch.loggers.TensorBoardLogger(tmp_path)
    loggers = Loggers([broken, tensorboard])
    with pytest.warns(UserWarning, match="BrokenLogger did not take what was logged: OSError: server is down") as said:
        log_everything(loggers, step=1)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_everything(Loggers([broken, tensorboard]), step=2)  # as another monitor of the same Trainer
    with pytest.warns(UserWarning, match="server is down"):
        Loggers([BrokenLogger()]).each(lambda x: x.log_scalars({}, 1))
    tensorboard.experiment.flush()
    events = read_tensorboard(tensorboard.log_dir)
    assert [image.step for image in events.Images("cms/cluster_map")] == [1, 2]
    assert [scalar.step for scalar in events.Scalars("cms/mmd")] == [1, 2]


def test_logger_that_recovers_is_used_again(tmp_path):
    class Slow(AnyLogger):
        started = False

        @property
        def experiment(self):
            if not self.started:
                raise ConnectionError("not yet")
            return tensorboard.experiment

        @experiment.setter
        def experiment(self, value): ...

    tensorboard, slow = lightning.pytorch.loggers.TensorBoardLogger(tmp_path), Slow()
    loggers = Loggers([slow])
    with pytest.warns(UserWarning, match="not yet"):
        loggers.each(lambda x: x.log_figures(cluster_figures(), 1, None))
    slow.started = True
    loggers.each(lambda x: x.log_figures(cluster_figures(), 2, None))
    tensorboard.experiment.flush()
    assert [image.step for image in read_tensorboard(tensorboard.log_dir).Images("cms/cluster_map")] == [2]


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_dummy_logger_of_a_fast_dev_run_takes_everything(package):
    logger = importlib.import_module(f"{package}.loggers.logger").DummyLogger()
    loggers = Loggers([logger])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one would say what it did not take
        log_everything(loggers, step=1)
    assert logger not in facade._warned  # so that everything was sent


class Tracker:
    """One of accelerate's."""

    def __init__(self, writer):
        self.tracker = writer


@pytest.mark.parametrize("kind", [lambda writer: writer, Tracker], ids=["alone", "in a tracker"])
def test_a_summary_writer_has_its_backend_and_its_scalars(tmp_path, kind):
    writer = SummaryWriter(tmp_path)
    logger = as_logger(kind(writer))
    assert isinstance(find_backend(logger), TensorBoardBackend)
    assert find_backend(logger).key("cms/image") == "cms/image"
    logger.log_metrics({"cms/image": 0.5, "epoch": 2}, step=7)
    (event,) = read_tensorboard(tmp_path).Scalars("cms/image")  # though nobody closed it
    assert (event.step, event.value) == (7, 0.5)
    writer.close()


def test_a_logger_is_taken_as_it_is():
    logger = AnyLogger()
    assert as_logger(logger) is logger


def test_something_else_is_refused():
    with pytest.raises(TypeError, match=r"`loggers` to hold a .*SummaryWriter, a run of wandb.*, but got dict"):
        as_logger({})
