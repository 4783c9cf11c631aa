# SPDX-License-Identifier: Apache-2.0
import pytest
from _helpers.logged import read_tensorboard
from _helpers.loggers import AnyLogger
from torch.utils.tensorboard import SummaryWriter

from genmonitor.loggers.backend import find_backend
from genmonitor.loggers.tensorboard import TensorBoardBackend
from genmonitor.loggers.writers import as_logger


class Tracker:
    """One of accelerate's."""

    def __init__(self, writer):
        self.tracker = writer


@pytest.mark.parametrize("kind", [lambda writer: writer, Tracker], ids=["alone", "in a tracker"])
def test_a_summary_writer_has_its_backend_and_its_scalars(tmp_path, kind):
    writer = SummaryWriter(tmp_path)
    logger = as_logger(kind(writer))
    assert isinstance(find_backend(logger), TensorBoardBackend)
    assert find_backend(logger).key("cms/image") == "cms/image"
    logger.log_metrics({"cms/image": 0.5, "epoch": 2}, step=7)
    (event,) = read_tensorboard(tmp_path).Scalars("cms/image")  # though nobody closed it
    assert (event.step, event.value) == (7, 0.5)
    writer.close()


def test_a_logger_is_taken_as_it_is():
    logger = AnyLogger()
    assert as_logger(logger) is logger


def test_something_else_is_refused():
    with pytest.raises(TypeError, match=r"`loggers` to hold a .*SummaryWriter, a run of wandb.*, but got dict"):
        as_logger({})
