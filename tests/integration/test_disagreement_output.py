# SPDX-License-Identifier: Apache-2.0
"""Where DisagreementMonitor shows what it found: TensorBoard, W&B, the terminal and a folder."""

import re
from html import unescape

import numpy as np
import pytest
import torch
from _helpers.logged import read_tensorboard, read_wandb, read_wandb_tables, shown_by_tensorboard
from _helpers.modules import LIGHTNING_SAYS, digits, fit
from _helpers.prompted import Changed
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger

from genmonitor import GaussianKernel
from genmonitor.callbacks import DisagreementMonitor
from genmonitor.evaluation.tracker import quoted
from genmonitor.report.run import MonitorRun

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*there is no validation data")]
PROMPTS = ["<script>alert(1)</script>", "[x](javascript:alert(1))", "=2+3 | \x1b[31m../../cat"]
CHANGED = 1
FIGURES = {"disagreement/modes"}


def watch(folder, logger, epochs=2):
    """Let the images of the second prompt change in the second epoch."""

    def numbers(texts):
        return torch.tensor([PROMPTS.index(text) for text in texts])

    monitor = DisagreementMonitor(
        PROMPTS,
        n_samples=30,
        reference="previous",
        sample_fn=lambda module, texts: module.sample_prompts(numbers(texts)),
        prompt_encoder=lambda texts: torch.eye(3)[numbers(texts)],
        prompt_kernel=GaussianKernel(8.0),
        real_images=digits(0, 100),
        on_error="raise",
        log="all",
    )
    fit(folder, monitor, module=Changed(CHANGED, 1), max_epochs=epochs, logger=logger, log_every_n_steps=1)
    return monitor


def test_tensorboard_gets_the_prompts_as_harmless_text(tmp_path, capsys):
    logger = TensorBoardLogger(tmp_path, name="run")
    monitor = watch(tmp_path, logger)
    events = read_tensorboard(tmp_path / "run" / "version_0")
    scalars = {tag for tag in events.Tags()["scalars"] if tag.startswith("disagreement/")}
    others = ("epoch", "step")
    assert scalars == {f"disagreement/{name}" for name in monitor.history[0] if name not in others}
    logged = [event.value for event in events.Scalars("disagreement/top_1")]
    assert logged == pytest.approx([record["top_1"] for record in monitor.history], rel=1e-6)
    assert set(events.Tags()["images"]) == FIGURES
    texts = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("disagreement/finding/text_summary")]
    assert len(texts) == 2
    assert not re.search(r"<|\]\(|javascript:", texts[1])
    html = shown_by_tensorboard(texts[1])
    assert not re.search(r"<(script|a|img)", html)
    assert PROMPTS[CHANGED] in unescape(html)
    layout = events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0].decode(errors="ignore")
    assert "Disagreement with the previous evaluation" in layout
    said = capsys.readouterr().out
    assert f"{quoted(PROMPTS[CHANGED])} (100 %)" in said
    assert "\x1b" not in said


@pytest.mark.slow
def test_wandb_gets_a_table_with_pictures_of_both_sides(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in {"SILENT": "true", "DATA_DIR": str(tmp_path), "CACHE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    logger = WandbLogger(save_dir=str(tmp_path), offline=True)
    monitor = watch(tmp_path, logger)
    logger.experiment.finish()
    wandb.teardown()
    logged = read_wandb(tmp_path)
    steps = [values["trainer/global_step"] for values in logged if "disagreement/prompts_table/sha256" in values]
    assert steps == [record["step"] for record in monitor.history]
    _, (columns, rows) = read_wandb_tables(tmp_path)
    assert columns == ["prompt", "part", "p", "model", "the previous evaluation"]
    ((prompt, part, p, model, before),) = rows  # the only prompt that differs
    assert (prompt, part, p) == (PROMPTS[CHANGED], pytest.approx(1, abs=0.01), "p = 0.001")
    assert model.shape == before.shape == (96, 3 * 96 + 2 * 6, 3)
    # the samples of this prompt are the negatives of what they were; between them it is white
    assert np.abs(model + before - 1)[:, :96].max() <= 0.01
    assert (model + before)[:, 96:102].min() >= 1.9  # but for what JPEG loses


def test_folder_holds_pictures_and_prompts(tmp_path):
    monitor = watch(tmp_path, CSVLogger(tmp_path, name="run"))
    folder = tmp_path / "run" / "version_0" / "genmonitor"
    steps = [record["step"] for record in monitor.history]
    each = [f"epoch_{epoch:04d}_step_{step}" for epoch, step in enumerate(steps)]
    assert {path.name for path in folder.iterdir()} == {
        *(f"disagreement_modes_{when}.{kind}" for when in each for kind in ("png", "svg")),
        "disagreement_run.json",
        "history.csv",
        "report.html",
    }
    run = MonitorRun.read(folder / "disagreement_run.json")
    (table,), manifest = run.tables.values(), run.manifest
    assert table.columns == ["prompt", "part", "p"]
    assert table.rows[0] == [PROMPTS[CHANGED], pytest.approx(1, abs=0.01), "p = 0.001"]
    assert run.records == monitor.history
    assert (manifest["reference"], manifest["reference_samples"]) == ("previous", 30)
    assert manifest["prompts"] == PROMPTS
    assert manifest["kernel"] == repr(monitor.kernel)
    assert not {path.name for path in tmp_path.rglob("*cat*")}
