# SPDX-License-Identifier: Apache-2.0
"""With and without a monitor, whatever it meets, a run ends in the same bits."""

import random
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Deep, Light, digits, plain
from _helpers.presenters import present_with
from _helpers.traces import MODULES, run, same, without_monitor
from lightning.pytorch.callbacks import Callback

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:(Plain|Light). (there is no validation data|samples depend on the batch)"),
]


@pytest.fixture
def expect_no_trace(tmp_path):
    def compare(kind, validate, monitor, accumulate=1):
        expected = without_monitor(tmp_path, kind, validate, accumulate)
        found = run(tmp_path, kind, validate, monitor, accumulate=accumulate)
        assert {part: same(found[part], expected[part]) for part in expected} == dict.fromkeys(expected, True)

    return compare


VALIDATE = pytest.mark.parametrize("validate", [True, False], ids=["validated", "not validated"])


@pytest.mark.parametrize(("kind", "validate"), [("one optimizer", True), ("a GAN of two", False)])
def test_monitor_leaves_no_trace(expect_no_trace, kind, validate):
    monitor = plain()
    expect_no_trace(kind, validate, monitor)
    assert len(monitor.history) == 2


@pytest.mark.parametrize("accumulate", [1, 4])
def test_evaluations_between_steps_leave_no_trace(expect_no_trace, accumulate):
    monitor = Light(every_n_train_steps=2, sample_fn=rude)
    expect_no_trace("one optimizer", False, monitor, accumulate)
    assert len(monitor.history) == 7


def rude(module, n):
    """A sampler that does everything a sampler should not."""
    module.train()
    torch.manual_seed(8)
    np.random.seed(8)  # noqa: NPY002
    random.seed(8)
    module.requires_grad_(True)
    with torch.enable_grad():
        images = module.sample(n)
        images.square().sum().backward()
    module.zero_grad(set_to_none=False)
    module.requires_grad_(False)
    return images.detach()


@pytest.mark.parametrize(("kind", "validate"), [("one optimizer", True), ("a GAN of two", False)])
def test_sampler_without_manners_leaves_no_trace(expect_no_trace, kind, validate):
    monitor = Light(sample_fn=rude)
    expect_no_trace(kind, validate, monitor)
    assert len(monitor.history) == 2


def fails(module, n):
    """Go wrong halfway, once training has begun."""
    images = rude(module, n)
    if module.trainer.global_step:
        raise RuntimeError("no samples today")
    return images


@pytest.mark.parametrize(("kind", "validate"), [("one optimizer", False), ("a GAN of two", True)])
def test_sampler_that_raises_leaves_no_trace(expect_no_trace, kind, validate):
    monitor = Light(sample_fn=fails, on_error="warn")
    with pytest.warns(UserWarning, match="no samples today"):
        expect_no_trace(kind, validate, monitor)
    assert monitor.history == []


@pytest.mark.parametrize(
    ("kind", "validate", "part"),
    [("one optimizer", True, "update"), ("a GAN of two", False, "compute")],
)
def test_evaluator_that_raises_leaves_no_trace(expect_no_trace, kind, validate, part, monkeypatch):
    monitor = plain(sample_fn=rude, on_error="warn")

    def broken(*args):
        torch.rand(5)
        raise ArithmeticError("did not converge")

    monkeypatch.setattr(monitor.evaluator, part, broken)
    with pytest.warns(UserWarning, match="did not converge"):
        expect_no_trace(kind, validate, monitor)
    assert monitor.history == []


@VALIDATE
def test_figures_that_cannot_be_drawn_leave_no_trace(expect_no_trace, validate):
    monitor = plain(on_error="warn")

    def broken(*args):
        torch.rand(5)
        raise ArithmeticError("no ink")

    present_with(monitor.evaluator, figures=broken)
    with pytest.warns(UserWarning, match="no ink"):
        expect_no_trace("one optimizer", validate, monitor)
    assert len(monitor.history) == 2


def test_counting_the_images_seen_leaves_no_trace(expect_no_trace):
    def draws(batch):
        torch.rand(5)
        return batch["absent"] if isinstance(batch, (list, tuple)) and len(batch[0]) == 50 else batch[0]

    monitor = Light(image_key=draws, real_images=digits(0, 200))
    expect_no_trace("one optimizer", False, monitor)
    assert len(monitor.history) == 2


class Counts(Deep):
    """Learns from what its sampler wrote into whatever it holds."""

    def __init__(self):
        super().__init__()
        self.calls, self.noise, self.seen = Counter(), torch.zeros(64), defaultdict(list)

    def sample(self, n):
        if not self.training:
            self.calls["sample"] += 1
            self.noise += 1
            self.seen["sample"].append(n)
            self.net[0].register_forward_hook(lambda module, given, out: out + 0.1)
        return super().sample(n)

    def training_step(self, batch, index):
        held = self.calls["sample"] + self.noise.sum() + len(self.seen["sample"])
        return super().training_step(batch, index) * (1 + held)


def test_what_a_sampler_writes_into_the_module_leaves_no_trace(expect_no_trace, monkeypatch):
    monkeypatch.setitem(MODULES, "counts", Counts)
    monitor = plain()
    expect_no_trace("counts", True, monitor)
    assert len(monitor.history) == 2


def test_comparison_sees_a_single_draw_too_many(tmp_path):
    class Draws(Callback):
        def on_validation_epoch_end(self, trainer, pl_module):
            torch.rand(1)

    expected = without_monitor(tmp_path, "one optimizer", True, 1)
    found = run(tmp_path, "one optimizer", True, Draws())
    assert not same(found["random numbers"], expected["random numbers"])
    assert not same(found["weights and buffers"], expected["weights and buffers"])
