# SPDX-License-Identifier: Apache-2.0
"""What a monitor puts into a checkpoint, and that a run which was killed gives the curves of one which was not."""

import shutil
import warnings

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Light, Linear, digits, fit, loader, measured, plain
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from genmonitor import PixelPartition
from genmonitor.evaluation.regions.search import RegionFinder

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:Plain. there is no validation data"),
    pytest.mark.filterwarnings("ignore:Plain. .* got worse"),  # its samples fade
]


REAL = digits(300, 400)
REAL_LOADER = loader(REAL)


class Shrinking(Linear):
    """Learns without random numbers, which Lightning's checkpoints do not hold: its samples fade."""

    def __init__(self):
        super().__init__(lr=0.05)
        torch.manual_seed(0)
        self.net.reset_parameters()

    def training_step(self, batch, index):
        return self.net.weight.square().sum()


class Killed(Callback):
    """The power goes out in an epoch."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.current_epoch == self.epoch and batch_idx == 1:
            raise OSError("power")


def run(folder, monitor, *callbacks, validate=True, epochs=4, **settings):
    keep = ModelCheckpoint(folder, save_last=True, filename="{epoch}")
    val = loader(digits(300, 400)) if validate else None
    train = loader(digits(0, 300))
    fit(folder, monitor, *callbacks, keep, module=Shrinking(), train=train, val=val, max_epochs=epochs, **settings)
    return folder / "last.ckpt"


def run_and_kill(folder, monitor, validate=True):
    with pytest.raises(OSError, match="power"):
        run(folder, monitor, Killed(2), validate=validate)
    return folder / "last.ckpt"


def state_in(checkpoint):
    (state,) = (s for name, s in torch.load(checkpoint, weights_only=True)["callbacks"].items() if "Plain" in name)
    return state


def fixed(monitor):
    return monitor.partition, monitor.kernel, monitor.baseline, monitor.evaluator.fitted.regions.value_range


@pytest.mark.parametrize(
    ("settings", "validate"),
    [({}, True), ({}, False), ({"every_n_epochs": 3}, True), ({"every_n_train_steps": 2}, False)],
    ids=str,
)
def test_killed_run_gives_the_curves_of_one_undisturbed(tmp_path, settings, validate):
    undisturbed, killed, resumed = (plain(**settings) for _ in range(3))
    run(tmp_path / "whole", undisturbed, validate=validate)
    checkpoint = run_and_kill(tmp_path / "parts", killed, validate)
    assert 0 < len(state_in(checkpoint)["history"]) < len(undisturbed.history)
    run(tmp_path / "parts", resumed, validate=validate, ckpt_path=checkpoint)
    assert measured(resumed) == measured(undisturbed)
    assert len({record["image"] for record in measured(resumed)}) == len(resumed.history)
    assert fixed(resumed) == fixed(undisturbed)
    assert torch.equal(resumed.evaluator.fitted.real, undisturbed.evaluator.fitted.real)
    assert (
        resumed.evaluator.state_dict()["fit"]["tracker"]["in_a_row"]
        == undisturbed.evaluator.state_dict()["fit"]["tracker"]["in_a_row"]
    )


def test_nothing_is_found_again_on_resuming(tmp_path, monkeypatch):
    first = plain()
    checkpoint = run_and_kill(tmp_path, first)
    monkeypatch.setattr(RegionFinder, "find", None)
    resumed = plain()
    run(tmp_path, resumed, ckpt_path=checkpoint)
    assert fixed(resumed) == fixed(first)


def test_checkpoint_is_as_without_a_monitor(tmp_path):
    with_monitor = torch.load(run(tmp_path / "with", plain(), epochs=1), weights_only=True)
    without = torch.load(run(tmp_path / "without", Callback(), epochs=1), weights_only=True)
    assert with_monitor["state_dict"].keys() == without["state_dict"].keys()
    for name, value in without["state_dict"].items():
        assert torch.equal(with_monitor["state_dict"][name], value)
    assert str(with_monitor["optimizer_states"]) == str(without["optimizer_states"])
    assert with_monitor.keys() == without.keys()
    assert {name.split("{")[0] for name in with_monitor["callbacks"]} == {"Plain[prefix=cms]", "ModelCheckpoint"}


def leaves(value):
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
        return [leaf for part in value.values() for leaf in leaves(part)]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list) else [value]


def test_state_is_tensors_and_plain_python(tmp_path):
    state = state_in(run(tmp_path, plain(), epochs=1))
    assert {type(leaf) for leaf in leaves(state)} <= {torch.Tensor, str, int, float, bool, type(None)}
    assert {"history", "images_seen", "sampler", "evaluator"} <= state.keys()
    assert state["evaluator"].keys() == {"settings", "fit", "processors"}


OTHER = [
    ("seed", 4),
    ("partition", PixelPartition.grid((8, 8), 2, 2)),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run of one epoch."""
    folder = tmp_path_factory.mktemp("trained")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(folder, plain(), epochs=1)
    return folder


def of_this_epoch(monitor):
    """Return the last record without what compares it with those before."""
    return {name: value for name, value in measured(monitor)[-1].items() if "vs_best" not in name}


@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # of the checkpoints
@pytest.mark.parametrize(("name", "value"), OTHER, ids=[f"{name}-{type(value).__name__}" for name, value in OTHER])
def test_other_settings_are_said_and_all_is_made_anew(tmp_path, trained, name, value):
    for folder in ("resumed", "fresh"):  # regions found are numbered like those of the folder
        shutil.copytree(trained, tmp_path / folder)
    checkpoint = tmp_path / "resumed" / "last.ckpt"
    resumed, fresh = plain(**{name: value}), plain(**{name: value})
    with pytest.warns(UserWarning, match=f"Plain: resumed with .*{name}.* changed.*cannot be compared"):
        run(tmp_path / "resumed", resumed, epochs=2, ckpt_path=checkpoint)
    run(tmp_path / "fresh", fresh, epochs=2)
    assert fixed(resumed) == fixed(fresh)
    assert [record["epoch"] for record in resumed.history] == [1]  # the old curve has other clusters
    assert resumed.is_best  # the first of its curve
    assert of_this_epoch(resumed) == of_this_epoch(fresh)
    assert "epoch 1" in resumed.summary()


def test_alert_half_way_survives_a_resume(tmp_path):
    """A region that was below its baseline at the last evaluation before the end, and is at the first after it."""
    said = []

    def sample(module, n):
        images = REAL[torch.randint(len(REAL), (n,))]
        return images * (0.2 if module.current_epoch >= 1 else 1)

    def make():
        return plain(sample_fn=sample, on_alert=said.append)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Plain: cluster_|Plain: constant")
        checkpoint = run(tmp_path, make(), epochs=2)
        assert said == []
        run(tmp_path, make(), epochs=3, ckpt_path=checkpoint)
    assert any("cluster_1 (" in text and " got worse" in text and "at epoch 2" in text for text in said)


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_evaluations_that_going_on_from_an_earlier_checkpoint_replaces_are_said(tmp_path, ahead):
    keep = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    fit(tmp_path, Light(), keep, module=Shrinking(), val=REAL_LOADER, max_epochs=4)
    monitor, path = Light(on_error="warn"), tmp_path / f"epoch={3 - ahead}.ckpt"
    said = []
    monitor.publisher.notes._inform = said.append
    fit(tmp_path, monitor, module=Shrinking(), val=REAL_LOADER, max_epochs=5, ckpt_path=path)
    found = [text for text in said if "after the checkpoint, evaluations up to epoch 3. Copy its folder" in text]
    assert len(found) == bool(ahead)
