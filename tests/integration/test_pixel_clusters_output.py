# SPDX-License-Identifier: Apache-2.0
"""Where PixelClusterMonitor shows what it measured: TensorBoard, W&B, and a folder with figures and a manifest."""

import json
import shutil
import warnings
from html import escape, unescape
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from _helpers.logged import read_tensorboard, read_wandb, read_wandb_pages, read_wandb_summary, wandb_records
from _helpers.modules import LIGHTNING_SAYS, PLANTED_REGIONS, Light, TwoPlayers, digits, fit, fit_planted, loader, plain
from _helpers.runs import manifests
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from PIL import Image
from planted import planted_images

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.callbacks.base import sampled_model
from genmonitor.functional import cosine_mean_similarity
from genmonitor.images.image_set import ImageSet
from genmonitor.images.sampler import Sampler
from genmonitor.images.split import split_reference

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*cluster_2 .* got worse")]
SCALARS = [
    "image",
    "product",
    *PLANTED_REGIONS,
    *(f"share_{name.removeprefix('cluster_')}" for name in PLANTED_REGIONS),
    *(f"error_ratio_{name.removeprefix('cluster_')}" for name in ["image", *PLANTED_REGIONS]),
    *(
        f"{measure}_{name.removeprefix('cluster_')}"
        for measure in ("p", "structure", "texture", "vs_best")
        for name in ["image", *PLANTED_REGIONS]
    ),
    "p",
    "p_finding",
    "spread",
    "nearest_sample",
    "copied",
    "strange_samples",
    "uncovered_images",
    "explained",
    "proportions",
    "dependent_regions",
    "mmd",
    *(f"baseline_{name.removeprefix('cluster_')}" for name in ["image", "product", *PLANTED_REGIONS, "mmd"]),
    "sampling_seconds",
    "metric_seconds",
    "images_seen",
]
PICTURES = {f"cms/{name}" for name in ("clusters", "diagnosis", "samples", "single_samples")}


STEPS = [3, 7, 11]  # of the last batch of each epoch; region 2 is spoiled in the last two


