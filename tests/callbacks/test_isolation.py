# SPDX-License-Identifier: Apache-2.0
"""Whatever a sampler moves, on whatever occasion, the training goes on as it would have, and the user is told."""

import copy
import itertools
import random
import warnings
from contextlib import nullcontext
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from _helpers.loops import Generator, small
from _helpers.modules import LIGHTNING_SAYS, Deep, Linear, digits, fit, loader, plain, trainer
from _helpers.traces import Record, same
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.precision import HalfPrecision
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, IterableDataset

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:.*(this evaluation failed|samples depend on the batch|3 evaluations in a row)"),
    pytest.mark.filterwarnings("ignore:.*(can only be streamed|there is no validation data|only \\d+ real images)"),
]


class Scheduled(Deep):
    """Holds an average of its weights, a scheduler that is stepped, and logs what EarlyStopping waits for."""

    def __init__(self):
        super().__init__()
        self.average, self.calls = copy.deepcopy(self.net).requires_grad_(False), {"n": 0}
        self.average[0].weight.mul_(0.5)  # another than the network from the first sample on

    def validation_step(self, batch, index):
        self.log("val_loss", self.net[0].weight.square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return {"optimizer": optimizer, "lr_scheduler": StepLR(optimizer, 1, gamma=0.9)}


class Shadow(Callback):
    """A user's average of the weights, which its `sample` exchanges with them."""

    def __init__(self):
        self.values, self.exchanges, self.count = torch.zeros(3), [], 0

    def exchange(self):
        self.values.add_(1)
        self.exchanges.append(1)


@torch.no_grad()
def swap_in(module):
    """What a sampler does that fails before it swaps the average out again."""
    for own, average in zip(module.net.parameters(), module.average.parameters(), strict=True):
        own.copy_(average)


def step(module):
    for parameter in module.net.parameters():
        parameter.grad = torch.ones_like(parameter)
    module.trainer.optimizers[0].step()


def draw(module):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)


def shadow_of(module):
    return next(x for x in module.trainer.callbacks if type(x) is Shadow)


MOVES = {
    "parameters": swap_in,
    "optimizer": step,
    "groups": lambda module: module.trainer.optimizers[0].param_groups[0].update(lr=1.0, weight_decay=1.0),
    "scheduler": lambda module: module.trainer.lr_scheduler_configs[0].scheduler.step(),
    "interval of a scheduler": lambda module: vars(module.trainer.lr_scheduler_configs[0]).update(
        interval="step", frequency=3
    ),
    "another scheduler": lambda module: setattr(
        module.trainer.lr_scheduler_configs[0], "scheduler", StepLR(module.trainer.optimizers[0], 1, gamma=0.1)
    ),
    "other schedulers": lambda module: module.trainer.lr_scheduler_configs.clear(),
    "other optimizers": lambda module: setattr(
        module.trainer, "optimizers", [torch.optim.SGD(module.net.parameters(), 9.0)]
    ),
    "optimizer of a list": lambda module: module.trainer.optimizers.__setitem__(
        0, torch.optim.SGD(module.net.parameters(), 9.0)
    ),
    "strategy": lambda module: setattr(
        module.trainer._accelerator_connector, "strategy", copy.copy(module.trainer.strategy)
    ),
    "precision plugin": lambda module: setattr(module.trainer.strategy, "precision_plugin", HalfPrecision("bf16-true")),
    "loggers": lambda module: module.trainer.loggers.append(CSVLogger(".")),
    "Trainer": lambda module: vars(module.trainer).update(accumulate_grad_batches=2, gradient_clip_val=1e-6),
    "length": lambda module: vars(module.trainer.fit_loop).update(max_epochs=1),
    "steps": lambda module: vars(module.trainer.fit_loop.epoch_loop).update(max_steps=1),
    "batches": lambda module: vars(module.trainer).update(limit_train_batches=1),
    "steps counted": lambda module: module.trainer.fit_loop.epoch_loop.batch_progress.increment_ready(),
    "EarlyStopping": lambda module: vars(module.trainer.early_stopping_callbacks[0]).update(
        best_score=torch.tensor(-9)
    ),
    "callback of the user": lambda module: shadow_of(module).exchange(),
    "callbacks": lambda module: module.trainer.callbacks.append(Timer(duration={"seconds": 0})),
    "number of a callback": lambda module: setattr(shadow_of(module), "count", 7),
    "list of a callback": lambda module: setattr(shadow_of(module), "exchanges", [7]),
    "new attribute of a callback": lambda module: setattr(shadow_of(module), "new", 7),
    "logged key": lambda module: module.log("val_loss", 1e6 + module.trainer.global_step),
    "key logged at each step": lambda module: module.log("loss", 1.0, on_step=True, prog_bar=True),
    "keys logged": lambda module: module.log_dict({"val_loss": 1e6, "loss": 1.0}, on_step=True, on_epoch=True),
    # one that nobody logs: what is logged Lightning writes anew whenever someone looks
    "callback metric": lambda module: module.trainer.callback_metrics.update(score=torch.tensor(1e6)),
}
GLOBAL = {"n": 0}
MOVES |= {"global variable": lambda module: GLOBAL.update(n=GLOBAL["n"] + 1)}
SILENT = {
    "buffers": lambda module: module.net[1].running_mean.fill_(7),
    "modes": lambda module: module.net.train(),
    "requires_grad": lambda module: module.net.requires_grad_(False),
    "random states": draw,
    "attributes": lambda module: module.calls.update(n=5),
    "gradients": lambda module: [setattr(x, "grad", torch.ones_like(x)) for x in module.net.parameters()],
}
"""What samplers do in good faith: it is put back without a word."""
OCCASIONS = {
    "fit": lambda number: number < 1,
    "first evaluation": lambda number: number == 2,
    "later evaluation": lambda number: number == 3,
    "failed evaluation": lambda number: number >= 3,
}
"""By the number of the call: the probe, two samples alone, and then one for each evaluation."""


