# SPDX-License-Identifier: Apache-2.0
import importlib
import io
import json
import re
import warnings
from pathlib import Path

import lightning.pytorch.loggers
import matplotlib.figure
import pytest
import pytorch_lightning.loggers
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from genmonitor.callbacks import report
from genmonitor.callbacks.descriptions import log_about, log_descriptions, log_layout
from genmonitor.callbacks.loggers import log_alert, log_figures, log_series, without_figures
from genmonitor.plotting.pixel_clusters import cluster_map

BOTH = [lightning.pytorch.loggers, pytorch_lightning.loggers]
CLUSTERS = ["cluster_1", "cluster_2", "cluster_10", "constant"]
CHARTS = {title: [f"cms/{name}" for name in names] for title, names in report.charts(CLUSTERS).items()}


@pytest.fixture
def figures():
    return {"cms/cluster_map": cluster_map([[1, 2], [0, 1]])}


def read_back(logger):
    logger.experiment.flush()
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    return events


def layout_of(events):
    layout = Layout()
    layout.ParseFromString(events.Tensors("custom_scalars__config__")[-1].tensor_proto.string_val[0])
    return {
        category.title: {chart.title: list(chart.multiline.tag) for chart in category.chart}
        for category in layout.category
    }


class Logger:
    """A logger of nobody's class whose experiment is what the test makes it."""

    LOGGER_JOIN_CHAR = "-"

    def __init__(self, experiment, **attributes):
        self.experiment = experiment
        vars(self).update(attributes)


class MLflowClient:
    def __init__(self):
        self.figures = []

    def log_figure(self, run_id, figure, artifact_file, *, save_kwargs=None):
        assert isinstance(figure, matplotlib.figure.Figure)
        self.figures.append((run_id, artifact_file))


class Broken:
    def __getattr__(self, name):
        raise OSError("disk full")


@pytest.mark.parametrize("loggers", BOTH, ids=lambda module: module.__name__.split(".")[0])
def test_tensorboard_gets_the_picture_at_the_trainers_step(loggers, figures, tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path / "tb")
    log_figures([logger], figures, step=7, directory=tmp_path / "png")
    (image,) = read_back(logger).Images("cms/cluster_map")
    assert image.step == 7
    sent = Image.open(io.BytesIO(image.encoded_image_string)).convert("RGB")
    with Image.open(tmp_path / "png" / "cms_cluster_map.png") as file:
        kept = file.convert("RGB")
    assert sent.size == kept.size == (760, 600)
    assert sent.tobytes() == kept.tobytes()


@pytest.mark.parametrize("loggers", BOTH, ids=lambda module: module.__name__.split(".")[0])
def test_tensorboard_draws_all_clusters_in_one_chart(loggers, tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path)
    log_layout([logger], "cms", CHARTS)
    charts = layout_of(read_back(logger))["cms"]
    keys = [
        f"cms/{name}"
        for name in [*CLUSTERS, "image", "product", "share_1", "share_10", "share_constant", "metric_seconds"]
    ]
    matching = {title: [k for k in keys if any(re.match(p, k) for p in tags)] for title, tags in charts.items()}
    assert matching == {
        "CMS per cluster": [f"cms/{name}" for name in CLUSTERS],
        "CMS of image and product": ["cms/image", "cms/product"],
        "Share of the loss": ["cms/share_1", "cms/share_10", "cms/share_constant"],
        "Seconds per check": ["cms/metric_seconds"],
    }


def test_a_pattern_of_the_layout_draws_one_scalar_only(tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path)
    log_layout([logger], "cms", {"first": ["cms/cluster_1"]})
    (pattern,) = layout_of(read_back(logger))["cms"]["first"]
    assert re.match(pattern, "cms/cluster_1")
    assert not re.search(pattern, "cms/cluster_10")
    assert not re.search(pattern, "other/cms/cluster_1")


def test_two_monitors_share_tensorboards_one_layout(tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path)
    log_layout([logger], "cms", {"a": ["cms/image"]})
    log_layout([logger], "diversity", {"b": ["diversity/rke"]})
    assert set(layout_of(read_back(logger))) == {"cms", "diversity"}


