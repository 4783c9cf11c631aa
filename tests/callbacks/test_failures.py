# SPDX-License-Identifier: Apache-2.0
"""An evaluation that fails: it is said and skipped, and nobody who waits for its key is left without."""

import re

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Light, Linear, digits, epochs, fit, loader
from _helpers.presenters import present_with
from _helpers.runs import manifests
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch.optim.lr_scheduler import ReduceLROnPlateau

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:Light. (there is no validation data|.* of which this evaluation has no value)"),
]
VALIDATED = pytest.mark.parametrize("validated", [False, True], ids=["not validated", "validated"])
SAID = [
    pytest.mark.filterwarnings(f"ignore:Light. {text}")
    for text in (
        "this evaluation failed",
        "3 evaluations in a row",
        "the generator produced NaN",
        "training ended",
        "a learning",
    )
]


def validation(validated=True):
    return loader(digits(300, 400)) if validated else None


class Failing(Linear):
    """Fails to sample in the epochs named, once it trains; whoever draws is counted outside, where it is not undone."""

    def __init__(self, epochs=(), error=RuntimeError, drawn=None):
        super().__init__()
        self.failing, self.error, self.drawn = epochs, error, drawn or (lambda epoch: None)

    def sample(self, n):
        if self.trainer.fit_loop.total_batch_idx >= 0 and not self.training:
            self.drawn(self.current_epoch)
            if self.current_epoch in self.failing:
                raise self.error("no samples today")
        return super().sample(n)


# in a run


@VALIDATED
def test_failed_evaluation_is_skipped_with_its_traceback(tmp_path, validated):
    monitor = Light(on_error="warn")
    said = "(?s)Light: this evaluation failed and is skipped.*Traceback.*no samples today"
    with pytest.warns(UserWarning, match=said):
        fit(tmp_path, monitor, module=Failing([1, 2]), val=validation(validated), max_epochs=4)
    assert epochs(monitor) == [0, 3]


def test_three_failures_in_a_row_switch_a_monitor_off(tmp_path):
    drawn = []
    monitor, module = Light(on_error="warn"), Failing([1, 2, 4, 5, 6], drawn=lambda i: drawn.append(i))
    with pytest.warns(UserWarning, match="no samples today|switched off") as said:
        fit(tmp_path, monitor, module=module, val=validation(), max_epochs=9)
    assert epochs(monitor) == [0, 3]
    assert drawn == [*range(7)]  # 7 and 8 would have gone well
    messages = [str(warning.message) for warning in said]
    switched_off = "Light: 3 evaluations in a row failed, so the monitor is switched off."
    assert [m for m in messages if "switched off" in m] == [switched_off]
    page = (tmp_path / "genmonitor" / "report.html").read_text()
    skipped = re.findall(r"The evaluation of epoch (\d) failed and was skipped: RuntimeError: no samples today", page)
    assert sorted(set(skipped)) == list("12456")
    assert "3 evaluations in a row failed" in page


def test_next_fit_tries_again_what_was_switched_off(tmp_path):
    monitor = Light(on_error="warn")
    with pytest.warns(UserWarning, match="no samples today|switched off"):
        fit(tmp_path, monitor, module=Failing([0, 1, 2]), val=validation(), max_epochs=3)
    fit(tmp_path, monitor, val=validation(), max_epochs=1)
    assert len(monitor.history) == 1


@pytest.mark.filterwarnings("ignore:Light. this evaluation failed", "ignore:Light. 3 evaluations in a row")
def test_resumed_run_tries_again_what_was_switched_off(tmp_path):
    keep = ModelCheckpoint(tmp_path, save_last=True)
    fit(tmp_path, Light(on_error="warn"), keep, module=Failing([0, 1, 2]), val=validation(), max_epochs=3)
    resumed = Light()
    settings = {"val": validation(), "max_epochs": 4, "ckpt_path": tmp_path / "last.ckpt"}
    fit(tmp_path, resumed, keep, module=Failing(), **settings)
    assert epochs(resumed) == [3]


def test_errors_are_raised_where_they_are_asked_for(tmp_path):
    with pytest.raises(RuntimeError, match="no samples today"):
        fit(tmp_path, Light(on_error="raise"), module=Failing([1]), val=validation())


def test_interrupt_passes_through_and_is_no_failure(tmp_path):
    module, monitor = Failing([1], error=KeyboardInterrupt), Light(on_error="warn")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(tmp_path, monitor, module=module, val=validation(), max_epochs=3)
    assert epochs(monitor) == [0]
    assert monitor.failures.count == 0


