# SPDX-License-Identifier: Apache-2.0
from _helpers.modules import LIGHTNING_SAYS, Linear, fit, trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from genmonitor.callbacks.integration.provenance import circumstances, run_folder

pytestmark = LIGHTNING_SAYS


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
