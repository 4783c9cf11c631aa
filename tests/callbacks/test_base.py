# SPDX-License-Identifier: Apache-2.0
"""When a monitor checks, what it logs then, and what it does about errors."""

import json
import re
import sys
import warnings

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, measured, plain, trainer
from lightning import Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.logger import Logger

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Plain. there is no validation data")]

REAL = digits(0, 300)


class Scripted(Linear):
    """Samples are real digits with noise, so much in each epoch."""

    def __init__(self, noise=(0.0,) * 9):
        super().__init__()
        self.noise = noise

    def training_step(self, batch, index):
        return self.net.weight.square().sum()

    def sample(self, n):
        images = REAL[torch.randint(len(REAL), (n,))]
        return (images + self.noise[self.current_epoch] * torch.randn(n, 1, 8, 8)).clamp(-1, 1)


class Remember(Logger):
    """Keeps what it is given, by step."""

    name, version, save_dir = "remember", "0", None

    def __init__(self):
        super().__init__()
        self.logged = []

    def log_hyperparams(self, *args, **kwargs):
        pass

    def log_metrics(self, metrics, step=None):
        self.logged += [(step, metrics)] if any(key.startswith("cms/") for key in metrics) else []


def validation():
    return loader(digits(300, 400))


def epochs(monitor):
    return [check["epoch"] for check in monitor.history]


# when


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
@pytest.mark.parametrize(("every", "expected"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3])])
def test_checks_come_every_n_epochs_from_the_first_on_and_none_in_the_sanity_check(tmp_path, val, every, expected):
    monitor = plain(every_n_epochs=every)
    fit(tmp_path, monitor, val=val, max_epochs=5, num_sanity_val_steps=2)
    assert epochs(monitor) == expected
    assert [check["step"] for check in monitor.history] == [3 * epoch + 2 for epoch in expected]
    assert [check["images_seen"] for check in monitor.history] == [300 * (epoch + 1) for epoch in expected]


@pytest.mark.parametrize(("every", "expected"), [(1, [1, 3, 5]), (2, [1, 3, 5]), (3, [1, 5])])
def test_with_rarer_validation_checks_come_where_it_comes(tmp_path, every, expected):
    monitor = plain(every_n_epochs=every)
    fit(tmp_path, monitor, val=validation(), max_epochs=6, check_val_every_n_epoch=2)
    assert epochs(monitor) == expected


@pytest.mark.parametrize(("every", "expected"), [(1, range(9)), (2, [0, 1, 2, 6, 7, 8])])
def test_with_several_validations_an_epoch_there_are_as_many_checks(tmp_path, every, expected):
    monitor = plain(every_n_epochs=every)
    fit(tmp_path, monitor, val=validation(), max_epochs=3, val_check_interval=1)
    assert epochs(monitor) == [round((validations + 1) / 3, 3) for validations in expected]


