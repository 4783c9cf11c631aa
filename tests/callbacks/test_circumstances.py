# SPDX-License-Identifier: Apache-2.0
import pickle
import sys
import threading

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Light, Linear, digits, fit, loader, plain, trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision

from genmonitor.callbacks.circumstances import (
    callbacks_with_state,
    circumstances,
    run_folder,
)
from genmonitor.distributed import Collective

pytestmark = LIGHTNING_SAYS


class Sent(Collective):
    """One of two processes that send each other what they can pickle, as torch's broadcast does."""

    world_size = 2

    def __init__(self, rank, line):
        self.rank, self.line = rank, line

    def all_true(self, flag):
        raise NotImplementedError

    def broadcast(self, value):
        if self.rank == 0:
            self.line.append(pickle.dumps(value))
        return pickle.loads(self.line[0])


class UnpicklableError(ValueError):
    """Holds what cannot be sent."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class NeedsMoreError(ValueError):
    """Cannot be made again from its text."""

    def __init__(self, text, number):
        super().__init__(f"{text} {number}")


@pytest.mark.parametrize(
    "error", [UnpicklableError("no images"), NeedsMoreError("no images", 3), OSError(28, "no images")], ids=str
)
def test_every_process_is_told_the_error_of_rank_zero(error):
    line = []

    def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        Sent(0, line).from_rank_zero(fail)
    assert caught.value is error
    with pytest.raises((RuntimeError, OSError), match="no images") as other:
        Sent(1, line).from_rank_zero(fail)
    assert isinstance(other.value, type(error)) or type(error).__name__ in str(other.value)


def test_every_process_gets_what_rank_zero_made():
    line = []
    assert [Sent(rank, line).from_rank_zero(lambda made=rank: made + 7) for rank in (0, 1)] == [7, 7]


@pytest.mark.parametrize(("enabled", "terminal"), [(True, True), (False, True), (True, False)])
def test_bar_follows_the_trainers_and_stays_out_of_files(tmp_path, enabled, terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    fit(tmp_path, plain(), val=loader(digits(300, 400)), max_epochs=1, enable_progress_bar=enabled)
    said = capsys.readouterr().err
    assert ("Plain: sampling" in said) == (enabled and terminal)
    assert ("Plain: baseline" in said) == (enabled and terminal)


def test_run_folder_without_a_logger_is_the_trainers(tmp_path):
    assert run_folder(trainer(tmp_path)) == tmp_path


def test_run_folder_is_that_of_the_checkpoints(tmp_path):
    for version in (None, 3, "named"):
        keep = ModelCheckpoint()
        runner, _ = fit(tmp_path, keep, max_epochs=1, logger=CSVLogger(tmp_path, name="run", version=version))
        assert run_folder(runner) / "checkpoints" == type(tmp_path)(keep.dirpath)


def test_circumstances_name_the_module_and_what_it_ran_on(tmp_path):
    class Asks(Callback):
        def on_train_end(self, trainer, pl_module):
            self.found = circumstances(trainer, pl_module, "averaged")

    asks = Asks()
    fit(tmp_path, asks, max_epochs=1)
    expected = {"module": f"{Linear.__module__}:Linear", "data": None, "global_step": 3, "validation": False}
    expected |= {"weights": "averaged", "device": "cpu", "precision": "32-true", "processes": 1, "threads": 1}
    assert asks.found.items() >= expected.items()


def test_run_folder_stays_where_it_is_when_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run_folder(trainer("run"))
    assert found == tmp_path / "run"


class Own(Callback):
    def __init__(self, **attributes):
        vars(self).update(attributes)


def test_containers_of_each_callback_of_the_user_count(tmp_path):
    first, second = Own(values=[1], count=3), Own(values=[2], other=object())
    worked_on, checkpoint = Own(values=[3], worker=threading.Thread()), ModelCheckpoint(dirpath=tmp_path)
    found, states = callbacks_with_state(trainer(tmp_path, first, second, worked_on, plain(), checkpoint))
    assert found.pop("ModelCheckpoint") is checkpoint
    assert list(found.values()) == [[1], [2]]
    assert list(states) == ["the attributes of Own 0", "the attributes of Own 1"]


@pytest.mark.filterwarnings("ignore:Light. there is no validation data")
def test_the_scaler_of_gradients_is_put_back(tmp_path):
    def sample(module, n):
        if module.trainer.global_step:
            module.trainer.precision_plugin.scaler.update(4.0)
        return module.sample(n).float()

    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=64.0))
    with pytest.warns(UserWarning, match="put back as it was: the gradient scaler"):
        fit(tmp_path, Light(sample_fn=sample), plugins=[plugin])
    assert plugin.scaler.get_scale() == 64
