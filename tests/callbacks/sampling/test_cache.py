# SPDX-License-Identifier: Apache-2.0
"""Monitors of one Trainer that ask for the same samples draw them once, and measure what each would alone."""

import gc

import pytest
import torch
from _helpers import prompted
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader, measured, plain
from _helpers.prompted import Prompted
from lightning.pytorch.callbacks import EMAWeightAveraging
from torchmetrics import Metric

from genmonitor.callbacks import GenerativeMonitor, shared_samples

YARDSTICK = "ignore:Plain.{1,4}(there is no validation data|only|the baseline)"
pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings(YARDSTICK)]


class Counting(Prompted):
    """Counts the samples that it draws once it trains: preparations are no checks."""

    def __init__(self):
        super().__init__(lr=1e-2)
        self.drawn, self.prepared = 0, False

    def sample(self, n):
        self.drawn += n * self.prepared
        z = torch.randn(n, 9, device=self.device)
        return torch.tanh(self.net(z)).view(n, 1, 8, 8)

    def sample_prompts(self, prompts):
        self.drawn += len(prompts) * self.prepared
        return super().sample_prompts(prompts)

    def training_step(self, batch, index):
        self.prepared = True
        return (self.net.weight.sum() - batch[0].mean()).square()


def apart(*monitors):
    """Let monitors of one class stand on one Trainer, which wants a type and keys of its own for each."""
    for i, monitor in enumerate(monitors):
        kind = type(monitor)
        monitor.__class__ = type(f"{kind.__name__}{i}", (kind,), {"prefix": f"{monitor.prefix}{i}"})
    return monitors


def run(folder, *callbacks, module=None, epochs=2, **settings):
    """Fit with validation; return how many samples were drawn."""
    torch.manual_seed(1)
    module = module or Counting()
    apart(*(callback for callback in callbacks if isinstance(callback, GenerativeMonitor)))
    fit(folder, *callbacks, module=module, val=loader(digits(300, 400)), max_epochs=epochs, **settings)
    return module.drawn


def alone(folder, make):
    monitor = make()
    run(folder, monitor)
    return measured(monitor)


def test_three_monitors_draw_one_set_per_check_and_measure_what_each_does_alone(tmp_path):
    def pixel():
        return plain(prompts=range(5))

    def diversity(**settings):
        return prompted.plain(range(5), **settings)

    monitors = [pixel(), diversity(), diversity(n_samples=40)]
    assert run(tmp_path, *monitors) == 2 * 60
    assert measured(monitors[0]) == alone(tmp_path / "1", pixel)
    assert measured(monitors[1]) == alone(tmp_path / "2", diversity)
    for check, expected in zip(
        measured(monitors[2]), alone(tmp_path / "3", lambda: diversity(n_samples=40)), strict=True
    ):
        assert check == pytest.approx(expected, rel=1e-5)  # drawn in larger batches: rounding


def test_one_with_more_samples_draws_only_those_that_are_missing(tmp_path):
    few, many = plain(n_samples=40), plain(n_samples=70)
    assert run(tmp_path, few, many) == 2 * 70
    assert measured(many)[-1]["image"] == pytest.approx(
        alone(tmp_path / "alone", lambda: plain(n_samples=70))[-1]["image"]
    )


def own_way(module, n):
    return module.sample(n)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"sample_fn": own_way},
        {"sample_batch_size": 30},
    ],
)
def test_other_samples_are_drawn_apart(tmp_path, other):
    first, second = plain(), plain(**other)
    assert run(tmp_path, first, second) == 2 * 2 * 60
    assert measured(second) == alone(tmp_path / "alone", lambda: plain(**other))


def test_prompts_make_other_samples(tmp_path):
    monitors = plain(prompts=range(5)), plain(prompts=[0, 1, 2, 3]), plain()
    assert run(tmp_path, *monitors) == 2 * 3 * 60


