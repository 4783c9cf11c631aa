# SPDX-License-Identifier: Apache-2.0
import io
import json

import numpy as np
import pytest
from _helpers.logged import read_wandb, read_wandb_pages, read_wandb_summary, read_wandb_tables, wandb_records
from _helpers.loggers import CHARTS, AnyLogger, WandbRun, both_namespaces, cluster_figures
from _helpers.modules import digits, fit, loader
from PIL import Image

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.results import Alert
from genmonitor.findings.tables import Table
from genmonitor.functional.diagnosis.readings import READINGS
from genmonitor.loggers.wandb import STEP, WandbBackend

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
def test_all_of_an_evaluation_is_one_row_over_the_trainers_step(namespace, folder):
    logger = namespace.WandbLogger(save_dir=str(folder), offline=True)
    backend = WandbBackend(logger)
    backend.log_layout("cms", CHARTS)
    for step in (30, 20):  # the trainer's may go back, wandb's own only ever grows
        backend.log_scalars({"cms/image": 0.5, "epoch": 3}, step)
        backend.log_figures(cluster_figures(), step, epoch=3)
        backend.log_table("cms/prompts", Table(["prompt"], [["a cat"]]), step)
        backend.finish_evaluation(step)
        backend.finish_evaluation(step)  # nothing is no row
        logger.log_metrics({"loss": 1.0}, step=step + 1)  # what is logged next is another row
    finish(logger)

    logged = read_wandb(folder)
    assert [values["trainer/global_step"] for values in logged] == [30, 31, 20, 21]
    assert [values["_step"] for values in logged] == [0, 1, 2, 3]
    assert (logged[0]["cms/image"], logged[0]["epoch"], logged[0]["cms/cluster_map/caption"]) == (0.5, 3, "epoch 3")
    assert logged[0]["cms/prompts/_type"] == "table-file"
    pictures = list(folder.glob("wandb/offline-run-*/files/media/images/cms/cluster_map_*.png"))
    assert [picture.read_bytes()[1:4] for picture in pictures] == [b"PNG"] * 2


def test_monitors_of_a_run_share_its_row_and_steps_do_not():
    run = WandbRun()
    first, second = WandbBackend(AnyLogger(run)), WandbBackend(AnyLogger(run))
    first.log_scalars({"cms/image": 0.5}, 3)
    second.finish_evaluation(3)
    first.log_scalars({"cms/image": 0.7}, 5)
    second.log_scalars({"diversity/vendi": 4.0}, 4)
    first.finish_evaluation(4)
    assert run.rows == [
        {"cms/image": 0.5, "trainer/global_step": 3},
        {"cms/image": 0.7, "trainer/global_step": 5},
        {"diversity/vendi": 4.0, "trainer/global_step": 4},
    ]


def test_page_is_one_panel_that_holds_it_as_it_is(folder):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True)
    backend = WandbBackend(logger)
    pages = [f"<!doctype html><head></head><a href='#cms'>{number}</a>" for number in range(16)]
    for step, text in enumerate(pages):
        (folder / "report.html").write_text(text)
        backend.log_page(folder / "report.html", step)
        backend.finish_evaluation(step)
    finish(logger)
    assert [row["genmonitor/report/_type"] for row in read_wandb(folder)] == ["html-file"] * 2
    assert read_wandb_pages(folder, "genmonitor/report") == [pages[0], pages[15]]


def test_a_hundred_evaluations_have_few_pages_and_the_last(folder):
    run = WandbRun()
    backend, page = WandbBackend(AnyLogger(run)), folder / "report.html"
    for number in range(1, 101):
        page.write_text(str(number))
        backend.log_page(page, number)
        backend.finish_evaluation(number)
    for _ in range(2):
        backend.log_page(page, 100, last=True)
        backend.finish_evaluation(100)
    sent = [row["trainer/global_step"] for row in run.rows if "genmonitor/report" in row]
    assert sent == [1, 16, 100]


