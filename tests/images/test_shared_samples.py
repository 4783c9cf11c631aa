# SPDX-License-Identifier: Apache-2.0
"""Monitors of one Trainer that ask for the same samples draw them once, and measure what each would alone."""

import gc
import weakref

import pytest
import torch
from _helpers import prompted
from _helpers.modules import LIGHTNING_SAYS, Kept, Light, digits, ema_averaging, fit, loader, measured, plain
from _helpers.prompted import Prompted
from lightning.pytorch.callbacks import Callback
from torchmetrics import Metric

from genmonitor.images import sampler
from genmonitor.images.sampler import Sampler

BASELINE = "ignore:(Plain|Light).{1,4}(there is no validation data|only|the baseline)"
pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings(BASELINE)]


class Counting(Prompted):
    """Counts the samples that it draws once it trains: what is drawn to prepare is not counted."""

    def __init__(self):
        super().__init__(lr=1e-2)
        self.drawn, self.prepared = Kept(), False

    def sample(self, n):
        self.drawn.append(n * self.prepared)
        z = torch.randn(n, 9, device=self.device)
        return torch.tanh(self.net(z)).view(n, 1, 8, 8)

    def sample_prompts(self, prompts):
        self.drawn.append(len(prompts) * self.prepared)
        return super().sample_prompts(prompts)

    def training_step(self, batch, index):
        self.prepared = True
        return (self.net.weight.sum() - batch[0].mean()).square()


def several(*settings):
    """Return monitors that differ in their settings, with prefixes of their own."""
    return [Light(prefix=f"cms_{number}", **setting) for number, setting in enumerate(settings)]


def run(folder, *callbacks, epochs=1, **settings):
    """Fit with validation; return how many samples were drawn."""
    torch.manual_seed(1)
    module = Counting()
    fit(folder, *callbacks, module=module, val=loader(digits(300, 400)), max_epochs=epochs, **settings)
    return sum(module.drawn)


def alone(folder, monitor, epochs=1):
    """Return what a monitor without others measures."""
    run(folder, monitor, epochs=epochs)
    return measured(monitor)


class Runner:
    """Stands for a Trainer whose samples are kept."""


# in runs


def test_three_monitors_draw_one_set_and_find_what_each_does(tmp_path):
    def make():
        return [
            plain(prompts=range(5)),
            prompted.plain(range(5)),
            prompted.plain(range(5), n_samples=40, prefix="fewer"),
        ]

    monitors = make()
    assert run(tmp_path, *monitors, epochs=2) == 2 * 60
    expected = [alone(tmp_path / monitor.prefix, monitor, epochs=2) for monitor in make()]
    assert [measured(monitor) for monitor in monitors[:2]] == expected[:2]
    for record, other in zip(measured(monitors[2]), expected[2], strict=True):
        assert record == pytest.approx(other, rel=1e-5)  # drawn in larger batches: rounding


def test_monitor_of_more_samples_draws_the_missing_ones_alone(tmp_path):
    few, many = several({"n_samples": 40}, {"n_samples": 70})
    assert run(tmp_path, few, many) == 70
    expected = alone(tmp_path / "alone", Light(n_samples=70))
    assert measured(many)[-1]["image"] == pytest.approx(expected[-1]["image"])


def own_way(module, n):
    return module.sample(n)


@pytest.mark.parametrize("other", [{"seed": 1}, {"sample_fn": own_way}, {"sample_batch_size": 30}], ids=min)
def test_other_samples_are_drawn_apart(tmp_path, other):
    first, second = several({}, other)
    assert run(tmp_path, first, second) == 2 * 60
    assert measured(second) == alone(tmp_path / "alone", Light(**other))


def test_prompts_make_other_samples(tmp_path):
    assert run(tmp_path, *several({"prompts": range(5)}, {"prompts": [0, 1, 2, 3]}, {})) == 3 * 60


def test_sample_fn_is_shared_as_one_object_hashable_or_not(tmp_path):
    class Unhashable:
        __hash__ = None

        def __call__(self, module, n):
            return module.sample(n)

    one, other = Unhashable(), Unhashable()
    assert run(tmp_path, *several({"sample_fn": one}, {"sample_fn": one})) == 60
    assert run(tmp_path, *several({"sample_fn": one}, {"sample_fn": other})) == 2 * 60


