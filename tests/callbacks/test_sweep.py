# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run without a monitor give the values of one that had it, to the last bit."""

import re
import shutil
import signal
import sys
from queue import SimpleQueue

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, TwoPlayers, digits, ema_averaging, loader, trainer
from _helpers.prompted import Prompted
from _helpers.replayed import Digits, quiet
from _helpers.runs import manifests
from _helpers.slow import slow_but
from _helpers.swept import both, measured_in, new, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from genmonitor import PixelPartition
from genmonitor.callbacks import sweep
from genmonitor.callbacks.replay import replay

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*treat the baseline as approximate")]


def setup(kind=Linear, monitors=None, **settings):
    """Return a function that makes the run again, with a Trainer of these settings."""
    return lambda: (trainer(".", **settings), new(kind), Digits(), monitors or [quiet()])


RUNS = {
    "validation": ({}, {}, {}, Linear),
    "no validation": ({}, {}, {"limit_val_batches": 0}, Linear),
    "two optimizers": ({}, {}, {}, TwoPlayers),
    "several validations per epoch": ({}, {}, {"val_check_interval": 1 / 3}, Linear),
    "by steps": ({"every_n_train_steps": 1}, {"every_n_train_steps": 1}, {}, Linear),
    "half precision": ({}, {}, {"precision": "bf16-mixed"}, Linear),
    "part of the data": ({}, {}, {"limit_train_batches": 2}, Linear),
    "prompts": ({"prompts": [4, 1, 1]}, {}, {}, Prompted),
}


@pytest.mark.filterwarnings("ignore:.*there is no validation data", "ignore:.*only 2 evaluations")
@pytest.mark.parametrize("name", slow_but(RUNS, "validation"))
def test_sweep_gives_what_a_monitor_logged(tmp_path, name):
    monitor, keep, settings, kind = RUNS[name]
    logged = both(tmp_path, kind, monitor=monitor, keep=keep, **settings)
    swept = sweep(tmp_path / "without", setup(kind, [quiet(**monitor)], **settings), tell=quietly)
    assert measured_in(swept) == logged
    assert len(logged) > 1


def test_sweep_knows_the_last_evaluation_of_a_gan(tmp_path):
    """It has a diagnosis, as in the training; of two optimizers each counts as a step."""

    def watched():
        monitor, said = quiet(), []
        compute = monitor.evaluator.compute
        monitor.evaluator.compute = lambda comm: said.append(monitor.evaluator.is_last) or compute(comm)
        return monitor, said

    settings = {"max_epochs": -1, "max_steps": 18}
    (monitor, logged), (other, swept) = watched(), watched()
    train(tmp_path / "run", new(TwoPlayers), Digits(), monitor, **settings)
    sweep(tmp_path / "run", setup(TwoPlayers, [other], **settings), out=tmp_path / "out", tell=quietly)
    assert swept == logged == [False, False, True]


def ema():
    return ema_averaging(decay=0.9)


@pytest.mark.parametrize("weights", slow_but(["auto", "raw", "averaged"], "averaged"))
def test_sweep_tells_averaged_and_raw_weights_apart(tmp_path, weights):
    logged = both(tmp_path, Linear, ema, monitor={"weights": weights})
    swept = sweep(tmp_path / "without", setup(monitors=[quiet(weights=weights)]), tell=quietly)
    assert measured_in(swept) == logged
    manifest = manifests(tmp_path / "without" / "genmonitor")[-1]
    assert manifest["weights"] == ("raw" if weights == "raw" else "averaged")
    (checkpoint,) = (tmp_path / "without" / "checkpoints").glob(f"*step={manifest['global_step']}.ckpt")
    again = setup(monitors=[quiet(weights=weights)])
    assert replay(tmp_path / "without" / "genmonitor" / "cms_run.json", checkpoint, again) == replayable(logged[-1])


def quietly(line):
    """Take a line and say nothing."""


