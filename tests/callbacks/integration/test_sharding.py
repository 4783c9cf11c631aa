# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, fit, plain
from _helpers.prompted import Prompted
from _helpers.prompted import plain as prompted
from lightning.pytorch.strategies import SingleDeviceStrategy

pytestmark = LIGHTNING_SAYS


class FSDPStrategy(SingleDeviceStrategy):
    """Goes by the name of the one that splits the parameters, which itself needs GPUs."""


class DeepSpeedStrategy(SingleDeviceStrategy):
    """The same, of DeepSpeed."""

    zero_stage_3 = True


@pytest.mark.parametrize("monitor", [plain, prompted])
@pytest.mark.parametrize(
    ("strategy", "name"), [(FSDPStrategy, "FSDPStrategy"), (DeepSpeedStrategy, "DeepSpeed stage 3")]
)
def test_strategy_that_cannot_go_on_after_an_error_is_refused(tmp_path, monitor, strategy, name):
    with pytest.raises(ValueError, match=rf"or ModelParallelStrategy.*but got {name}.*`genmonitor sweep`"):
        fit(tmp_path, monitor(), module=Prompted(), strategy=strategy(torch.device("cpu")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_lightnings_own_fsdp_is_refused(tmp_path):
    with pytest.raises(ValueError, match="but got FSDPStrategy"):
        fit(tmp_path, plain(), accelerator="gpu", devices=1, strategy="fsdp")
