# SPDX-License-Identifier: Apache-2.0
"""Whoever ranks epochs by a monitor's values ranks an epoch without an evaluation last."""

import math
from contextlib import nullcontext

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, epochs, fit, loader, plain
from lightning.pytorch.callbacks import Callback, EarlyStopping, LambdaCallback, ModelCheckpoint
from torch.optim.lr_scheduler import ReduceLROnPlateau

from genmonitor.callbacks import GenerativeMonitor
from genmonitor.callbacks.schedule import Schedule
from genmonitor.cli import main
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.results import Evaluation, FitReport
from genmonitor.images.sampler import Sampler

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:GenerativeMonitor. ")]
VALUES = [3.0, 2.0, 4.0, 2.5, 5.0, 6.0]


class Scripted(Evaluator):
    """A value for each epoch, which the samples hold."""

    def __init__(self, sign):
        super().__init__(4, "own")
        self.sign = sign

    def fit(self, real, probe, comm, progress=None):
        return FitReport()

    def update(self, samples):
        self.mean = float(samples.images.mean())

    def compute(self, comm):
        return Evaluation({"value": self.sign * self.mean})


class Generator(Linear):
    """Draws images of the value of the epoch; in some epochs something goes wrong."""

    def __init__(self, wrong, consumer=None, mode="min"):
        super().__init__()
        self.wrong, self.consumer, self.mode = wrong, consumer, mode

    def sample(self, n):
        value = VALUES[self.current_epoch]
        if self.trainer.global_step and self.wrong.get(self.current_epoch) == "fails":
            raise RuntimeError("no samples today")
        broken = self.trainer.global_step and self.wrong.get(self.current_epoch) == "nan"
        return torch.full((n, 1, 8, 8), math.nan if broken else value)

    def training_step(self, batch, index):
        return self.net.weight.square().sum()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 1.0)
        if self.consumer != "scheduler":
            return optimizer
        plateau = ReduceLROnPlateau(optimizer, mode=self.mode, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "own/value"}}


def monitor_of(mode="min", **schedule):
    sign = 1 if mode == "min" else -1
    return GenerativeMonitor(Scripted(sign), Sampler(4), Schedule(**schedule), verbose=False)


class KeepsAll(ModelCheckpoint):
    """One of two in a Trainer: Lightning tells those of one class apart by their monitor and mode."""


class Reader(Callback):
    """Notes what stands under the key when an epoch is over."""

    def __init__(self):
        self.values = {}

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch:
            self.values[trainer.current_epoch - 1] = float(trainer.callback_metrics["own/value"])


WITHOUT = {
    "NaN": ({1: "nan", 3: "nan"}, {}, {}),
    "failed": ({1: "fails", 3: "fails"}, {}, {}),
    "rarer": ({}, {"every_n_epochs": 2}, {}),
    "by steps": ({}, {"every_n_train_steps": 6}, {}),
    "rarer validation": ({}, {}, {"check_val_every_n_epoch": 2}),
    "switched off": ({1: "fails", 2: "fails", 3: "fails"}, {}, {}),
}
VALIDATED = pytest.mark.parametrize("validated", [False, True], ids=["not validated", "validated"])
occasions = pytest.mark.parametrize("occasion", WITHOUT)
modes = pytest.mark.parametrize("mode", ["min", "max"])


def trained(folder, occasion, validated, *callbacks, mode="min", consumer=None):
    """Train five epochs; return the monitor, the module and the epochs that were evaluated."""
    wrong, schedule, settings = WITHOUT[occasion]
    if "check_val_every_n_epoch" in settings and not validated:
        pytest.skip("nothing is validated")
    monitor, module = monitor_of(mode, **schedule), Generator(wrong, consumer, mode)
    val = loader(digits(300, 400)) if validated else None
    fit(folder, monitor, *callbacks, module=module, val=val, max_epochs=5, **settings)
    # an evaluation between steps says how far its epoch was
    return monitor, module, [math.ceil(epoch) - 1 if "step" in occasion else int(epoch) for epoch in epochs(monitor)]


@VALIDATED
@occasions
@modes
def test_model_checkpoint_ranks_epochs_without_an_evaluation_last(tmp_path, occasion, validated, mode):
    settings = {"monitor": "own/value", "mode": mode, "filename": "{epoch}", "save_on_train_epoch_end": True}
    two = ModelCheckpoint(tmp_path / "two", save_top_k=2, save_last=True, **settings)
    every = KeepsAll(tmp_path / "every", save_top_k=-1, **settings)
    reader = Reader()
    _, _, evaluated = trained(tmp_path, occasion, validated, two, every, reader, mode=mode)
    assert set(range(5)) > set(evaluated)
    if occasion == "by steps":  # the first one comes after the first batch, with other weights than the epoch's last
        evaluated = evaluated[1:]
    best = sorted(evaluated, key=lambda epoch: VALUES[epoch])
    assert scores(every) == {epoch: VALUES[epoch] if epoch in evaluated else math.inf for epoch in range(5)}
    assert {epoch: x for epoch, x in scores(two).items() if x < math.inf} == {x: VALUES[x] for x in best[:2]}
    assert two.best_model_path.endswith(f"epoch={best[0]}.ckpt")
    assert (tmp_path / "two" / "last.ckpt").is_file()
    # and whoever else reads the key finds no value of another epoch
    seen = {epoch: abs(value) for epoch, value in reader.values.items() if not math.isnan(value)}
    assert seen == {epoch: VALUES[epoch] for epoch in evaluated if epoch < 4}


def scores(checkpoint):
    """Return the score of each epoch that is kept."""
    found = checkpoint.best_k_models.items()
    return {int(path.split("epoch=")[1].split(".")[0]): abs(float(score)) for path, score in found}