def test_the_loggers_own_prefix_is_part_of_every_key(figures, tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path, prefix="run")
    logger.log_metrics({"cms/image": 0.9}, step=1)
    log_layout([logger], "cms", {"image": ["cms/image"]})
    log_figures([logger], figures, 1, tmp_path)
    events = read_back(logger)
    (pattern,) = layout_of(events)["cms"]["image"]
    assert [tag for tag in events.Tags()["scalars"] if re.match(pattern, tag)] == ["run-cms/image"]
    assert events.Tags()["images"] == ["run-cms/cluster_map"]


def test_tensorboard_shows_the_alerts_text_as_it_is(tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path)
    log_alert([logger], "cluster_3 dropped", "*0.91*\n<b>below</b> its band", step=5)
    (event,) = read_back(logger).Tensors("alerts/text_summary")
    assert event.step == 5
    lines = event.tensor_proto.string_val[0].decode().split("\n")
    assert [line.strip() for line in lines] == ["cluster_3 dropped", "", "*0.91*", "<b>below</b> its band"]
    # indented by four, Markdown takes it for code and escapes it
    assert all(line.startswith("    ") for line in lines if line)


def test_tensorboard_says_what_each_value_is(tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path, prefix="run")
    log_about([logger], "cms", {"mmd": "lower is better", "share_…": "sum to 1"})
    (event,) = read_back(logger).Tensors("run-cms/about/text_summary")
    rows = event.tensor_proto.string_val[0].decode().split("\n")[2:]
    assert rows == ["| `run-cms/mmd` | lower is better |", "| `run-cms/share_…` | sum to 1 |"]


def test_tensorboard_shows_a_description_beside_each_scalar(tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path)
    about = {"mmd": "lower is better", "share_…": "sum to 1"}
    log_descriptions([logger, Logger(None)], "cms", about, ["mmd", "share_1", "fid"])
    for step in (5, 10):
        logger.log_metrics({"cms/mmd": 0.5, "cms/share_1": 1.0, "cms/fid": 7.0}, step=step)
    events = read_back(logger)
    assert [(event.step, event.value) for event in events.Scalars("cms/mmd")] == [(5, 0.5), (10, 0.5)]
    keys = ("cms/mmd", "cms/share_1")
    assert [events.SummaryMetadata(key).summary_description for key in keys] == ["lower is better", "sum to 1"]
    with pytest.raises(KeyError):
        events.SummaryMetadata("cms/fid")


def test_loggers_without_figures_are_named(tmp_path):
    takes = [lightning.pytorch.loggers.TensorBoardLogger(tmp_path), Logger(MLflowClient(), run_id="abc")]
    assert without_figures(takes) == []
    others = [lightning.pytorch.loggers.CSVLogger(tmp_path), Logger(None)]
    assert without_figures([*takes, *others]) == ["CSVLogger", "Logger"]