def run(folder, logger):
    monitor = PixelClusterMonitor(4, n_samples=400, n_cluster_images=1000, on_error="raise", log="all")
    trainer, module = fit_planted(folder, monitor, 2, 1, logger=logger, epochs=3)
    return monitor, trainer, module


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run with TensorBoard: its folder, monitor, trainer and module."""
    logger = TensorBoardLogger(tmp_path_factory.mktemp("run"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Path(logger.log_dir), *run(logger.save_dir, logger)


def test_tensorboard_holds_scalars_figures_charts_and_alert(ran):
    folder, monitor, *_ = ran
    events = read_tensorboard(folder)
    tags = events.Tags()
    assert {tag for tag in tags["scalars"] if tag.startswith("cms/")} == {f"cms/{name}" for name in SCALARS}
    for name in SCALARS:
        written = [(event.step, event.value) for event in events.Scalars(f"cms/{name}")]
        assert written == [(c["step"], pytest.approx(c[name], rel=1e-5)) for c in monitor.history if name in c]
    assert [record["step"] for record in monitor.history] == STEPS
    assert set(tags["images"]) == PICTURES
    assert [image.step for image in events.Images("cms/samples")] == STEPS
    assert [image.step for image in events.Images("cms/clusters")] == [0]
    assert "custom_scalars__config__" in tags["tensors"]
    (alert,) = events.Tensors("alerts/text_summary")
    assert alert.step == STEPS[-1]
    assert "cluster_2 (" in unescape(alert.tensor_proto.string_val[0].decode())


@pytest.mark.slow
def test_wandb_holds_scalars_figures_charts_and_alert(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(save_dir=str(tmp_path), offline=True)
    monitor, *_ = run(tmp_path, logger)
    logger.experiment.finish()
    wandb.teardown()
    logged = read_wandb(tmp_path)
    records = [values for values in logged if "cms/image" in values]
    assert [values["trainer/global_step"] for values in records] == STEPS
    for values, record in zip(records, monitor.history, strict=True):
        names = [name for name in SCALARS if name in record]
        found = {name: values[f"cms/{name}"] for name in names}
        assert found == pytest.approx({name: record[name] for name in names}, rel=1e-5)
    steps = {name: [v["trainer/global_step"] for v in logged if f"{name}/sha256" in v] for name in PICTURES}
    drawn = dict.fromkeys(["cms/samples", "cms/diagnosis", "cms/single_samples"], STEPS)
    assert steps == {name: drawn.get(name, [0]) for name in PICTURES}
    of_monitor = [v for v in logged if any(key.startswith(("cms/", "genmonitor/")) for key in v)]
    # all of an evaluation is one row; the last page, which W&B does not get with each evaluation, is one more
    assert [v["trainer/global_step"] for v in of_monitor] == [0, *STEPS, STEPS[-1]]
    page = (monitor.publisher.folder.path / "report.html").read_text()
    pages = read_wandb_pages(tmp_path, "genmonitor/report")
    assert (len(pages), pages[-1] == page) == (2, True)  # the first and the last
    summary = read_wandb_summary(tmp_path)
    assert summary["cms/image"] == pytest.approx(monitor.history[-1]["image"], rel=1e-5)
    assert summary["cms/finding"].splitlines()[0] == str(monitor.findings[0])
    axes = {metric.glob_name or metric.name: metric.step_metric for metric in wandb_records(tmp_path, "metric")}
    assert axes["cms/*"] == "trainer/global_step"
    (alert,) = wandb_records(tmp_path, "alert")
    assert "cluster_2" in alert.title
    assert "cluster_2 (" in alert.text


def steps_of_a_gan(folder, epochs, **settings):
    """Train a GAN of two optimizers; return the steps that W&B has of all it logged, and of the records."""
    wandb = pytest.importorskip("wandb")
    logger = WandbLogger(save_dir=str(folder), offline=True, id="gan")
    keep = ModelCheckpoint(folder, save_last=True)
    train, val = loader(digits(0, 300)), loader(digits(300, 400))
    monitor = Light()
    settings |= {"max_epochs": epochs, "logger": logger}
    fit(folder, monitor, keep, module=TwoPlayers(), train=train, val=val, **settings)
    logger.experiment.finish()
    wandb.teardown()
    logged = read_wandb(folder)
    assert [values["_step"] for values in logged] == list(range(len(logged)))  # wandb's own never goes backwards
    steps = [values["trainer/global_step"] for values in logged]
    return steps, [values["trainer/global_step"] for values in logged if "cms/image" in values], monitor


def test_no_step_of_wandb_goes_backwards_after_resuming(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    settings = {"log_every_n_steps": 2}
    steps, records, monitor = steps_of_a_gan(tmp_path, 2, **settings)
    assert steps == sorted(steps)
    assert records == [record["step"] for record in monitor.history]
    shutil.rmtree(tmp_path / "wandb")
    later, again, monitor = steps_of_a_gan(tmp_path, 4, ckpt_path=tmp_path / "last.ckpt", **settings)
    assert later == sorted(later)
    assert later[0] > steps[-1]
    assert [*records, *again] == [record["step"] for record in monitor.history]
    gaps = {b - a for a, b in pairwise([*records, *again])}
    assert len(gaps) == 1  # an epoch is as long after resuming as before


def test_several_loggers_get_scalars_and_the_files_figures(tmp_path, caplog):
    class HomemadeLogger(Logger):
        name, version, experiment, logged = "homemade", 0, None, []

        def log_metrics(self, metrics, step=None):
            self.logged.append((step, metrics))

        def log_hyperparams(self, params):
            pass

    homemade, csv = HomemadeLogger(), CSVLogger(tmp_path / "csv")
    tensorboard = TensorBoardLogger(tmp_path / "tb")
    monitor = plain()
    caplog.set_level("INFO", "lightning.pytorch")
    fit(tmp_path, monitor, val=loader(digits(300, 400)), logger=[tensorboard, csv, homemade], max_epochs=1)
    (record,) = monitor.history
    for name in ("image", "mmd"):
        (event,) = read_tensorboard(tensorboard.log_dir).Scalars(f"cms/{name}")
        assert event.value == pytest.approx(record[name], rel=1e-5)
        (row,) = [values for _, values in homemade.logged if f"cms/{name}" in values]
        assert row[f"cms/{name}"] == pytest.approx(record[name])
        assert f"cms/{name}" in (Path(csv.log_dir) / "metrics.csv").read_text()
    folder = Path(tensorboard.log_dir) / "genmonitor"
    assert (folder / "report.html").exists()


@pytest.mark.filterwarnings("ignore:Plain. only 100 real images")
def test_without_a_logger_everything_is_in_the_folder(tmp_path, capsys):
    fit(tmp_path, plain(n_samples=120), val=loader(digits(300, 400)), logger=False, max_epochs=1)
    folder = tmp_path / "genmonitor"
    assert ">Only 100 real images available for comparison with 120" in (folder / "report.html").read_text()
    names = {path.name for path in folder.iterdir()}
    assert {"report.html", "cms_run.json", "cms_partition.npz"} <= names
    assert f"Report: {folder / 'report.html'}" in capsys.readouterr().out


def test_report_says_what_the_monitor_warned_of(ran):
    folder = ran[0] / "genmonitor"
    notes = json.loads((folder / "cms_run.json").read_text())["notes"]
    (alert,) = notes
    assert (alert["epoch"], alert["step"]) == (2, STEPS[2])
    assert alert["text"].lower().startswith("cluster_2 (")
    page = (folder / "report.html").read_text()
    assert f'<p class="note alert">{escape(alert["text"])}' in page


def test_folder_holds_figures_and_samples_of_each_evaluation(ran):
    pictures = sorted((ran[0] / "genmonitor").glob("*.png"))
    assert [path.name for path in pictures] == [
        "cms_clusters.png",
        # the first, the one in which much had changed, and the last
        *(f"cms_diagnosis_epoch_{epoch:04d}_step_{step}.png" for epoch, step in enumerate(STEPS)),
        *(f"cms_samples_epoch_{epoch:04d}_step_{step}.png" for epoch, step in enumerate(STEPS)),
        *(f"cms_single_samples_epoch_{epoch:04d}_step_{step}.png" for epoch, step in enumerate(STEPS)),
    ]
    for path in pictures:
        with Image.open(path) as picture:
            assert len(picture.convert("L").getcolors()) > 10


def test_manifest_is_enough_for_the_same_number(ran):
    folder, monitor, trainer, module = ran
    evaluations = manifests(folder / "genmonitor")
    assert [manifest["values"] for manifest in evaluations] == monitor.history
    said = evaluations[-1]
    assert said["versions"].items() >= {"torch": version("torch"), "genmonitor": version("genmonitor")}.items()
    assert {"lightning", "torchmetrics", "numpy"} <= said["versions"].keys()
    assert (said["monitor"], said["weights"]) == ("PixelClusterMonitor", "raw")
    settings = said["settings"]
    assert settings["kernel"] == {"kernel": "GaussianKernel", "gamma": None}
    assert said["range"] == [-1, pytest.approx(float(planted_images(2000, 1).max()), abs=0.03)]
    assert said["baseline"] == {name: list(band) for name, band in monitor.baseline.items()}

    partition = PixelPartition.load(folder / "genmonitor" / said["partition"])
    assert partition == monitor.partition
    n, size, seed = (said[name] for name in ("n_samples", "sample_batch_size", "seed"))
    block = settings["block_size"]
    assert (settings["n_samples"], settings["n_cluster_images"], settings["seed"]) == (n, 1000, seed)
    sources = ImageSet.of_training(trainer.train_dataloader, trainer.val_dataloaders)
    split = split_reference(sources, 1000, n, block, seed)
    module.from_epoch = 0
    with torch.no_grad():
        samples = Sampler(n, batch_size=size, seed=seed).draw(sampled_model(trainer, module), range(n))
    values = cosine_mean_similarity(
        samples,
        split.comparison.read(),
        kernel=GaussianKernel(said["gamma"]),
        partition=partition,
        block_size=block,
    )
    values["dependent_regions"] = values.pop("violations")
    assert {k: float(v) for k, v in values.items()} == pytest.approx(
        {k: v for k, v in said["values"].items() if k in values},
        rel=1e-9,
        abs=1e-7,  # shares of distances that are near 0: distances are float32, summed in other pieces
    )