def test_a_sample_fn_is_shared_as_one_object_hashable_or_not(tmp_path):
    class Unhashable:
        __hash__ = None

        def __call__(self, module, n):
            return module.sample(n)

    one, other = Unhashable(), Unhashable()
    assert run(tmp_path, plain(sample_fn=one), plain(sample_fn=one)) == 2 * 60
    assert run(tmp_path, plain(sample_fn=one), plain(sample_fn=other)) == 2 * 2 * 60


def test_a_subclass_with_another_way_to_draw_does_not_get_the_others_samples(tmp_path):
    class Negative(type(plain())):
        def samples_of(self, pl_module):
            sample = super().samples_of(pl_module)
            return lambda indices: -sample(indices)

    monitor, other = plain(), Negative(n_clusters=3, n_samples=60, n_cluster_images=200, on_error="raise")
    assert run(tmp_path, monitor, other) == 2 * 2 * 60
    assert measured(monitor)[-1]["image"] != measured(other)[-1]["image"]


def test_raw_and_averaged_weights_have_samples_of_their_own(tmp_path):
    monitors = [plain(weights=which) for which in ("auto", "raw", "averaged", "raw")]
    drawn = run(tmp_path, *monitors[:2], EMAWeightAveraging(decay=0.5), *monitors[2:])
    assert drawn == 2 * 2 * 60
    histories = [measured(monitor) for monitor in monitors]
    assert histories[0] == histories[2] != histories[1] == histories[3]


def test_between_steps_an_average_that_moves_between_two_monitors_is_sampled_twice(tmp_path):
    first, last = (plain(every_n_train_steps=2) for _ in range(2))
    assert run(tmp_path, first, EMAWeightAveraging(decay=0.5), last, epochs=1) == 2 * 2 * 60
    assert measured(first)[0]["image"] != measured(last)[0]["image"]


def test_nothing_is_kept_after_a_check_nor_after_one_that_stopped_the_run(tmp_path):
    kept = []

    class Last(type(plain())):
        def on_validation_end(self, trainer, pl_module):
            kept.append(len(shared_samples._kept))

    settings = {"n_clusters": 3, "n_samples": 60, "n_cluster_images": 200}
    run(tmp_path, plain(), Last(**settings, on_error="raise"))
    assert kept == [0, 0, 0]  # the sanity check is the first
    broken = Last(**settings, on_error="raise")
    broken.collect = None
    with pytest.raises(TypeError):
        run(tmp_path, plain(), broken)
    assert len(shared_samples._kept) == 0


def test_one_monitor_keeps_nothing_and_samples_go_with_their_trainer(monkeypatch, tmp_path):
    monkeypatch.setattr(shared_samples, "draw_once", None)
    run(tmp_path, plain())

    class Trainer:
        pass

    trainer = Trainer()
    monkeypatch.undo()
    shared_samples.draw_once(trainer, "request", [0], lambda missing: torch.zeros(1, 1, 2, 2))
    assert len(shared_samples._kept) == 1
    del trainer
    gc.collect()
    assert len(shared_samples._kept) == 0


def test_what_one_monitor_does_to_its_samples_the_others_do_not_see():
    class Trainer:
        pass

    trainer, drawn = Trainer(), torch.ones(3, 1, 2, 2)
    shared_samples.draw_once(trainer, "request", [0, 1, 2], lambda missing: drawn).zero_()
    again = shared_samples.draw_once(
        trainer, "request", [1, 2, 3], lambda missing: torch.full((len(missing), 1, 2, 2), 5)
    )
    assert again.flatten(1).mean(1).tolist() == [1, 1, 5]


def test_a_metric_that_draws_random_numbers_gives_the_same_value_with_and_without_sharing(tmp_path):
    class Lucky(Metric):
        full_state_update = False

        def update(self, images, real):
            pass

        def compute(self):
            return torch.rand(())

    def make():
        return plain(extra_metrics={"luck": Lucky()})

    monitor, other = make(), make()
    run(tmp_path, monitor, other)
    assert len({check["luck"] for check in [*measured(monitor), *measured(other)]}) == 1
    assert measured(other) == alone(tmp_path / "alone", make)