@VALIDATED
@occasions
@modes
def test_early_stopping_and_schedulers_see_no_improvement_and_go_on(tmp_path, occasion, validated, mode):
    limit = 10.0 if mode == "min" else -10.0
    settings = {"mode": mode, "patience": 9, "check_on_train_epoch_end": True}
    stop = EarlyStopping("own/value", divergence_threshold=limit, **settings)
    keep = ModelCheckpoint(tmp_path / "kept", "{epoch}", monitor="own/value", mode=mode, save_on_train_epoch_end=True)
    _, module, evaluated = trained(tmp_path, occasion, validated, stop, keep, mode=mode, consumer="scheduler")
    best = min(evaluated, key=lambda epoch: VALUES[epoch])
    assert module.trainer.current_epoch == 5
    assert abs(float(stop.best_score)) == abs(module.lr_schedulers().best) == VALUES[best]
    assert scores(keep) == {best: VALUES[best]}


@pytest.mark.parametrize(("every", "rarely", "missing"), [(2, 1, 1), (3, 1, 2), (3, 2, 1)])
@pytest.mark.parametrize("more", [0, 1])
def test_patience_that_ends_every_training_before_a_second_evaluation_is_refused(
    tmp_path, every, rarely, missing, more
):
    """A missing evaluation counts as no improvement."""
    monitor, stop = monitor_of(every_n_epochs=every), EarlyStopping("own/value", patience=missing + more)
    settings = {"val": loader(digits(300, 400)), "max_epochs": 6, "check_val_every_n_epoch": rarely}
    why = rf"`patience` of more than the {missing} epochs .*'own/value', .*, but got {missing}\. "
    with nullcontext() if more else pytest.raises(ValueError, match=why):
        fit(tmp_path, monitor, stop, module=Generator({}), **settings)
    assert len(monitor.history) >= 2 * more


CONSUMERS = {
    "EarlyStopping": lambda: EarlyStopping("own/value", patience=9, check_on_train_epoch_end=True),
    "ModelCheckpoint": lambda: ModelCheckpoint(monitor="own/value"),
    "A learning-rate scheduler": lambda: None,
}


@pytest.mark.parametrize("occasion", ["NaN", "failed", "switched off"])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_who_waits_for_a_value_is_named_once_if_an_evaluation_has_none(tmp_path, consumer, occasion):
    callback = CONSUMERS[consumer]()
    with_scheduler = {"consumer": "scheduler"} if callback is None else {}
    callbacks = [] if callback is None else [callback]
    monitor, _, _ = trained(tmp_path, occasion, False, *callbacks, **with_scheduler)
    said = [note["text"] for note in monitor.publisher.notes.items if "has no value" in note["text"]]
    assert len(said) == 1
    assert said[0].startswith(f"{consumer} monitors 'own/value'")


def test_checkpoints_between_evaluations_are_ranked_last(tmp_path):
    keep = ModelCheckpoint(tmp_path / "kept", "{step}", "own/value", save_top_k=-1, every_n_train_steps=1)
    stop = EarlyStopping("own/value", patience=9, check_on_train_epoch_end=True)
    monitor = monitor_of(every_n_train_steps=2)
    fit(tmp_path, monitor, keep, stop, module=Generator({}), max_epochs=2)
    known = {int(path.split("step=")[1].split(".")[0]): float(x) for path, x in keep.best_k_models.items()}
    assert known == {1: 3.0, 2: 3.0, 3: 1e9, 4: 2.0, 5: 1e9, 6: 2.0}
    assert float(stop.best_score) == 2.0


@pytest.mark.parametrize("waits", [ModelCheckpoint, EarlyStopping], ids=lambda x: x.__name__)
@pytest.mark.parametrize("key", ["own/valu", "own/rank"])
def test_a_key_that_has_no_value_is_noted_once_with_the_nearest(tmp_path, waits, key):
    monitor = monitor_of()
    fit(tmp_path, monitor, waits(monitor=key), module=Generator({}), max_epochs=2)
    (note,) = [note["text"] for note in monitor.publisher.notes.items if "no value of it" in note["text"]]
    assert note.startswith(f"{key!r} is monitored")
    assert note.endswith("The nearest key is 'own/value'.")


@pytest.mark.parametrize(
    ("noise", "kept", "ranked"),
    [([0.9, 0.1, 0.9], 1, [True, True, False]), ([0.9, 0.1, 0.1, 0.6], 1, [True, True, False, False])],
    ids=["the best", "of two alike the first"],
)
@pytest.mark.filterwarnings("ignore:Plain. cluster_. .* got worse")
def test_a_plain_checkpoint_keeps_the_best_weights(tmp_path, capsys, noise, kept, ranked):
    monitor, best = plain(), []
    keep = ModelCheckpoint(tmp_path / "kept", "{epoch}", monitor=monitor.key)
    watch = LambdaCallback(on_train_epoch_end=lambda *_: best.append(monitor.is_best))
    fit(tmp_path, monitor, watch, keep, module=Noisy(noise), val=loader(digits(300, 400)), max_epochs=len(noise))
    assert best == ranked
    assert keep.best_model_path.endswith(f"epoch={kept}.ckpt")
    assert min(monitor.history, key=lambda record: record["error_ratio_image"])["epoch"] == kept
    capsys.readouterr()
    assert main(["best", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == keep.best_model_path


class Noisy(Linear):
    """Samples are real digits with noise, so much in each epoch."""

    def __init__(self, noise):
        super().__init__()
        self.noise = noise

    def training_step(self, batch, index):
        return self.net.weight.square().sum()

    def sample(self, n):
        images = digits(0, 300)[torch.randint(300, (n,))]
        return (images + self.noise[self.current_epoch] * torch.randn(n, 1, 8, 8)).clamp(-1, 1)