@pytest.fixture
def offline_run(tmp_path, monkeypatch):
    """What a real offline W&B run was asked, and the folder of its files."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    asked = []
    for name in ("log", "define_metric", "alert"):
        original = getattr(wandb.Run, name)

        def spy(run, *args, _name=name, _original=original, **kwargs):
            asked.append((_name, args, kwargs))
            return _original(run, *args, **kwargs)

        monkeypatch.setattr(wandb.Run, name, spy)
    yield asked, tmp_path
    wandb.teardown()


@pytest.mark.parametrize("loggers", BOTH, ids=lambda module: module.__name__.split(".")[0])
def test_wandb_gets_pictures_series_axis_and_alert(loggers, figures, offline_run):
    asked, folder = offline_run
    logger = loggers.WandbLogger(save_dir=str(folder), offline=True)
    log_layout([logger], "cms", CHARTS)
    logger.log_metrics({"cms/image": 0.5}, step=30)
    log_figures([logger], figures, step=20, directory=folder / "png", epoch=3)
    curves = {"cluster_1": [0.9, float("nan")], "cluster_2": [0.8, 0.7]}
    log_series([logger], "cms/curves", "CMS", [1, 2], curves, step=30)
    log_alert([logger], "x" * 80, "cluster 3 left its band")
    step = logger.experiment.step
    logger.experiment.finish()

    assert ("define_metric", ("cms/*",), {"step_metric": "trainer/global_step", "step_sync": True}) in asked
    logged = [(args[0], kwargs) for name, args, kwargs in asked if name == "log"]
    assert [set(values) - {"trainer/global_step"} for values, _ in logged] == [
        {"cms/image"},
        {"cms/cluster_map"},
        {"cms/curves"},
    ]
    # the x-axis is the trainer's, and may be that of an earlier scalar; wandb's own step only ever grows
    assert [values["trainer/global_step"] for values, _ in logged] == [30, 20, 30]
    assert not any("step" in kwargs for _, kwargs in logged)
    assert step == 3
    assert [kwargs for name, _, kwargs in asked if name == "alert"] == [
        {"title": "x" * 63, "text": "cluster 3 left its band", "level": "WARN"}
    ]
    (picture,) = folder.glob("wandb/offline-run-*/files/media/images/cms/cluster_map_*.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    (table,) = folder.glob("wandb/offline-run-*/files/media/table/cms/*.json")
    assert json.loads(table.read_text())["data"] == [
        [1, "cluster_1", 0.9],
        [1, "cluster_2", 0.8],
        [2, "cluster_2", 0.7],
    ]


def test_mlflow_gets_the_figure_under_its_run(figures, tmp_path):
    client = MLflowClient()
    log_figures([Logger(client, run_id="abc")], figures, 4, tmp_path, epoch=2)
    assert client.figures == [("abc", "cms_cluster_map_epoch_0002_step_4.png")]


def test_any_other_logger_leaves_the_files(figures, tmp_path):
    logger = lightning.pytorch.loggers.CSVLogger(tmp_path / "csv")
    paths = log_figures([logger, Logger(None)], figures, 4, tmp_path / "deep" / "png")
    assert paths == {"cms/cluster_map": tmp_path / "deep" / "png" / "cms_cluster_map.png"}
    assert paths["cms/cluster_map"].read_bytes()[:4] == b"\x89PNG"
    log_layout([logger], "cms", CHARTS)
    log_series([logger], "cms/curves", "CMS", [1], {"cluster_1": [0.9]}, 4)
    log_alert([logger], "title", "text")


def test_files_are_replaced_as_a_whole_and_nothing_is_left_beside_them(figures, tmp_path, monkeypatch):
    path = tmp_path / "cms_cluster_map.png"
    log_figures([], figures, 1, tmp_path)
    first = path.stat().st_ino
    log_figures([], figures, 2, tmp_path)
    assert path.stat().st_ino != first
    before = path.read_bytes()

    def half_written(path, content):
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", half_written)
    with pytest.raises(OSError, match="disk full"):
        log_figures([], {"cms/cluster_map": cluster_map([[1]])}, 3, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["cms_cluster_map.png"]
    assert path.read_bytes() == before


def test_file_names_cannot_leave_the_folder(tmp_path):
    figure = cluster_map([[1]])
    paths = log_figures([], {"../../etc/x y": figure, "/": figure}, 1, tmp_path)
    assert [path.name for path in paths.values()] == ["etc_x_y.png", "figure.png"]
    assert {path.parent for path in paths.values()} == {tmp_path}


def test_a_logger_that_raises_is_named_once_and_stops_nobody(figures, tmp_path):
    broken = Logger(Broken())
    tensorboard = lightning.pytorch.loggers.TensorBoardLogger(tmp_path)
    with pytest.warns(UserWarning, match="Logger did not take what was logged: OSError: disk full"):
        log_figures([broken, tensorboard], figures, 1, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_figures([broken, tensorboard], figures, 2, tmp_path)
        log_alert([broken, tensorboard], "title", "text")
    assert [image.step for image in read_back(tensorboard).Images("cms/cluster_map")] == [1, 2]
    with pytest.warns(UserWarning, match="disk full"):
        log_layout([Logger(Broken())], "cms", {})


@pytest.mark.parametrize("module", ["lightning", "pytorch_lightning"])
def test_the_dummy_experiment_of_other_ranks_and_of_fast_dev_run_takes_everything(module, figures, tmp_path):
    names = {"lightning": "lightning.pytorch.loggers.logger", "pytorch_lightning": "pytorch_lightning.loggers.logger"}
    logger = importlib.import_module(names[module]).DummyLogger()
    log_figures([logger], figures, 1, tmp_path)
    log_layout([logger], "cms", CHARTS)
    log_series([logger], "cms/curves", "CMS", [1], {"cluster_1": [0.9]}, 1)
    log_alert([logger], "title", "text")
