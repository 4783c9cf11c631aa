# SPDX-License-Identifier: Apache-2.0
"""Loggers for the tests of what goes to them."""

import lightning.pytorch.loggers
import pytest
import pytorch_lightning.loggers

from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report.pictures import render

both_namespaces = pytest.mark.parametrize(
    "namespace", [lightning.pytorch.loggers, pytorch_lightning.loggers], ids=["lightning", "pytorch_lightning"]
)
"""Give a test the module of Lightning's loggers from either of its packages, whose classes are unrelated."""

REGIONS = ["cluster_1", "cluster_2", "cluster_10", "constant"]
CHARTS = {
    "CMS per cluster": REGIONS,
    "CMS of image and product": ["image", "product"],
    "Share of the loss": ["share_1", "share_10", "share_constant"],
}


class AnyLogger:
    """A logger of nobody's class whose experiment is what the test makes it."""

    LOGGER_JOIN_CHAR = "-"

    def __init__(self, experiment=None, **attributes):
        self.experiment = experiment
        self.logged = []
        vars(self).update(attributes)

    def log_metrics(self, metrics, step=None):
        self.logged.append((step, metrics))


class BrokenLogger(AnyLogger):
    """A logger that takes nothing."""

    @property
    def experiment(self):
        raise OSError("server is down")

    @experiment.setter
    def experiment(self, value):
        pass

    def log_metrics(self, metrics, step=None):
        raise OSError("server is down")


class WandbRun:
    """A run of W&B that keeps its rows."""

    def __init__(self):
        self.open, self.rows = {}, []

    def log(self, values, commit=True):
        self.open |= values
        if commit:
            self.rows.append(self.open)
            self.open = {}


WandbRun.__module__ = "wandb.of_tests"


def cluster_figures():
    """Return a figure by its tag."""
    return {"cms/cluster_map": render(cluster_map([[1, 2], [0, 1]]))}
