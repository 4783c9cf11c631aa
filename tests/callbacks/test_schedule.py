# SPDX-License-Identifier: Apache-2.0
import math
import warnings
from pathlib import Path

import pytest
import torch
from _helpers.logged import Remember
from _helpers.modules import LIGHTNING_SAYS, Light, Linear, digits, epochs, fit, loader, plain
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from genmonitor.callbacks.compat import ends_here
from genmonitor.callbacks.schedule import Schedule

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:(Plain|Light). there is no validation data")]
VALIDATED = pytest.mark.parametrize("validated", [False, True], ids=["not validated", "validated"])


def validation(validated=True):
    return loader(digits(300, 400)) if validated else None


def steps(monitor):
    return [record["step"] for record in monitor.history]


def test_schedule_takes_every_nth_epoch_from_the_first_it_sees():
    schedule = Schedule(every_n_epochs=3)
    assert [epoch for epoch in range(1, 9) if schedule.epoch_due(epoch)] == [1, 4, 7]


def test_schedule_by_steps_takes_the_first_and_every_nth_batch():
    schedule = Schedule(every_n_train_steps=3)
    assert [batch for batch in range(4, 13) if schedule.step_due(batch)] == [4, 6, 9, 12]
    assert not any(schedule.epoch_due(epoch) for epoch in range(3))


def test_schedule_goes_on_from_its_state_until_it_is_reset():
    one, other = Schedule(2), Schedule(2)
    assert one.epoch_due(0)
    other.load_state_dict(one.state_dict())
    assert not other.epoch_due(1)
    other.reset()
    assert other.epoch_due(1)


@VALIDATED
@pytest.mark.parametrize(("every", "expected"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3, 4])])
def test_evaluations_come_every_n_epochs_and_in_the_last(tmp_path, validated, every, expected):
    monitor = Light(every_n_epochs=every)
    fit(tmp_path, monitor, val=validation(validated), max_epochs=5, num_sanity_val_steps=2)
    assert epochs(monitor) == expected
    assert steps(monitor) == [3 * epoch + 2 for epoch in expected]
    assert [record["images_seen"] for record in monitor.history] == [300 * (epoch + 1) for epoch in expected]