class Moves:
    def __init__(self, changes, occasion):
        self.changes, self.occasion = changes, occasion
        self.calls, self.moves = SimpleQueue(), SimpleQueue()  # numbers would be put back

    def __call__(self, module, n):
        images, count = module.sample(n), self.calls.qsize()
        self.calls.put(n)
        if OCCASIONS[self.occasion](count):
            self.moves.put(n)
            for change in self.changes:
                change(module)
            if self.occasion == "failed evaluation":
                raise RuntimeError("no samples today")
        return images


def left(folder, *callbacks):
    """Return all that a training leaves, and what it said."""
    draw(None)
    record, stop, module = Record(), EarlyStopping("val_loss", patience=0), Scheduled()
    shadow = Shadow()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        runner, _ = fit(
            folder, *callbacks, record, stop, shadow, module=module, val=loader(digits(300, 400)), max_epochs=3
        )
    return {
        "weights and buffers": module.state_dict(),
        "optimizer": runner.optimizers[0].state_dict(),
        "scheduler": runner.lr_scheduler_configs[0].scheduler.state_dict(),
        "losses, batches, modes": record.seen,
        "val_loss": (float(runner.callback_metrics["val_loss"]), float(stop.best_score), stop.stopped_epoch),
        "calls": module.calls,
        "shadow": {name: value for name, value in vars(shadow).items() if not callable(value)},
        "random numbers": (torch.rand(2), np.random.rand(), random.random()),  # noqa: NPY002
        "steps": runner.global_step,
        "global variable": dict(GLOBAL),
    }, [str(one.message) for one in said]


def check(folder, changes, occasion):
    """Compare a training with and without a monitor; return what the one with it said of changes."""
    sampler = Moves(changes, occasion)
    expected, _ = left(folder)
    found, said = left(folder, plain(sample_fn=sampler, on_error="warn"))
    assert sampler.moves.qsize()
    assert {part: same(found[part], expected[part]) for part in expected} == dict.fromkeys(expected, True)
    return [text for text in said if "changed the training" in text]


@pytest.mark.parametrize("occasion", OCCASIONS)
def test_all_that_a_sampler_moves_comes_back(tmp_path, occasion):
    told = check(tmp_path, [*SILENT.values(), *MOVES.values()], occasion)
    assert told
    put_back = [text for text in told if "is discarded" not in text]
    assert all("put back as it was: parameter net.0.weight" in text for text in put_back)
    assert len(put_back) < len(told)  # each key that is logged is named beside it


