# SPDX-License-Identifier: Apache-2.0
"""The epoch that StochasticWeightAveraging adds for BatchNorm is an epoch like the others."""

import pytest
from _helpers.modules import LIGHTNING_SAYS, Deep, Light, digits, epochs, fit, loader
from lightning.pytorch.callbacks import StochasticWeightAveraging

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:(Plain|Light).{1,4}(there is no validation data|the baseline|only)"),
    pytest.mark.filterwarnings("ignore:(Plain|Light). .* got worse"),
]
BATCHES = {"train": loader(digits(0, 300), 30), "max_epochs": 3}


def averaging():
    return StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=1)


@pytest.mark.parametrize("validate", [True, False], ids=["validated", "not validated"])
def test_extra_epoch_has_its_whole_number(tmp_path, validate):
    monitor = Light()
    val = loader(digits(300, 400)) if validate else None
    fit(tmp_path, monitor, averaging(), module=Deep(), val=val, **BATCHES)
    assert epochs(monitor) == [0, 1, 2, 3]


def test_epochs_with_several_evaluations_keep_their_parts(tmp_path):
    monitor = Light()
    fit(tmp_path, monitor, averaging(), module=Deep(), val=loader(digits(300, 400)), val_check_interval=5, **BATCHES)
    assert epochs(monitor)[:6] == [0.5, 1, 1.5, 2, 2.5, 3]
    assert len(set(epochs(monitor))) == len(monitor.history)
