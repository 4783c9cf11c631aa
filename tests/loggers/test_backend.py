# SPDX-License-Identifier: Apache-2.0
import importlib
import shutil
import sys
import warnings
from pathlib import Path

import lightning.pytorch.loggers
import pytest
from _helpers.loggers import AnyLogger, cluster_figures

import genmonitor
from genmonitor.evaluation.results import Alert
from genmonitor.loggers import Backend, Loggers, facade
from genmonitor.loggers.backend import ScalarBackend, find_backend

NEW_FILE = '''
from genmonitor.loggers.backend import Backend

class AimBackend(Backend):
    """Aim."""

    @classmethod
    def handles(cls, logger, experiment):
        return hasattr(experiment, "track_image")

    def log_figures(self, figures, step, epoch):
        for tag, png in figures.items():
            self.experiment.track_image(self.key(tag), png, step, epoch)
'''


class Aim:
    def __init__(self):
        self.images = []

    def track_image(self, *image):
        self.images.append(image)


def imported():
    return [name for name in sys.modules if name.startswith("genmonitor.loggers")]


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A folder of backends to add a file to, which the next import of the package takes instead of its own."""
    folder = tmp_path / "loggers"
    shutil.copytree(Path(sys.modules[Loggers.__module__].__file__).parent, folder)
    for name in imported():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(genmonitor, "__path__", [str(tmp_path), *genmonitor.__path__])
    monkeypatch.setattr(genmonitor, "loggers", None)  # so that it is put back
    yield folder
    for name in imported():
        del sys.modules[name]


def test_new_backend_is_one_new_file(copied):
    (copied / "aim.py").write_text(NEW_FILE)
    loggers = importlib.import_module("genmonitor.loggers")
    assert Path(loggers.__file__).parent == copied
    logger, figures = AnyLogger(Aim(), _prefix="run"), cluster_figures()
    everything = loggers.Loggers([logger])
    everything.each(lambda x: x.log_figures(figures, 9, 3))
    everything.each(lambda x: x.log_alert(Alert("title", "text"), 9))  # which it does nothing with
    assert logger.experiment.images == [("run-cms/cluster_map", figures["cms/cluster_map"], 9, 3)]


def test_users_own_backend_is_defined_anywhere():
    class Experiment(list):
        pass

    class Notebook(Backend):
        @classmethod
        def handles(cls, logger, experiment):
            return isinstance(experiment, Experiment)

        def log_alert(self, alert, step):
            self.experiment.append(f"{step}: {alert.title}")

    logger = AnyLogger(Experiment())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loggers = Loggers([logger])
        loggers.each(lambda x: x.log_alert(Alert("cluster_3 got worse", "text"), 5))
        loggers.each(lambda x: x.log_figures(cluster_figures(), 5, None))
    assert logger.experiment == ["5: cluster_3 got worse"]
    assert logger not in facade._warned


def test_find_backend_prefers_what_was_defined_last(tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path)
    usual = find_backend(logger)

    class Mine(type(usual)):
        @classmethod
        def handles(cls, candidate, experiment):
            return candidate is logger

    assert isinstance(find_backend(logger), Mine)
    assert type(find_backend(lightning.pytorch.loggers.TensorBoardLogger(tmp_path))) is type(usual)
    assert isinstance(find_backend(AnyLogger()), ScalarBackend)


def test_backend_has_to_say_what_it_handles():
    class Silent(Backend):
        pass

    with pytest.raises(TypeError, match="handles"):
        Silent(AnyLogger())