class AsksForTheEnd(Light):
    """Notes at each evaluation whether it is the last, as PixelClusterMonitor does for its diagnosis."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.said = []

    def evaluate(self, trainer, *arguments):
        self.said.append(ends_here(trainer))
        return super().evaluate(trainer, *arguments)


@pytest.mark.parametrize(
    ("every", "options"),
    [
        ({}, {"max_epochs": 3}),
        ({"every_n_epochs": 2}, {"max_epochs": 4}),
        ({"every_n_epochs": 2}, {"max_epochs": 3, "check_val_every_n_epoch": 2}),
        ({"every_n_epochs": 9}, {"max_epochs": 9, "max_steps": 5}),
        ({"every_n_epochs": 3}, {"max_epochs": 6, "check_val_every_n_epoch": 2}),
        ({}, {"max_epochs": -1, "max_steps": 7}),
        ({}, {"max_epochs": 9, "max_steps": 4, "accumulate_grad_batches": 2}),
        ({}, {"max_epochs": 2, "val_check_interval": 1}),
        ({}, {"max_epochs": 4, "val_check_interval": 5, "check_val_every_n_epoch": None}),
        ({"every_n_train_steps": 4}, {"max_epochs": 5}),
        ({"every_n_train_steps": 4}, {"max_epochs": -1, "max_steps": 9}),
    ],
)
def test_the_last_weights_are_evaluated_and_known_to_be_the_last(tmp_path, every, options):
    monitor = AsksForTheEnd(**every)
    runner, _ = fit(tmp_path, monitor, val=validation(), **options)
    assert monitor.said == [False] * (len(monitor.said) - 1) + [True]
    assert len(monitor.said) > 1
    assert steps(monitor)[-1] == runner.fit_loop.epoch_loop._batches_that_stepped - 1


def test_steps_of_two_optimizers_are_counted(tmp_path, monkeypatch):
    class TwoSteps(Linear):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for _ in range(2):
                self.optimizers().step()

    monitor, said = plain(), []
    compute = monitor.evaluator.compute
    monkeypatch.setattr(monitor.evaluator, "compute", lambda x: said.append(monitor.evaluator.is_last) or compute(x))
    fit(tmp_path, monitor, module=TwoSteps(), max_epochs=-1, max_steps=18)
    assert said == [False, False, True]


def test_validating_after_a_fit_evaluates_nothing_and_rewinds_nothing(tmp_path):
    monitor = Light()
    runner, module = fit(tmp_path, monitor, max_epochs=2)
    early = tmp_path / "early.ckpt"
    runner.save_checkpoint(early)
    history, monitor.images_seen = epochs(monitor), 12345
    runner.validate(module, validation(), ckpt_path=early, verbose=False)
    assert epochs(monitor) == history
    assert monitor.images_seen == 12345


@pytest.mark.parametrize(("every", "expected"), [(1, [1, 3, 5]), (2, [1, 3, 5]), (3, [1, 5])])
def test_evaluations_come_with_a_rarer_validation(tmp_path, every, expected):
    monitor = Light(every_n_epochs=every)
    fit(tmp_path, monitor, val=validation(), max_epochs=6, check_val_every_n_epoch=2)
    assert epochs(monitor) == expected


@pytest.mark.parametrize(("every", "expected"), [(1, range(9)), (2, [0, 1, 2, 6, 7, 8])])
def test_evaluations_come_with_each_validation_of_an_epoch(tmp_path, every, expected):
    monitor = Light(every_n_epochs=every)
    fit(tmp_path, monitor, val=validation(), max_epochs=3, val_check_interval=1)
    assert epochs(monitor) == [round((validations + 1) / 3, 3) for validations in expected]


def test_validation_data_are_found_where_lightning_asks_later(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Plain: there is no validation data")
        early, late = plain(), plain()
        fit(tmp_path, early, val=validation(), check_val_every_n_epoch=2)
        fit(tmp_path, late, val=validation(), check_val_every_n_epoch=2, num_sanity_val_steps=0)
    real = early.evaluator.fitted.real
    assert torch.equal(real, late.evaluator.fitted.real)
    assert len(real.view(-1, 64).unique(dim=0)) == 60


@VALIDATED
def test_evaluations_between_steps_reach_the_logger_at_once(tmp_path, validated):
    monitor, logger = Light(every_n_train_steps=2, log="all"), Remember()
    settings = {"logger": logger, "log_every_n_steps": 50}
    runner, _ = fit(tmp_path, monitor, val=validation(validated), **settings)
    assert steps(monitor) == [0, 1, 3, 5]
    assert epochs(monitor) == [0.333, 0.667, 1.333, 2]
    assert [step for step, _ in logger.logged] == [0, 1, 3, 5]
    for (_, logged), record in zip(logger.logged, monitor.history, strict=True):
        assert (logged["cms/image"], logged["epoch"]) == (pytest.approx(record["image"]), record["step"] // 3)
        assert {f"cms/{name}" for name in record} - {"cms/epoch", "cms/step"} <= logged.keys()
    assert float(runner.callback_metrics["cms/image"]) == pytest.approx(monitor.history[-1]["image"])


def test_weights_are_ranked_by_no_evaluation_of_others_in_their_epoch(tmp_path):
    """Epochs of three batches, evaluated after every second one: the first ends with weights that nobody evaluated."""
    best = ModelCheckpoint(tmp_path / "best", filename="{epoch}", monitor="cms/image", mode="max", save_top_k=2)
    monitor = Light(every_n_train_steps=2)
    with pytest.warns(UserWarning, match="which is not evaluated"):
        fit(tmp_path, monitor, best, val=validation())
    assert steps(monitor) == [0, 1, 3, 5]
    scores = {Path(path).stem: float(score) for path, score in best.best_k_models.items()}
    assert scores == {"epoch=0": -math.inf, "epoch=1": pytest.approx(monitor.history[-1]["image"])}


@VALIDATED
def test_keys_are_there_where_evaluations_are_rarer_than_epochs(tmp_path, validated):
    best = ModelCheckpoint(tmp_path / "best", monitor="cms/image", mode="max")
    stop = EarlyStopping("cms/product", mode="max", patience=9)
    with pytest.warns(UserWarning, match="which is not evaluated"):
        fit(tmp_path, Light(every_n_train_steps=50), best, stop, val=validation(validated))
    assert best.best_model_path


@pytest.mark.parametrize("settings", [{"every_n_epochs": 2}, {"every_n_train_steps": 2}])
@pytest.mark.parametrize("watcher", [EarlyStopping, ModelCheckpoint])
def test_who_waits_for_rarer_evaluations_is_warned_of(tmp_path, settings, watcher):
    other = {"patience": 9} if watcher is EarlyStopping else {"dirpath": tmp_path, "every_n_epochs": 2}
    said = f"Light: {watcher.__name__} monitors 'cms/product', which is not evaluated "
    with pytest.warns(UserWarning, match=said):
        fit(tmp_path, watcher(monitor="cms/product", mode="max", **other), Light(**settings), val=validation())


@pytest.mark.parametrize("k", [1, 2])
def test_a_checkpoint_of_each_epoch_keeps_the_best_of_rarer_evaluations_without_a_warning(tmp_path, k):
    monitor = Light(every_n_epochs=2)
    best = ModelCheckpoint(tmp_path / "best", filename="{epoch}", monitor="cms/image", mode="max", save_top_k=k)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*which is not evaluated")
        fit(tmp_path, monitor, best, val=validation(), max_epochs=7)
    assert epochs(monitor) == [0, 2, 4, 6]
    ranked = sorted(monitor.history, key=lambda record: -record["image"])
    assert {Path(path).stem for path in best.best_k_models} == {f"epoch={record['epoch']:g}" for record in ranked[:k]}


def test_early_stopping_on_something_else_is_not_warned_of(tmp_path):
    monitor = Light(every_n_epochs=2)
    fit(tmp_path, EarlyStopping("loss"), monitor, val=validation())
    assert not any("EarlyStopping" in note["text"] for note in monitor.publisher.notes.items)
