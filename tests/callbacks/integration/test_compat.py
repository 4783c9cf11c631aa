# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, TwoPlayers, digits, fit, loader, trainer
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import CombinedLoader
from torch import nn

from genmonitor.callbacks.integration.compat import (
    averaged_model,
    batches_seen,
    find_weight_averaging,
    given_dataloaders,
    logged_step,
    set_epoch,
    validation_dataloaders,
)

pytestmark = LIGHTNING_SAYS


class Looks(Callback):
    """Remembers what a function says of the Trainer at the end of each batch and of each epoch."""

    def __init__(self, look):
        self.look, self.at_batches, self.at_epochs = look, [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.at_batches.append(self.look(trainer, pl_module))

    def on_train_epoch_end(self, trainer, pl_module):
        self.at_epochs.append(self.look(trainer, pl_module))


@pytest.mark.parametrize("module", [None, TwoPlayers], ids=["one optimizer", "two optimizers"])
def test_logged_step_is_that_of_lightnings_own_logs(tmp_path, module):
    looks, logger = Looks(logged_step), CSVLogger(tmp_path)
    fit(tmp_path, looks, module=module and module(), logger=logger, log_every_n_steps=1)
    written = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    column = written[0].split(",").index("step")
    assert looks.at_batches == [int(line.split(",")[column]) for line in written[1:]] == list(range(6))
    assert looks.at_epochs == [2, 5]


def test_batches_seen_are_those_of_the_fit_and_of_the_epoch(tmp_path):
    looks = Looks(lambda trainer, pl_module: batches_seen(trainer))
    fit(tmp_path, looks)
    assert looks.at_batches == [(1, 1), (2, 2), (3, 3), (4, 1), (5, 2), (6, 3)]


def test_set_epoch_is_what_the_trainer_says_when_it_starts(tmp_path):
    class Sets(Callback):
        def on_train_start(self, trainer, pl_module):
            set_epoch(trainer, 7)
            self.found = trainer.current_epoch
            trainer.should_stop = True

    sets = Sets()
    fit(tmp_path, sets)
    assert sets.found == 7


def test_validation_dataloaders_are_there_before_validation(tmp_path):
    class Asks(Callback):
        def on_train_start(self, trainer, pl_module):
            self.found = trainer.val_dataloaders, validation_dataloaders(trainer)

    for val in (None, loader(digits(300, 400))):
        asks = Asks()
        fit(tmp_path, asks, val=val, num_sanity_val_steps=0, check_val_every_n_epoch=2)
        assert asks.found == (None, val)


class Hooked(TwoPlayers):
    def train_dataloader(self):
        return loader(digits(0, 100))


def test_given_dataloaders_are_those_that_fit_was_given(tmp_path):
    train, val = loader(digits(0, 100)), [loader(digits(300, 400))]
    runner, _ = fit(tmp_path, train=train, val=val, max_epochs=1)
    assert given_dataloaders(runner) == (train, val)
    runner = trainer(tmp_path, max_epochs=1)
    runner.fit(Hooked())
    assert given_dataloaders(runner) is None
    runner, _ = fit(tmp_path, train=CombinedLoader(train), val=val, max_epochs=1)
    assert given_dataloaders(runner) is None


def test_weight_averaging_is_found_by_its_name(tmp_path):
    average = EMAWeightAveraging()
    assert find_weight_averaging(trainer(tmp_path, average)) is average
    assert find_weight_averaging(trainer(tmp_path)) is None


def test_averaged_model_is_there_once_there_is_an_average(tmp_path):
    average = EMAWeightAveraging()
    assert averaged_model(None) is averaged_model(average) is None
    fit(tmp_path, average, max_epochs=1)
    assert isinstance(averaged_model(average).module, nn.Module)
    assert not torch.equal(*(x.flatten()[:1] for x in list(averaged_model(average).module.parameters())[:2]))