def test_validation_data_is_found_also_where_lightning_asks_for_it_later(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Plain: there is no validation data")
        early, late = plain(), plain()
        fit(tmp_path, early, val=validation(), check_val_every_n_epoch=2)
        fit(tmp_path, late, val=validation(), check_val_every_n_epoch=2, num_sanity_val_steps=0)
    assert torch.equal(early._real, late._real)
    assert late._real.view(-1, 64).unique(dim=0).shape[0] == 60


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
def test_checks_every_n_steps_reach_the_logger_whatever_its_own_interval(tmp_path, val):
    monitor, logger = plain(every_n_train_steps=2), Remember()
    runner, _ = fit(tmp_path, monitor, val=val, logger=logger, log_every_n_steps=50)
    assert [check["step"] for check in monitor.history] == [0, 1, 3, 5]
    assert epochs(monitor) == [0.333, 0.667, 1.333, 2]
    assert [step for step, _ in logger.logged] == [0, 1, 3, 5]
    for (_, logged), check in zip(logger.logged, monitor.history, strict=True):
        assert (logged["cms/image"], logged["epoch"]) == (pytest.approx(check["image"]), check["step"] // 3)
        assert {f"cms/{name}" for name in check} - {"cms/epoch", "cms/step"} <= logged.keys()
    assert float(runner.callback_metrics["cms/image"]) == pytest.approx(monitor.history[-1]["image"])


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
@pytest.mark.parametrize(("accumulate", "steps"), [(1, [2, 5]), (2, [1, 3]), (3, [0, 1])])
def test_one_dictionary_a_check_reaches_the_logger_at_the_trainers_step(tmp_path, val, accumulate, steps):
    monitor, logger = plain(), Remember()
    fit(tmp_path, monitor, val=val, logger=logger, log_every_n_steps=1, accumulate_grad_batches=accumulate)
    assert [step for step, _ in logger.logged] == steps == [check["step"] for check in monitor.history]
    for (_, logged), check in zip(logger.logged, monitor.history, strict=True):
        expected = {f"cms/{name}": value for name, value in check.items() if name not in ("epoch", "step")}
        assert {key: value for key, value in logged.items() if key.startswith("cms/")} == pytest.approx(expected)


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
def test_model_checkpoint_keeps_the_epoch_with_the_best_image(tmp_path, val):
    monitor = plain()
    best = ModelCheckpoint(tmp_path / "kept", monitor="cms/image", mode="max", filename="{epoch}")
    fit(tmp_path, best, monitor, module=Scripted([0.9, 0.2, 0.5]), val=val, max_epochs=3)
    assert best.best_model_path.endswith("epoch=1.ckpt")
    assert float(best.best_model_score) == pytest.approx(max(check["image"] for check in monitor.history))


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
def test_early_stopping_ends_the_run_once_the_product_stops_growing(tmp_path, val):
    monitor, stop = plain(), EarlyStopping("cms/product", mode="max", patience=2)
    fit(tmp_path, stop, monitor, module=Scripted([0.9, 0.7, 0.5, 0.6, 0.6, 0.6]), val=val, max_epochs=6)
    assert epochs(monitor) == [0, 1, 2, 3, 4]
    assert float(stop.best_score) == pytest.approx(monitor.history[2]["product"])


@pytest.mark.parametrize("settings", [{"every_n_epochs": 2}, {"every_n_train_steps": 2}])
def test_early_stopping_on_rarer_checks_is_warned_of(tmp_path, settings):
    stop = EarlyStopping("cms/product", mode="max", patience=9)
    with pytest.warns(UserWarning, match="EarlyStopping monitors 'cms/product', which Plain does not measure in every"):
        fit(tmp_path, stop, plain(**settings), val=validation())


def test_early_stopping_on_something_else_is_no_ones_business(tmp_path):
    fit(tmp_path, EarlyStopping("loss"), plain(every_n_epochs=2), val=validation())


def test_validating_and_testing_alone_do_nothing(tmp_path):
    class Tested(Scripted):
        def test_step(self, batch, index):
            pass

    monitor, module = plain(), Tested()
    runner = trainer(tmp_path, monitor)
    runner.validate(module, validation(), verbose=False)
    runner.test(module, validation(), verbose=False)
    runner.save_checkpoint(tmp_path / "untrained.ckpt")
    assert monitor.history == []
    runner, _ = fit(tmp_path, monitor, module=module, val=validation())
    kept = list(monitor.history)
    runner.validate(module, validation(), verbose=False)
    assert monitor.history == kept
    assert len(kept) == 2


def test_a_generator_that_does_not_change_gives_a_curve_that_does_not_move(tmp_path):
    monitor = plain(seed=7)
    fit(tmp_path, monitor, module=Linear(lr=0.0), val=validation(), max_epochs=4)
    first, *later = [
        {k: v for k, v in check.items() if k.startswith(("image", "cluster", "mmd"))}
        for check in ({k: v for k, v in c.items() if k != "images_seen"} for c in monitor.history)
    ]
    assert later == [first] * 3


def test_users_of_pytorch_lightning_get_the_same(tmp_path):
    pl = pytest.importorskip("pytorch_lightning")

    class Foreign(pl.LightningModule):
        sample, training_step, validation_step = Linear.sample, Linear.training_step, Linear.validation_step
        configure_optimizers = Linear.configure_optimizers

        def __init__(self):
            super().__init__()
            self.lr, self.net = 0.0, torch.nn.Linear(4, 64)

    monitor, native = plain(), plain()
    for module, fit_ in ((Foreign, pl.Trainer), (lambda: Linear(lr=0.0), Trainer)):
        torch.manual_seed(0)
        best = (ModelCheckpoint if fit_ is Trainer else pl.callbacks.ModelCheckpoint)(tmp_path, monitor="cms/image")
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
        watched = [monitor if fit_ is pl.Trainer else native, best]
        fit_(max_epochs=2, callbacks=watched, default_root_dir=tmp_path, **quiet).fit(
            module(), loader(REAL), validation()
        )
        assert float(best.best_model_score) == pytest.approx(watched[0].history[-1]["image"])
    assert measured(monitor) == measured(native)


def test_what_a_check_costs_is_logged(tmp_path):
    monitor, logger = plain(), CSVLogger(tmp_path)
    fit(tmp_path, monitor, val=validation(), logger=logger)
    assert all(0 < check[f"{part}_seconds"] < 60 for check in monitor.history for part in ("sampling", "metric"))


@pytest.mark.parametrize(("enabled", "terminal"), [(True, True), (False, True), (True, False)])
def test_a_bar_that_names_itself_follows_the_trainers_and_stays_out_of_files(
    tmp_path, enabled, terminal, capsys, monkeypatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    fit(tmp_path, plain(), val=validation(), max_epochs=1, enable_progress_bar=enabled)
    said = capsys.readouterr().err
    assert ("Plain: sampling" in said) == (enabled and terminal)
    assert ("Plain: baseline" in said) == (enabled and terminal)


# errors


class Failing(Scripted):
    """Fails to sample in the epochs named."""

    def __init__(self, epochs, error=RuntimeError):
        super().__init__()
        self.failing, self.error, self.calls = epochs, error, 0

    def sample(self, n):
        self.calls += 1
        if self.calls > 1 and self.current_epoch in self.failing:
            raise self.error("no samples today")
        return super().sample(n)


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
def test_a_check_that_fails_is_skipped_with_its_traceback_and_the_next_goes_on(tmp_path, val):
    monitor = plain(on_error="warn")
    with pytest.warns(UserWarning, match="(?s)Plain: this check failed and is skipped.*Traceback.*no samples today"):
        fit(tmp_path, monitor, module=Failing([1, 2]), val=val, max_epochs=4)
    assert epochs(monitor) == [0, 3]


def test_three_failures_in_a_row_switch_it_off_and_it_says_so(tmp_path):
    monitor, module = plain(on_error="warn"), Failing([1, 2, 4, 5, 6])
    with pytest.warns(UserWarning, match="no samples today|switched off") as said:
        fit(tmp_path, monitor, module=module, val=validation(), max_epochs=9)
    assert epochs(monitor) == [0, 3]
    assert module.calls == 1 + 7  # the probe and the checks of epochs 0..6; 7 and 8 would have gone well
    messages = [str(warning.message) for warning in said]
    assert [m for m in messages if "switched off" in m] == ["Plain: 3 checks in a row failed, so it is switched off."]
    page = (tmp_path / "genmonitor" / "report.html").read_text()
    skipped = re.findall(r"The check of epoch (\d) failed and was skipped: RuntimeError: no samples today", page)
    assert sorted(set(skipped)) == list("12456")
    assert "3 checks in a row failed" in page


def test_a_new_fit_tries_again(tmp_path):
    monitor = plain(on_error="warn")
    with pytest.warns(UserWarning, match="no samples today|switched off"):
        fit(tmp_path, monitor, module=Failing([0, 1, 2]), val=validation(), max_epochs=3)
    fit(tmp_path, monitor, module=Scripted(), val=validation(), max_epochs=1)
    assert len(monitor.history) == 1


def test_errors_are_raised_where_they_are_asked_for(tmp_path):
    with pytest.raises(RuntimeError, match="no samples today"):
        fit(tmp_path, plain(on_error="raise"), module=Failing([1]), val=validation())


def test_a_keyboard_interrupt_passes_through_and_leaves_the_run_as_it_was(tmp_path):
    module, monitor = Failing([1], error=KeyboardInterrupt), plain(on_error="warn")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(tmp_path, monitor, module=module, val=validation(), max_epochs=3)
    assert epochs(monitor) == [0]
    assert monitor._failures == 0


def test_an_interrupted_check_puts_everything_back(tmp_path):
    module, monitor = Failing([], KeyboardInterrupt), plain()
    runner, _ = fit(tmp_path, monitor, module=module, val=validation())
    module.failing = [module.current_epoch]
    module.train()
    state = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        monitor._check(runner, module)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in module.modules())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
@pytest.mark.parametrize("watcher", [ModelCheckpoint, EarlyStopping])
def test_a_first_check_that_fails_stops_neither_the_run_nor_who_waits_for_its_key(tmp_path, val, watcher):
    folder = {"dirpath": tmp_path / "kept"} if watcher is ModelCheckpoint else {"patience": 5}
    waiting, monitor = watcher(monitor="cms/image", mode="max", **folder), plain(on_error="warn")
    with pytest.warns(UserWarning, match="no samples today"):
        runner, _ = fit(tmp_path, waiting, monitor, module=Failing([0, 1]), val=val, max_epochs=4)
    assert runner.current_epoch == 4
    assert epochs(monitor) == [2, 3]
    score = waiting.best_model_score if watcher is ModelCheckpoint else waiting.best_score
    assert float(score) == pytest.approx(monitor.history[-1]["image"])


@pytest.mark.parametrize("part", ["figures", "first_figures"])
def test_figures_that_fail_cost_the_figures_and_nothing_else(tmp_path, monkeypatch, part):
    monitor = plain(on_error="warn")

    def broken(*args):
        raise OSError("no ink")

    monkeypatch.setattr(monitor, part, broken)
    with pytest.warns(UserWarning, match="(?s)Plain: could not show.*no ink"):
        fit(tmp_path, monitor, val=validation())
    assert epochs(monitor) == [0, 1]
    manifests = sorted((tmp_path / "genmonitor").glob("*_evaluation_*.json"))
    assert [json.loads(path.read_text())["evaluation"]["epoch"] for path in manifests] == [0, 1]


@pytest.mark.parametrize("val", [None, validation()], ids=["no validation", "validation"])
def test_who_waits_for_a_key_finds_it_also_where_checks_are_further_apart_than_epochs(tmp_path, val):
    best = ModelCheckpoint(tmp_path / "best", monitor="cms/image", mode="max")
    stop = EarlyStopping("cms/product", mode="max", patience=9)
    with pytest.warns(UserWarning, match="does not measure in every epoch"):
        fit(tmp_path, plain(every_n_train_steps=50), best, stop, val=val)
    assert best.best_model_path


def test_a_run_that_ends_before_its_first_check_says_so(tmp_path):
    with pytest.warns(UserWarning, match="Plain: training ended before the first check"):
        fit(tmp_path, plain(), val=validation(), max_steps=2)


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "genmonitor").write_text("in the way")
    monitor = plain(on_error="warn")
    with pytest.warns(UserWarning, match="could not show this check"):
        fit(tmp_path, monitor, val=validation())
    assert len(monitor.history) == 2