def test_sampler_of_another_kind_gets_no_samples_of_others(tmp_path):
    class Negative(Sampler):
        def resolve(self, model):
            sample = super().resolve(model)
            return lambda indices: -sample(indices)

    monitor, other = several({}, {})
    other.sampler = Negative(60)
    assert run(tmp_path, monitor, other) == 2 * 60
    assert measured(monitor)[-1]["image"] != measured(other)[-1]["image"]


def test_raw_and_averaged_weights_have_samples_of_their_own(tmp_path):
    monitors = several(*({"weights": which} for which in ("auto", "raw", "averaged", "raw")))
    assert run(tmp_path, *monitors[:2], ema_averaging(decay=0.5), *monitors[2:]) == 2 * 60
    histories = [measured(monitor) for monitor in monitors]
    assert histories[0] == histories[2] != histories[1] == histories[3]


@pytest.mark.filterwarnings("ignore:Light. EMAWeightAveraging has averaged no weights yet")  # for `first`, at batch 1
def test_average_that_moves_between_monitors_is_sampled_twice(tmp_path):
    first, last = several({"every_n_train_steps": 2}, {"every_n_train_steps": 2})
    assert run(tmp_path, first, ema_averaging(decay=0.5), last) == 2 * 2 * 60
    assert measured(first)[1]["image"] != measured(last)[1]["image"]


def test_metric_that_draws_numbers_gives_the_same_with_sharing(tmp_path):
    class Lucky(Metric):
        full_state_update = False

        def update(self, images, real):
            pass

        def compute(self):
            return torch.rand(())

    monitors = [plain(prefix=prefix, extra_metrics={"luck": Lucky()}) for prefix in ("one", "other")]
    run(tmp_path, *monitors)
    assert len({record["luck"] for monitor in monitors for record in measured(monitor)}) == 1
    assert measured(monitors[1]) == alone(tmp_path / "alone", plain(extra_metrics={"luck": Lucky()}))


# the cache


def test_samples_are_drawn_once_and_copied_for_each():
    runner, drawn = Runner(), torch.ones(3, 1, 2, 2)
    sampler.draw_once(runner, "request", [0, 1, 2], lambda missing: drawn).zero_()
    again = sampler.draw_once(runner, "request", [1, 2, 3], lambda missing: torch.full((len(missing), 1, 2, 2), 5.0))
    assert again.flatten(1).mean(1).tolist() == [1, 1, 5]


def test_cleared_samples_are_drawn_again():
    runner, calls = Runner(), []

    def draw(missing):
        calls.append(missing)
        return torch.zeros(len(missing), 1, 2, 2)

    for _ in range(2):
        sampler.draw_once(runner, "request", [0, 1], draw)
    sampler.clear_samples(runner)
    sampler.draw_once(runner, "request", [0, 1], draw)
    sampler.draw_once(runner, "another", [0, 1], draw)
    assert calls == [[0, 1], [], [0, 1], [0, 1]]


def test_process_without_samples_draws_with_the_others():
    calls = []

    def draw(missing):
        calls.append(missing)
        return torch.zeros(0, 1, 2, 2)

    assert sampler.draw_once(Runner(), "request", [], draw).shape == (0, 1, 2, 2)
    assert calls == [[]]


def test_samples_go_with_their_trainer():
    class Request:
        """What was asked for, kept beside the samples."""

    runner, request = Runner(), Request()
    asked = weakref.ref(request)
    sampler.draw_once(runner, request, [0], lambda missing: torch.zeros(1, 1, 2, 2))
    del request
    gc.collect()
    assert asked() is not None
    del runner
    gc.collect()
    assert asked() is None


@pytest.mark.parametrize("fails", [False, True])
def test_no_samples_are_kept_after_an_evaluation(tmp_path, fails):
    monitors, held = several({}, {}), []

    class Counts(Callback):
        def on_validation_end(self, trainer, pl_module):
            held.append(images_held())

        def on_exception(self, trainer, pl_module, exception):
            held.append(images_held())

    def images_held():
        gc.collect()
        tensors = [x for x in gc.get_objects() if type(x) is torch.Tensor and x.shape == (1, 8, 8)]
        return len(tensors)

    def broken(samples):
        raise ArithmeticError("did not converge")

    if fails:
        monitors[1].evaluator.update = broken
        with pytest.raises(ArithmeticError):
            run(tmp_path, *monitors, Counts())
    else:
        run(tmp_path, *monitors, Counts())
    assert len(held) == 2  # the sanity check is the first
    assert max(held) - held[0] < 10  # not the 60 of an evaluation
