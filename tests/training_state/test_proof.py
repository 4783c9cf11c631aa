# SPDX-License-Identifier: Apache-2.0
import random

import numpy as np
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Deep, digits, fit, loader, plain

from genmonitor.training_state.proof import prove_unchanged, training_digest

pytestmark = LIGHTNING_SAYS


@pytest.fixture
def run(tmp_path):
    runner, module = fit(tmp_path, max_epochs=1)
    return runner, module


def reports(run, change):
    """Return what is reported of a change."""
    said = []
    with prove_unchanged(run[1], said.append, run[0].optimizers):
        change(run[1])
    return said


def add_one(tensor):
    with torch.no_grad():
        tensor.view(-1)[0] += 1


CHANGES = {
    "parameter net.bias": lambda module: add_one(module.net.bias),
    "exp_avg of parameter 0 in optimizer 0": lambda module: add_one(
        next(iter(module.optimizers().optimizer.state.values()))["exp_avg"]
    ),
    "the random state of torch": lambda module: torch.rand(1),
    "the random state of numpy": lambda module: np.random.rand(),  # noqa: NPY002
    "the random state of python": lambda module: random.random(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_moved_is_named(run, name):
    (said,) = reports(run, CHANGES[name])
    assert name in said


def test_nothing_is_reported_where_nothing_moved(run):
    assert reports(run, lambda module: None) == []


def test_digest_sees_buffers_and_not_nan(tmp_path):
    _, module = fit(tmp_path, module=Deep(), max_epochs=1)
    module.net[1].running_mean.fill_(torch.nan)
    before = training_digest(module)
    assert training_digest(module) == before
    module.net[1].running_mean.zero_()
    changed = {name for name, value in training_digest(module).items() if value != before[name]}
    assert changed == {"buffer net.1.running_mean"}


def test_digest_takes_every_dtype():
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.int8, torch.bool)
    module = torch.nn.Module()
    for dtype in dtypes:
        module.register_buffer(f"x_{str(dtype).split('.')[1]}", torch.ones(3).to(dtype))
    digest = training_digest(module)
    assert all(digest[f"buffer x_{str(dtype).split('.')[1]}"] for dtype in dtypes)


class Meddling(Deep):
    def sample(self, n):
        add_one(self.net[0].weight)
        return super().sample(n)


@pytest.mark.filterwarnings("ignore:Plain. samples depend on the batch")
def test_a_monitor_says_that_sampling_changed_the_training(tmp_path):
    monitor = plain(on_error="warn", n_cluster_images=100)
    with pytest.warns(UserWarning, match=r"drawing samples changed the training: parameter net\.0\.weight"):
        fit(tmp_path, monitor, module=Meddling(), val=loader(digits(300, 400)), max_epochs=1)
    assert any("Drawing samples changed" in note["text"] for note in monitor.publisher.notes.items)
