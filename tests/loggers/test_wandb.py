# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
from _helpers.logged import read_wandb, read_wandb_tables, wandb_records
from _helpers.loggers import CHARTS, AnyLogger, both_namespaces, cluster_figures

from genmonitor.evaluation.results import Alert, LineSeries, Table
from genmonitor.loggers.wandb import WandbBackend

wandb = pytest.importorskip("wandb")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a real offline run leaves its files."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield tmp_path
    wandb.teardown()


def finish(logger):
    logger.experiment.finish()
    wandb.teardown()  # the files are complete only then


@both_namespaces
def test_all_that_is_logged_is_over_the_trainers_step(namespace, folder):
    logger = namespace.WandbLogger(save_dir=str(folder), offline=True)
    backend = WandbBackend(logger)
    backend.log_layout("cms", CHARTS)
    logger.log_metrics({"cms/image": 0.5}, step=30)
    backend.log_figures(cluster_figures(), step=20, epoch=3)
    series = LineSeries("CMS", [1, 2], {"cluster_1": [0.9, float("nan")], "cluster_2": [0.8, 0.7]})
    backend.log_line_series("cms/curves", series, step=30)
    finish(logger)

    axes = {metric.glob_name or metric.name: metric.step_metric for metric in wandb_records(folder, "metric")}
    assert axes["cms/*"] == "trainer/global_step"
    logged = read_wandb(folder)
    # the x-axis is the trainer's, and may be that of an earlier scalar; wandb's own step only ever grows
    assert [values["trainer/global_step"] for values in logged] == [30, 20, 30]
    assert [values["_step"] for values in logged] == [0, 1, 2]
    assert logged[1]["cms/cluster_map/caption"] == "epoch 3"
    (picture,) = folder.glob("wandb/offline-run-*/files/media/images/cms/cluster_map_*.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    (table,) = folder.glob("wandb/offline-run-*/files/media/table/cms/*.json")
    points = [[1, "cluster_1", 0.9], [1, "cluster_2", 0.8], [2, "cluster_2", 0.7]]  # none for what is NaN
    assert json.loads(table.read_text())["data"] == points


def test_table_holds_its_pictures(folder):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True, prefix="run")
    picture = np.full((4, 5, 3), 255, np.uint8)
    table = Table(["prompt", "samples", "share"], [["a cat", picture, 0.5]])
    WandbBackend(logger).log_table("disagreement/prompts", table, step=9)
    finish(logger)
    ((columns, ((prompt, samples, share),)),) = read_wandb_tables(folder)
    assert (columns, prompt, share) == (["prompt", "samples", "share"], "a cat", 0.5)
    assert samples.shape[:2] == (4, 5)
    assert samples.min() == 1
    (values,) = read_wandb(folder)
    assert any(key.startswith("run-disagreement/prompts") for key in values)


def test_alert_has_a_title_that_wandb_takes(folder):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True)
    WandbBackend(logger).log_alert(Alert("x" * 80, "cluster_3 regressed"), step=5)
    finish(logger)
    (alert,) = wandb_records(folder, "alert")
    assert (alert.title, alert.text, alert.level) == ("x" * 63, "cluster_3 regressed", "WARN")


def test_handles_runs_of_wandb_only(folder):
    run = wandb.init(dir=folder)
    assert WandbBackend.handles(AnyLogger(), run)
    run.finish()
    assert not WandbBackend.handles(AnyLogger(), None)
    assert not WandbBackend.handles(AnyLogger(), AnyLogger())