@pytest.mark.slow
@pytest.mark.parametrize(  # each on one occasion, of which all have all of them together above
    ("name", "occasion"), [*zip([*MOVES, *SILENT], itertools.cycle(OCCASIONS), strict=False)]
)
def test_each_thing_that_a_sampler_moves_comes_back(tmp_path, name, occasion):
    told = check(tmp_path, [(MOVES | SILENT)[name]], occasion)
    assert bool(told) == (name in MOVES)


class Alerts(Callback):
    def __init__(self):
        self.alerts = []


def test_what_a_users_callback_notes_of_an_alert_stays(tmp_path):
    """Also of one that a failed evaluation raises."""
    alerts = Alerts()

    def breaks(module, n):
        return module.sample(n) * (torch.nan if module.current_epoch else 1)

    monitor = plain(sample_fn=breaks, on_alert=alerts.alerts.append, on_error="warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(tmp_path, monitor, alerts, module=Scheduled(), val=loader(digits(300, 400)), max_epochs=2)
    assert len(alerts.alerts) == 1
    assert "NaN" in alerts.alerts[0]


# a plain loop


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
@pytest.mark.parametrize("occasion", ["fit", "first evaluation", "later evaluation"])
def test_a_plain_loop_keeps_what_it_is_given(tmp_path, occasion, fails):
    torch.manual_seed(0)
    module = Generator()
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    scheduler = StepLR(optimizer, 1)
    monitor = small(tmp_path, on_error="warn", optimizers=[optimizer, scheduler])
    now = {"occasion": None}

    def sample(n):
        images = module.sample(n)
        if now["occasion"] == occasion:
            module.net[0].weight.data.zero_()
            optimizer.param_groups[0]["lr"] = 7.0
            scheduler.step()
            optimizer.state[module.net[0].weight]["exp_avg"].add_(1)
            if fails:
                raise RuntimeError("no samples today")
        return images

    module.sample(9).sum().backward()
    optimizer.step()
    before = copy.deepcopy([module.state_dict(), optimizer.state_dict(), scheduler.state_dict()])
    occasions = {
        "fit": lambda: monitor.fit(sample, module),
        "first evaluation": lambda: monitor.evaluate(sample, module, step=1, epoch=1),
        "later evaluation": lambda: monitor.evaluate(sample, module, step=2, epoch=2),
    }
    for name, run in occasions.items():
        now["occasion"] = name
        if name != occasion:
            run()
            continue
        refused = pytest.raises(RuntimeError, match="no samples today") if fails and name == "fit" else nullcontext()
        with pytest.warns(UserWarning, match=r"put back as it was: parameter net\.0\.weight"), refused:
            run()
    assert same([module.state_dict(), optimizer.state_dict(), scheduler.state_dict()], before)


class Average:
    """An average of a network, and when it was updated."""

    def __init__(self, network):
        self.network, self.updates = copy.deepcopy(network), 0

    def update(self):
        self.updates += 1
        self.network.net[0].weight.data.mul_(0.5)


HELD = {
    "torch's generator": (lambda module: torch.Generator(), lambda held: torch.rand(1, generator=held)),
    "NumPy's generator": (lambda module: np.random.default_rng(0), lambda held: held.random()),
    "Python's generator": (lambda module: random.Random(0), lambda held: held.random()),
    "average": (Average, Average.update),
    "network": (lambda module: Generator(), lambda held: held.net[0].weight.data.zero_()),
    "optimizer": (
        lambda module: torch.optim.SGD(module.parameters(), 1.0),
        lambda held: held.param_groups[0].update(lr=7.0),
    ),
    "list": (lambda module: [], lambda held: held.append(1)),
}


def state_of(held):
    """Return all that can move of something, as text."""
    if isinstance(held, torch.Generator):
        return held.get_state().tolist()
    if isinstance(held, np.random.Generator):
        return held.bit_generator.state
    if isinstance(held, random.Random):
        return held.getstate()
    if isinstance(held, Average):
        return held.updates, repr(held.network.state_dict())
    return repr(held if isinstance(held, list) else held.state_dict())


@pytest.mark.parametrize("name", HELD)
def test_what_the_sample_function_of_a_plain_loop_holds_is_put_back_and_named(tmp_path, name):
    torch.manual_seed(0)
    make, move = HELD[name]
    module = Generator()
    held = make(module)
    before = state_of(held)

    def sample(n):
        move(held)
        return module.sample(n)

    monitor = small(tmp_path)
    for run in (lambda: monitor.fit(sample, module), lambda: monitor.evaluate(sample, module, step=1, epoch=1)):
        with pytest.warns(UserWarning, match=r"put back as it was: `sample`\.held"):
            run()
        assert state_of(held) == before


def test_what_has_no_state_is_no_optimizer(tmp_path):
    with pytest.raises(TypeError, match=r"Expected `optimizers` as optimizers and learning-rate.*got Linear|float"):
        small(tmp_path, optimizers=[0.1])


def test_a_change_that_cannot_be_put_back_names_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("genmonitor.training_state.proof._free_memory", lambda: 0)
    with pytest.warns(UserWarning, match="cannot be put back: parameter net.0.weight.*Start again: there is no check"):
        fit(tmp_path, plain(sample_fn=Moves([swap_in], "later evaluation")), module=Scheduled(), max_epochs=2)


# data


class Counting(LightningDataModule):
    """Counts what it is asked for, and seeds by it."""

    def __init__(self):
        super().__init__()
        self.calls = {"train": 0, "val": 0, "setup": 0}
        self.number, self.val = 0, None

    def setup(self, stage):
        self.calls["setup"] += 1

    def _loader(self, name, images):
        self.calls[name] += 1
        self.number += 1
        return DataLoader(images + self.number / 1000, 100, shuffle=name == "train")

    def train_dataloader(self):
        return self._loader("train", digits(0, 300))

    def val_dataloader(self):
        self.val = self._loader("val", digits(300, 400))
        return self.val


@pytest.mark.parametrize("every", [1, 2])
def test_a_datamodule_is_as_it_would_have_been(tmp_path, every):
    """Validated in every second epoch, its `val_dataloader` is first called by the monitor."""

    def trained(*monitors):
        draw(None)
        data, module, settings = Counting(), Learner(), {"check_val_every_n_epoch": every, "max_epochs": 2}
        runner = trainer(tmp_path, *monitors, num_sanity_val_steps=0, reload_dataloaders_every_n_epochs=1, **settings)
        runner.fit(module, datamodule=data)
        numbers = data.calls, data.number, module.state_dict(), runner.callback_metrics["val_loss"]
        return [*numbers, torch.rand(2)]

    def sample(module, n):
        module.trainer.datamodule.number += 7
        module.trainer.datamodule.calls["val"] += 7
        return module.sample(n)

    assert same(trained(plain(sample_fn=sample)), trained())


class Remembers(Dataset):
    """Flips an image at random the first time, and keeps it; counts what it is asked for."""

    def __init__(self):
        self.images, self.kept, self.count = digits(0, 300), {}, 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        self.count += 1
        if index not in self.kept:
            image = self.images[index]
            self.kept[index] = image.flip(-1) if torch.rand(()) < 0.5 else image
        return self.kept[index] + self.count / 1000


class Goes(IterableDataset):
    """A stream that goes on where it stopped."""

    def __init__(self):
        self.images, self.position = digits(0, 300), 0

    def __iter__(self):
        while self.position < 900:
            self.position += 1
            yield self.images[self.position % 300]


class Learner(Linear):
    def validation_step(self, batch, index):
        self.log("val_loss", batch.mean())


@pytest.mark.filterwarnings("ignore:.*(differs each time|has values in|real images are in|Your `IterableDataset`)")
@pytest.mark.filterwarnings("ignore:.*are identical to others, of the training")  # flipped alike by chance
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("data", [Remembers, Goes])
def test_data_with_a_state_train_as_without_a_monitor(tmp_path, data, workers):
    def trained(*monitors):
        draw(None)
        train = DataLoader(data(), 100, num_workers=workers)
        module = Learner()
        runner, _ = fit(tmp_path, *monitors, module=module, train=train, val=DataLoader(Remembers(), 50), max_epochs=2)
        return module.state_dict(), runner.callback_metrics["val_loss"], runner.global_step

    monitor = plain()
    assert same(trained(monitor), trained())
    assert monitor.history


def test_a_stream_that_holds_a_generator_is_refused(tmp_path):
    class Once(IterableDataset):
        def __init__(self):
            self.items = (x for x in digits(0, 300))

        def __iter__(self):
            yield from self.items

    with pytest.raises(ValueError, match=r"`the training data\.dataset\.items` is a generator, which cannot"):
        fit(tmp_path, plain(), train=DataLoader(Once(), 100))