def test_interrupted_evaluation_restores_the_training_state(tmp_path):
    class Looks(Callback):
        def on_exception(self, trainer, pl_module, exception):
            self.found = torch.get_rng_state(), [part.training for part in pl_module.modules()], torch.is_grad_enabled()

    def draw_and_interrupt(module, n):
        if module.trainer.global_step:
            torch.rand(3)
            module.net.train()
            raise KeyboardInterrupt
        return module.sample(n)

    def interrupt(trainer, pl_module):
        raise KeyboardInterrupt

    looks, expected = Looks(), Looks()
    expected.on_train_epoch_end = interrupt
    for seen, monitors in ((expected, []), (looks, [Light(sample_fn=draw_and_interrupt)])):
        torch.manual_seed(0)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            fit(tmp_path, *monitors, seen, module=Linear())
    assert torch.equal(looks.found[0], expected.found[0])
    assert looks.found[1:] == expected.found[1:]


@pytest.mark.parametrize("part", ["figures", "fit_figures"])
def test_figures_that_fail_cost_the_figures_alone(tmp_path, part):
    monitor = Light(on_error="warn")

    def broken(*args):
        raise OSError("no ink")

    present_with(monitor.evaluator, **{part: broken})
    with pytest.warns(
        UserWarning, match=r"Light: part of an evaluation could not be shown or written\. OSError: no ink"
    ):
        fit(tmp_path, monitor, val=validation())
    assert epochs(monitor) == [0, 1]
    assert [manifest["values"]["epoch"] for manifest in manifests(tmp_path / "genmonitor")] == [0, 1]


def test_folder_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "genmonitor").write_text("in the way")
    monitor = Light(on_error="warn")
    with pytest.warns(UserWarning, match="could not be shown or written"):
        fit(tmp_path, monitor, val=validation())
    assert len(monitor.history) == 2


def test_nan_at_every_evaluation_is_the_finding_and_no_other(tmp_path):
    def nan(module, n):
        return module.sample(n) * (float("nan") if module.trainer.global_step else 1)

    with pytest.warns(UserWarning, match="Light: ") as said:
        fit(tmp_path, Light(sample_fn=nan, on_error="warn"), val=validation(), max_epochs=2)
    messages = [str(warning.message) for warning in said]
    assert any("the generator produced NaN or infinite values at epoch 0" in text for text in messages)
    assert not any("last weights" in text for text in messages)


# who waits for a key


@VALIDATED
@pytest.mark.parametrize("watcher", [ModelCheckpoint, EarlyStopping])
def test_first_failure_stops_nobody_who_waits_for_the_key(tmp_path, validated, watcher):
    folder = {"dirpath": tmp_path / "kept"} if watcher is ModelCheckpoint else {"patience": 5}
    waiting, monitor = watcher(monitor="cms/image", mode="max", **folder), Light(on_error="warn")
    with pytest.warns(UserWarning, match="no samples today"):
        runner, _ = fit(tmp_path, waiting, monitor, module=Failing([0, 1]), val=validation(validated), max_epochs=4)
    assert runner.current_epoch == 4
    assert epochs(monitor) == [2, 3]
    score = waiting.best_model_score if watcher is ModelCheckpoint else waiting.best_score
    assert float(score) == pytest.approx(max(record["image"] for record in monitor.history))


class Scheduled(Failing):
    """Lowers its learning rate where the image's CMS stands still."""

    def __init__(self, failing=(), interval="epoch"):
        super().__init__(failing)
        self.interval = interval

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), self.lr)
        plateau = ReduceLROnPlateau(optimizer, mode="max", patience=1, factor=0.5)
        how = {"scheduler": plateau, "monitor": "cms/image", "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": how}


WAITS = {
    "the first evaluation fails": ({"failing": [0]}, {}, {}, 3),
    "every evaluation fails": ({"failing": range(9)}, {}, {}, 0),
    "the monitor is switched off": ({"failing": range(3)}, {"max_epochs": 6}, {}, 0),
    "the first evaluation is not due": ({}, {"check_val_every_n_epoch": 2}, {}, 2),
    "steps wait too": ({"interval": "step"}, {}, {}, 4),
    "evaluations are rarer": ({}, {}, {"every_n_epochs": 3}, 2),
}


@VALIDATED
@pytest.mark.parametrize("name", WAITS)
@pytest.mark.filterwarnings(*(mark.args[0] for mark in SAID))
def test_learning_rate_scheduler_never_ends_the_training(tmp_path, name, validated):
    module, settings, schedule, evaluations = WAITS[name]
    monitor = Light(on_error="warn", **schedule)
    if not validated and "check_val_every_n_epoch" in settings:
        evaluations = 4
    settings = {"val": validation(validated), "max_epochs": 4} | settings
    runner, _ = fit(tmp_path, monitor, module=Scheduled(**module), **settings)
    assert runner.current_epoch == settings["max_epochs"]
    assert len(monitor.history) == evaluations


def test_scheduler_waiting_for_a_failed_value_reacts_later(tmp_path):
    module, monitor = Scheduled([0]), Light(on_error="warn")
    with pytest.warns(UserWarning, match="no samples today"):
        runner, _ = fit(tmp_path, monitor, module=module, val=validation(), max_epochs=3)
    best = runner.lr_scheduler_configs[0].scheduler.best
    assert best == pytest.approx(max(record["image"] for record in monitor.history))
