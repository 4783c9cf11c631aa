# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, TwoPlayers, digits, ema_averaging, fit, loader, trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import CombinedLoader
from torch import nn

from genmonitor.callbacks.compat import (
    at_progress,
    averaged_model,
    batches_seen,
    find_weight_averaging,
    given_dataloaders,
    logged_step,
    progress_in,
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


class Saves(Callback):
    """Keeps the state of the loops wherever a checkpoint may be saved, and what Lightning logs under there."""

    def __init__(self):
        self.found = []

    def _save(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.found.append((trainer.fit_loop.state_dict(), trainer.current_epoch, batches_seen(trainer)))

    def on_train_batch_end(self, trainer, pl_module, *arguments):
        self._save(trainer, pl_module)

    on_train_start = on_validation_end = on_train_epoch_end = on_train_end = _save


def test_progress_in_a_checkpoint_is_that_of_the_evaluation_that_was_due(tmp_path):
    saves = Saves()
    fit(tmp_path, saves, val=loader(digits(300, 400)), num_sanity_val_steps=0)
    found = [progress_in(loops) for loops, _, _ in saves.found]
    assert found == [
        (0, 0, 0),
        *[(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 2, 3), (0, 2, 3)],  # the batches, validation, epoch end
        *[(1, 3, 4), (1, 4, 5), (1, 5, 6), (1, 5, 6), (1, 5, 6)],
        (1, 5, 6),
    ]


def test_a_trainer_is_as_far_as_a_checkpoint_inside_the_block_alone(tmp_path):
    saves = Saves()
    fit(tmp_path, saves, val=loader(digits(300, 400)), num_sanity_val_steps=0)

    class Looks(Callback):
        def on_train_start(self, trainer, pl_module):
            def now():
                return (
                    trainer.current_epoch,
                    trainer.global_step,
                    batches_seen(trainer),
                    logged_step(trainer, pl_module),
                )

            before = now()
            self.found = []
            for loops, _, _ in saves.found:
                with at_progress(trainer, loops):
                    self.found.append(now())
            assert now() == before == (0, 0, (0, 0), 0)
            trainer.should_stop = True

    looks = Looks()
    fit(tmp_path, looks)
    assert [(epoch, batches) for epoch, _, batches, _ in looks.found[:-1]] == [found[1:] for found in saves.found[:-1]]
    assert looks.found[-1] == (1, 6, (6, 3), 5)  # after the training the last epoch, not the one that never came


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
    average = ema_averaging()
    assert find_weight_averaging(trainer(tmp_path, average)) is average
    assert find_weight_averaging(trainer(tmp_path)) is None


def test_averaged_model_is_there_once_there_is_an_average(tmp_path):
    average = ema_averaging()
    assert averaged_model(None) is averaged_model(average) is None
    fit(tmp_path, average, max_epochs=1)
    assert isinstance(averaged_model(average).module, nn.Module)
    assert not torch.equal(*(x.flatten()[:1] for x in list(averaged_model(average).module.parameters())[:2]))