def test_settings_are_in_the_config(folder):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True)
    backend = WandbBackend(logger)
    for n_samples in (100, 200):  # a second fit
        backend.log_settings("cms", {"n_samples": n_samples, "kernel": {"gamma": None}})
    finish(logger)
    changes = [change for config in wandb_records(folder, "config") for change in config.update]
    written = {change.key or change.nested_key[0]: json.loads(change.value_json) for change in changes}
    assert (written["cms/n_samples"], written["cms/kernel"]) == (200, {"gamma": None})


def test_table_holds_its_pictures(folder):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True, prefix="run")
    picture = np.full((4, 5, 3), 255, np.uint8)
    table = Table(["prompt", "samples", "share"], [["a cat", picture, 0.5000000001]])
    backend = WandbBackend(logger)
    backend.log_table("disagreement/prompts", table, step=9)
    backend.finish_evaluation(9)
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
    WandbBackend(logger).log_alert(Alert("x" * 80, "cluster_3 got worse"), step=5)
    finish(logger)
    (alert,) = wandb_records(folder, "alert")
    assert (alert.title, alert.text, alert.level) == ("x" * 63, "cluster_3 got worse", "WARN")


def test_findings_are_in_the_history_and_the_last_in_the_summary(folder):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True, prefix="run")
    found = {5: "cluster_1 differs", 10: "cluster_2 differs"}
    for step, text in found.items():
        WandbBackend(logger).log_finding("cms/finding", text, step)
        WandbBackend(logger).finish_evaluation(step)
    finish(logger)
    rows = read_wandb(folder)
    assert {row[STEP]: row["run-cms/finding"] for row in rows if "run-cms/finding" in row} == found
    assert read_wandb_summary(folder)["run-cms/finding"] == "cluster_2 differs"


def test_handles_runs_of_wandb_only(folder):
    run = wandb.init(dir=folder)
    assert WandbBackend.handles(AnyLogger(), run)
    run.finish()
    assert not WandbBackend.handles(AnyLogger(), None)
    assert not WandbBackend.handles(AnyLogger(), AnyLogger())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("aligned", [True, False])
def test_samples_of_a_diagnosis_are_a_table_of_their_readings(folder, aligned):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True)
    made = PixelClusterMonitor(3, n_samples=100, n_cluster_images=200, aligned=aligned)
    fit(folder, made, val=loader(digits(300, 400)), logger=logger, max_epochs=1)
    finish(logger)
    ((columns, rows),) = read_wandb_tables(folder)
    assert any(x.needs_place for x in READINGS if x.name in columns) == aligned
    assert (columns[:3], len(rows)) == (["sample", "picture", "darkest pixels"], 64)
    assert [row[0] for row in rows] == list(range(64))
    assert rows[0][1].shape[:2] == (8, 8)
    assert all(isinstance(cell, float) for row in rows for cell in row[2:])
    (row,) = [values for values in read_wandb(folder) if "cms/samples_table/_type" in values]
    assert row[STEP] == made.history[-1]["step"]


def test_a_photograph_is_a_jpeg_and_a_drawing_is_not(folder):
    """A hundred evaluations send ten megabytes at most, half of them figures."""
    import lightning.pytorch.loggers

    noise = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(noise, "PNG")
    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True)
    WandbBackend(logger).log_figures({"photo": noise.getvalue(), **cluster_figures()}, 1, epoch=1)
    finish(logger)
    logged = {path.name.partition("_")[0]: path for path in folder.glob("wandb/*/files/media/images/**/*.*")}
    assert {name: path.suffix for name, path in logged.items()} == {"photo": ".jpg", "cluster": ".png"}
    assert Image.open(logged["cluster"]).getcolors(256)


def test_a_table_of_64_pictures_is_small(folder):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.WandbLogger(save_dir=str(folder), offline=True)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 64, 3), np.uint8)
    WandbBackend(logger).log_table("cms/samples_table", Table(["picture"], [[x] for x in noise]), step=1)
    WandbBackend(logger).finish_evaluation(1)
    finish(logger)
    (artifact,) = wandb_records(folder, "artifact")
    sizes = [entry.size for entry in artifact.manifest.contents if not entry.path.endswith(".json")]
    assert len(sizes) == 64
    assert sum(sizes) < 400_000  # of noise, which nothing compresses; as PNG 800 kB
