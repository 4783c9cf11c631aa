# SPDX-License-Identifier: Apache-2.0
"""Whoever runs the loop: one process, torch.distributed, Lightning Fabric, accelerate; and whatever it logs to."""

from functools import partial

import lightning.pytorch.loggers
import pytest
from _helpers.logged import read_tensorboard, read_wandb
from _helpers.loops import EVALUATORS, Generator, N, labelled, small, train
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader, measured
from _helpers.processes import in_two_processes
from _helpers.two_processes_loop import by_fabric, by_itself, by_torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter

from genmonitor import LoopMonitor
from genmonitor.callbacks import GenerativeMonitor
from genmonitor.evaluation import Sampler

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:.*(only \\d+ images of|only \\d+ real images|no single place)"),
    pytest.mark.filterwarnings("ignore:.*prompts have fewer"),
]


def evaluating(monitor):
    return lambda module, step, epoch: monitor.evaluate(module, step=step, epoch=epoch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "kind"), [(by_torch, "regions"), (by_fabric, "diversity"), (by_torch, "disagreement")]
)
def test_two_processes_find_what_one_does_and_none_waits(tmp_path, door, kind):
    expected = by_itself(tmp_path / "one", kind)
    found = in_two_processes(partial(door, str(tmp_path / "two"), kind), tmp_path)
    for rank in found:
        assert [record["epoch"] for record in rank["history"]] == [0, 2]
        for record, reference in zip(rank["history"], expected["history"][::2], strict=True):
            assert record == pytest.approx(reference, rel=1e-6, abs=1e-6)
    assert sum(name.endswith("report.html") for name in found[0]["files"]) == 1


# Fabric


def test_fabric_calls_it_as_a_callback_and_saves_its_state(tmp_path):
    logger = TensorBoardLogger(tmp_path / "logs", name="fabric")
    monitor = small(tmp_path, loggers=[logger])
    fabric = Fabric(accelerator="cpu", devices=1, callbacks=[monitor], loggers=logger)
    module = fabric.setup(Generator())
    for epoch in range(2):
        fabric.call("evaluate", module, step=epoch, epoch=epoch)
    fabric.save(tmp_path / "saved.ckpt", {"module": module, "monitor": monitor})
    logger.experiment.flush()
    assert [event.step for event in read_tensorboard(logger.log_dir).Scalars("cms/image")] == [0, 1]

    resumed = small(tmp_path)
    fabric.load(tmp_path / "saved.ckpt", {"module": module, "monitor": resumed})
    assert measured(resumed) == measured(monitor)
    resumed.evaluate(module, step=2, epoch=2)
    assert resumed.history[-1]["image"] == monitor.history[-1]["image"]


# accelerate


def test_accelerate_tracks_and_resumes_it(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, log_with="tensorboard", project_dir=tmp_path)
    accelerator.init_trackers("run")
    module, data = accelerator.prepare(Generator(), loader(digits(0, 300)))
    monitor = small(tmp_path, real_images=data, loggers=accelerator.trackers)
    accelerator.register_for_checkpointing(monitor)
    for epoch in range(2):
        monitor.evaluate(accelerator.unwrap_model(module).sample, step=epoch, epoch=epoch)
    accelerator.save_state(tmp_path / "saved")
    accelerator.end_training()
    assert [event.step for event in read_tensorboard(tmp_path / "run").Scalars("cms/image")] == [0, 1]
    expected = measured(monitor)
    monitor.reset_history()
    accelerator.load_state(tmp_path / "saved")
    assert measured(monitor) == expected


# what it logs to


def everything(folder, loggers):
    """Train with a monitor that draws its figures."""
    evaluator = EVALUATORS["regions"]()
    data = {"real_images": labelled(0, 300), "validation_images": labelled(300, 400)}
    monitor = LoopMonitor(evaluator, folder=folder, loggers=loggers, on_error="raise", **data)
    train(Generator(), after_epoch=evaluating(monitor))
    return monitor


def test_a_summary_writer_gets_what_lightnings_logger_gets(tmp_path):
    writer = SummaryWriter(tmp_path / "loop")
    monitor = everything(tmp_path / "loop", writer)
    writer.close()
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path / "trainer")
    of_trainer = GenerativeMonitor(EVALUATORS["regions"](), Sampler(N), on_error="raise")
    fit(tmp_path / "trainer", of_trainer, logger=logger, val=loader(digits(300, 400)))
    found, expected = (read_tensorboard(folder) for folder in (tmp_path / "loop", logger.log_dir))
    for kind in ("images", "tensors"):
        assert {x for x in found.Tags()[kind] if "cms" in x} == {x for x in expected.Tags()[kind] if "cms" in x}
    ours = {x for x in expected.Tags()["scalars"] if x.startswith("cms/")} - {"cms/images_seen"}
    assert {x for x in found.Tags()["scalars"] if x.startswith("cms/")} == ours
    logged = [(event.step, event.value) for event in found.Scalars("cms/image")]
    assert logged == [(record["step"], pytest.approx(record["image"])) for record in monitor.history]


def test_a_run_of_wandb_gets_scalars_and_figures(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(console="off"))
    monitor = everything(tmp_path / "run", run)
    run.finish()
    wandb.teardown()  # the files are complete only then
    rows = [row for row in read_wandb(tmp_path) if "cms/image" in row]
    expected = [(record["step"], record["image"]) for record in monitor.history]
    assert [(row["trainer/global_step"], row["cms/image"]) for row in rows] == expected
    assert "cms/samples/path" in set().union(*read_wandb(tmp_path))