def replayable(record):
    names = record.keys() - {"epoch", "step", "images_seen"}
    return {k: v for k, v in record.items() if k in names and not k.startswith("baseline_") and "vs_best" not in k}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of three epochs with a monitor, one without, and what the monitor logged."""
    folder = tmp_path_factory.mktemp("runs")
    return folder, both(folder, max_epochs=3)


def test_sweep_leaves_what_a_monitor_leaves(runs, tmp_path):
    folder, _ = runs
    swept = sweep(folder / "without", setup(logger=True), out=tmp_path / "out", tell=quietly)
    assert swept.folder == tmp_path / "out"
    assert swept.evaluated == ["epoch=0-step=3.ckpt", "epoch=1-step=6.ckpt", "epoch=2-step=9.ckpt"]
    assert (swept.before, swept.skipped) == (0, {})

    def files(run):
        return {path.name: path for path in (run / "genmonitor").iterdir()}

    with_monitor, without = files(folder / "with"), files(tmp_path / "out")
    assert without.keys() == with_monitor.keys() | {"sweep.pt"}
    assert without["cms_partition.npz"].read_bytes() == with_monitor["cms_partition.npz"].read_bytes()
    for one, other in zip(*(manifests(run / "genmonitor") for run in (folder / "with", tmp_path / "out")), strict=True):
        for manifest in (one, other):
            del manifest["folder"]
            manifest["values"] = {k: v for k, v in manifest["values"].items() if not k.endswith(("_seen", "_seconds"))}
        assert one == other
    events = EventAccumulator(str(tmp_path / "out")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("cms/image")] == [
        (record["step"], pytest.approx(record["image"], abs=1e-6)) for record in swept.histories["cms"]
    ]


def test_sweep_goes_on_where_one_was_stopped(runs, tmp_path):
    folder, logged = runs
    files = sorted((folder / "without" / "checkpoints").iterdir())
    first = sweep(files[:1], setup(), out=tmp_path, tell=quietly)
    assert measured_in(first) == logged[:1]
    second = sweep(folder / "without", setup(), out=tmp_path, tell=quietly)
    assert measured_in(second) == logged
    assert (second.before, second.evaluated) == (1, [path.name for path in files[1:]])
    third = sweep(folder / "without", setup(), out=tmp_path, tell=quietly)
    assert (third.before, third.evaluated) == (3, [])
    assert measured_in(third) == logged


def test_sweep_killed_between_files_and_state_goes_on(runs, tmp_path):
    folder, logged = runs
    files = sorted((folder / "without" / "checkpoints").iterdir())
    sweep(files[:1], setup(), out=tmp_path, tell=quietly)
    state = (tmp_path / "genmonitor" / "sweep.pt").read_bytes()
    sweep(files[:2], setup(), out=tmp_path, tell=quietly)
    (tmp_path / "genmonitor" / "sweep.pt").write_bytes(state)  # as if the power went out before it was written
    assert measured_in(sweep(files, setup(), out=tmp_path, tell=quietly)) == logged
    assert len(manifests(tmp_path / "genmonitor")) == 3


def test_sweep_skips_a_bad_checkpoint_and_tells_of_it(runs, tmp_path):
    folder, _ = runs
    files = sorted((folder / "without" / "checkpoints").iterdir())
    saved = torch.load(files[1], weights_only=True)
    (tmp_path / "half.ckpt").write_bytes(files[0].read_bytes()[:2000])
    torch.save(saved | {"state_dict": {"net.weight": torch.zeros(3)}}, tmp_path / "other.ckpt")
    lines = []
    bad = [tmp_path / "half.ckpt", tmp_path / "other.ckpt"]
    swept = sweep([files[0], *bad, files[2]], setup(), out=tmp_path, tell=lines.append)
    assert swept.evaluated == [files[0].name, files[2].name]
    assert "is not a checkpoint of tensors and plain Python objects" in swept.skipped["half.ckpt"]
    assert "RuntimeError: Error(s) in loading state_dict" in swept.skipped["other.ckpt"]
    assert lines[0].startswith("half.ckpt is skipped: ")
    assert lines[1] == "3 checkpoints to evaluate; first reading the real images and fitting the monitors."
    assert re.match(r"1 of 3: epoch=0-step=3.ckpt, step 2\nepoch  0 .* × real", lines[2])
    assert lines[3].startswith("other.ckpt is skipped: ")
    assert lines[-1].startswith("3 of 3: epoch=2-step=9.ckpt, step 8\nepoch  2 ")
    late = sweep(files[1], setup(), out=tmp_path, tell=quietly)
    assert "from before the last one" in late.skipped[files[1].name]
    assert len(measured_in(late)) == 2


@pytest.mark.filterwarnings("ignore:.*NaN or infinite values")
def test_sweep_alerts_of_samples_that_are_no_numbers_and_goes_on(runs, tmp_path):
    folder, _ = runs
    files = sorted((folder / "without" / "checkpoints").iterdir())
    saved = torch.load(files[1], weights_only=True)
    broken = {name: torch.full_like(value, torch.nan) for name, value in saved["state_dict"].items()}
    torch.save(saved | {"state_dict": broken}, tmp_path / "broken.ckpt")
    alerts = []
    monitor = quiet(on_alert=alerts.append, on_error="warn")
    with pytest.warns(UserWarning, match="this evaluation failed and is skipped"):
        swept = sweep(
            [files[0], tmp_path / "broken.ckpt", files[2]], setup(monitors=[monitor]), out=tmp_path, tell=quietly
        )
    assert len(swept.evaluated) == 2
    assert "see the warning" in swept.skipped["broken.ckpt"]
    assert "NaN or infinite values at epoch 1" in alerts[0]


@pytest.mark.filterwarnings("ignore:.*this evaluation failed", "ignore:.*it is switched off")
def test_sweep_ends_where_nothing_can_be_evaluated(runs, tmp_path):
    def broken(module, n):
        if calls.qsize() == 2:  # those of the fit
            raise KeyError("images")
        calls.put(n)
        return module.sample(n)

    folder, _ = runs
    calls = SimpleQueue()  # a list would be put back
    monitor = quiet(sample_fn=broken, on_error="warn")
    with pytest.raises(ValueError, match=r"3 evaluations of cms in a row failed, the last of epoch=2-step=9.ckpt"):
        sweep(folder / "without", setup(monitors=[monitor]), out=tmp_path, tell=quietly)


def test_sweep_of_two_monitors_draws_once(runs, tmp_path):
    folder, logged = runs
    queue = SimpleQueue()  # a list would be put back

    def counted(module, n):
        queue.put(n)
        return module.sample(n)

    monitors = [quiet(sample_fn=counted), quiet(sample_fn=counted, prefix="other", n_samples=40)]
    swept = sweep(folder / "without", setup(monitors=monitors), out=tmp_path, tell=quietly)
    assert measured_in(swept) == logged
    assert len(measured_in(swept, "other")) == 3
    asked = [queue.get() for _ in range(queue.qsize())]
    assert asked.count(60) == 3
    assert 40 not in asked


def test_sweep_refuses_the_folder_of_a_training_with_the_monitor(runs):
    folder, _ = runs
    with pytest.raises(ValueError, match=r"wrote under cms. Give another folder with --out"):
        sweep(folder / "with", setup(), tell=quietly)


def test_sweep_of_a_run_with_the_monitor_takes_its_regions(runs, tmp_path):
    folder, _ = runs
    shutil.copytree(folder / "with", tmp_path / "run")
    path = tmp_path / "run" / "genmonitor" / "cms_partition.npz"
    turned = PixelPartition(PixelPartition.load(path).labels.flip(1))  # not what would be found
    turned.save(path)
    again = quiet()
    sweep(tmp_path / "run", setup(monitors=[again]), out=tmp_path / "out", tell=quietly)
    assert again.partition == turned


def test_sweep_refuses_to_go_on_with_other_settings(runs, tmp_path):
    folder, _ = runs
    first = sorted((folder / "without" / "checkpoints").iterdir())[:1]
    sweep(first, setup(), out=tmp_path, tell=quietly)
    with pytest.raises(ValueError, match=r"used a different n_samples. Give another folder with --out"):
        sweep(folder / "without", setup(monitors=[quiet(n_samples=40)]), out=tmp_path, tell=quietly)
    with pytest.raises(ValueError, match=r"the same monitors as in the sweep so far, .*prefix=cms.*, but got others"):
        sweep(folder / "without", setup(monitors=[quiet(prefix="new")]), out=tmp_path, tell=quietly)
    state = torch.load(file := tmp_path / "genmonitor" / "sweep.pt", weights_only=True)
    del state["monitors"]["PixelClusterMonitor[prefix=cms]"]["sampler"]
    torch.save(state, file)
    with pytest.raises(ValueError, match=r"Expected the state of PixelClusterMonitor.prefix=cms. in .*sweep.pt"):
        sweep(folder / "without", setup(), out=tmp_path, tell=quietly)
    file.write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="Could not read the sweep's progress"):
        sweep(folder / "without", setup(), out=tmp_path, tell=quietly)


def test_sweep_without_a_monitor_takes_one(runs, tmp_path, monkeypatch):
    folder, logged = runs
    monkeypatch.setattr(sys.modules["genmonitor.callbacks.sweep"], "PixelClusterMonitor", quiet)
    swept = sweep(folder / "without", lambda: (new(), Digits()), out=tmp_path, tell=quietly)
    assert measured_in(swept) == logged


def test_sweep_takes_loaders(runs, tmp_path):
    folder, logged = runs
    data = [loader(digits(0, 300), 150, shuffle=True), loader(digits(300, 500))]
    swept = sweep(folder / "without", lambda: (new(), data, quiet()), out=tmp_path, tell=quietly)
    assert measured_in(swept) == logged


def test_sweep_says_what_it_cannot_do(runs, tmp_path):
    folder, _ = runs
    with pytest.raises(FileNotFoundError, match="there is no nowhere"):
        sweep("nowhere", setup())
    with pytest.raises(ValueError, match=r"Expected checkpoints \(\*.ckpt\) that can be evaluated, but .* has none"):
        sweep(tmp_path, setup())
    with pytest.raises(ValueError, match=r"Expected `device` to be cpu, mps, cuda .* but got 'gpu'"):
        sweep(folder / "without", setup(), device="gpu", out=tmp_path)


class Terminated(Linear):
    """Is sent SIGTERM, of which Lightning only takes note, while a checkpoint is evaluated."""

    def sample(self, n):
        signal.raise_signal(signal.SIGTERM)
        return super().sample(n)


def test_sigterm_ends_a_sweep_that_python_called(tmp_path):
    train(tmp_path / "run", new(), Digits())
    said = []
    with pytest.raises(SystemExit, match="143"):
        sweep(tmp_path / "run", setup(Terminated), tell=said.append)
    assert len(said) < 3  # of two checkpoints
