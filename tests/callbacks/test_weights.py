# SPDX-License-Identifier: Apache-2.0

import copy
import signal
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Deep, Kept, Light, digits, ema_averaging, fit, loader
from _helpers.runs import manifests
from lightning import LightningModule
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import SIGTERMException

from genmonitor._stop import SIGNALS

pytestmark = LIGHTNING_SAYS

# A weight that grows by one in each of three steps an epoch, and its moving average with a decay of one half.
RAW = [3.0, 6.0]
AVERAGED = [2.25, 5.03125]


class Counter(LightningModule):
    """Has one weight, the number of steps taken, and remembers which weight it trained and sampled with."""

    def __init__(self):
        super().__init__()
        self.level = torch.nn.Parameter(torch.tensor(0.0))
        self.register_buffer("calls", torch.tensor(0.0))
        self.trained, self.sampled = [], Kept()

    def sample(self, n):
        if self.trained:
            self.sampled.append(self.level.item())
        self.calls += 1  # as BatchNorm's statistics would move
        return torch.randn(n, 1, 8, 8).clamp(-1, 1)

    def training_step(self, batch, index):
        self.trained.append(self.level.item())
        return -self.level.clone()

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def run(folder, weights, monitor_first, validate, average=True, precision="32-true", **settings):
    monitor = Light(weights=weights, **settings)
    averaging = [ema_averaging(decay=0.5)] if average else []
    callbacks = [monitor, *averaging] if monitor_first else [*averaging, monitor]
    val = loader(digits(300, 400)) if validate else None
    _, module = fit(folder, *callbacks, module=Counter(), val=val, precision=precision)
    return module, monitor


@pytest.mark.filterwarnings("ignore:Light. there is no validation data")
@pytest.mark.parametrize(
    ("weights", "precision", "monitor_first", "validate"),
    [
        *(("auto", "32-true", first, validate) for first in (True, False) for validate in (True, False)),
        ("averaged", "32-true", True, False),
        ("raw", "32-true", True, True),
        ("raw", "32-true", False, False),
        ("auto", "bf16-true", False, True),  # which holds these weights, too
        ("raw", "bf16-true", True, False),
    ],
)
def test_chosen_weights_are_evaluated_in_either_order(tmp_path, weights, precision, monitor_first, validate):
    used = "raw" if weights == "raw" else "averaged"
    module, _ = run(tmp_path, weights, monitor_first, validate, precision=precision)
    assert module.sampled == (AVERAGED if used == "averaged" else RAW)
    assert module.trained == [0, 1, 2, 3, 4, 5]
    assert module.level.item() == AVERAGED[-1]  # WeightAveraging leaves the averaged weights in the module
    assert float(module.calls) == 0
    assert [manifest["weights"] for manifest in manifests(tmp_path / "genmonitor")] == [used, used]


@pytest.mark.filterwarnings("ignore:Light. (there is no validation data|the evaluation of epoch)")
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_during_an_evaluation_is_handled_with_the_weights_that_train(tmp_path, name):
    """As Slurm's SIGUSR1 in Lightning, whose handler saves a checkpoint to go on from."""
    number, module, saved = getattr(signal, name), Counter(), []

    def sample(module, n):
        if module.trained:
            signal.raise_signal(number)
        return Counter.sample(module, n)

    before = signal.signal(number, lambda *_: saved.append((module.level.item(), module.training)))
    try:
        with suppress(SIGTERMException):  # at which Lightning ends the training
            fit(tmp_path, Light(sample_fn=sample), ema_averaging(decay=0.5), module=module)
    finally:
        signal.signal(number, before)
    assert saved == [(weight, True) for weight in (RAW[:1] if name == "SIGTERM" else RAW)]


@pytest.mark.filterwarnings("ignore:Light. (there is no validation data|EMAWeightAveraging has averaged no)")
@pytest.mark.parametrize("monitor_first", [True, False])
def test_evaluations_between_steps_take_the_average_so_far(tmp_path, monitor_first):
    module, _ = run(tmp_path, "auto", monitor_first, False, every_n_train_steps=2)
    averages = [1.0, 1.0, 1.5, 2.25, 3.125, 4.0625, 5.03125]  # after 0, 1, ... steps: before any, the raw weights
    checked = (1, 2, 4, 6)
    assert module.sampled == [averages[step - monitor_first] for step in checked]
    assert module.trained == [0, 1, 2, 3, 4, 5]


@pytest.mark.filterwarnings("ignore:Light. there is no validation data")
@pytest.mark.parametrize(
    ("weights", "monitor_first", "validate"),
    [("auto", True, True), ("auto", False, False), ("averaged", True, False), ("averaged", False, True)],
)
def test_raw_weights_are_evaluated_until_an_average_begins(tmp_path, weights, monitor_first, validate):
    monitor, averaging = Light(weights=weights), ema_averaging(decay=0.5)
    averaging.update_starting_at_step = 4
    callbacks = [monitor, averaging] if monitor_first else [averaging, monitor]
    val = loader(digits(300, 400)) if validate else None
    with pytest.warns(UserWarning, match="EMAWeightAveraging has averaged no weights yet, so the raw ones") as said:
        _, module = fit(tmp_path, *callbacks, module=Counter(), val=val, max_epochs=3)
    assert list(module.sampled)[:2] == [3.0, 5.5]  # raw, then the average of 5 and 6
    assert sum("has averaged no weights" in str(x.message) for x in said) == 1


def test_two_averages_are_refused_by_name(tmp_path):
    one, module = ema_averaging(decay=0.5), Counter()
    averages = one, type(one).__mro__[1]()
    with pytest.raises(ValueError, match=r"has EMAWeightAveraging and WeightAveraging\. Give weights='raw'"):
        fit(tmp_path, Light(), *averages, module=module)
    assert module.trained == []


class OwnAverage(Callback):
    """Averages weights as users write it, held in one way or another."""

    def __init__(self, hold):
        self.hold = hold

    def on_fit_start(self, trainer, module):
        self.module = module  # a reference is no average
        self.held = self.hold(module)

    def weight(self):
        held = getattr(self.held, "shadow_params", self.held)
        held = held.state_dict() if isinstance(held, torch.nn.Module) else held
        return next(x for name, x in held.items() if name.endswith("level")) if isinstance(held, dict) else held[0]

    def on_train_batch_end(self, trainer, module, *_):
        self.weight().data.lerp_(module.level.data, 0.5)


class Swapped(OwnAverage):
    """Is validated."""

    def exchange(self, trainer, module):
        own = module.level.detach().clone()
        module.level.data.copy_(self.weight())
        self.weight().data.copy_(own)

    on_validation_start = on_validation_end = exchange


class SwappedTooEarly(Swapped):
    """Is validated, but swapped out before a monitor that comes later evaluates."""

    on_validation_start = on_validation_end = Callback.on_validation_end
    on_validation_epoch_start = on_validation_epoch_end = Swapped.exchange


HOLDS = {
    "copy": copy.deepcopy,
    "AveragedModel": torch.optim.swa_utils.AveragedModel,
    "parameters": lambda module: {name: x.detach().clone() for name, x in module.named_parameters()},
    "state_dict": lambda module: {name: x.clone() for name, x in module.state_dict().items()},
    "list": lambda module: [x.detach().clone() for x in module.parameters()],
    "shadow": lambda module: SimpleNamespace(shadow_params=[x.detach().clone() for x in module.parameters()]),
}


@pytest.mark.parametrize(
    ("hold", "weights", "kind"),
    [
        *((hold, "auto", kind) for hold in HOLDS for kind in (OwnAverage, Swapped)),
        *((hold, "auto", SwappedTooEarly) for hold in ("list", "state_dict")),
        ("list", "raw", OwnAverage),
    ],
)
def test_an_average_of_the_users_own_callback_is_evaluated_or_named(tmp_path, hold, weights, kind):
    monitor, average = Light(weights=weights, verbose=False), kind(HOLDS[hold])
    silent = kind is Swapped or weights == "raw"
    expected = nullcontext() if silent else pytest.warns(UserWarning, match=f"{kind.__name__}.held holds weights like")
    with expected:
        _, module = fit(tmp_path, average, monitor, module=Counter(), val=loader(digits(300, 400)))
    assert list(module.sampled) == ([2.125, 5.015625] if kind is Swapped else RAW)


def test_an_average_that_a_later_callback_swaps_out_is_evaluated(tmp_path):
    average = SwappedTooEarly(HOLDS["list"])
    _, module = fit(tmp_path, Light(verbose=False), average, module=Counter(), val=loader(digits(300, 400)))
    assert list(module.sampled) == [2.125, 5.015625]


@pytest.mark.parametrize("weights", ["auto", "raw"])
def test_weights_without_averaging_are_the_raw_ones(tmp_path, weights):
    module, _ = run(tmp_path, weights, True, True, average=False)
    assert module.sampled == RAW


def test_averaged_weights_that_nothing_averages_are_refused(tmp_path):
    monitor, module = Light(weights="averaged"), Counter()
    with pytest.raises(ValueError, match=r"`weights`='averaged'.*Add one, or use weights='auto'"):
        fit(tmp_path, monitor, module=module, val=loader(digits(300, 400)))
    assert module.trained == []


def test_weights_go_back_when_an_evaluation_raises(tmp_path):
    class Failing(Counter):
        def sample(self, n):
            if self.trained:
                raise RuntimeError("no samples today")
            return super().sample(n)

    module = Failing()
    monitor = Light(weights="averaged", on_error="warn")
    with pytest.warns(UserWarning, match="no samples today"):
        fit(tmp_path, monitor, ema_averaging(decay=0.5), module=module, val=loader(digits(300, 400)), max_epochs=1)
    assert module.trained == [0, 1, 2]
    assert module.level.item() == AVERAGED[0]


class Average(Callback):
    """Keeps the averaged weights after each epoch."""

    def __init__(self, averaging):
        self.averaging, self.seen = averaging, []

    def on_train_epoch_end(self, trainer, pl_module):
        self.seen += [x.clone() for x in self.averaging._average_model.module.state_dict().values()]


@pytest.mark.filterwarnings("ignore:Light. (there is no validation data|samples depend)")
@pytest.mark.parametrize(
    ("precision", "weights", "monitor_first", "validate"),
    [
        ("bf16-true", "auto", True, True),
        ("bf16-true", "raw", True, False),
        ("bf16-true", "raw", False, True),
        ("64-true", "auto", True, False),
        ("64-true", "raw", False, True),
    ],
)
def test_averaging_in_any_precision_is_what_it_is_without(tmp_path, precision, weights, monitor_first, validate):
    outcomes = []
    for monitors in ([], [Light(weights=weights)]):
        torch.manual_seed(1)
        averaging = ema_averaging(decay=0.9)
        average = Average(averaging)
        callbacks = [*monitors, averaging, average] if monitor_first else [averaging, *monitors, average]
        val = loader(digits(300, 400)) if validate else None
        _, module = fit(tmp_path, *callbacks, module=Deep(), val=val, precision=precision)
        outcomes.append([*module.state_dict().values(), *average.seen])
    assert len(monitors[0].history) == 2
    assert not any("changed" in note["text"] for note in monitors[0].publisher.notes.items)
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


def test_a_sampler_that_writes_into_the_average_is_named(tmp_path):
    averaging = ema_averaging(decay=0.5)

    class Meddling(Counter):
        def sample(self, n):
            averaging._average_model.module.level.data += 1
            return super().sample(n)

    with pytest.warns(UserWarning, match="changed the training, which is put back as it was: averaged parameter level"):
        fit(tmp_path, averaging, Light(weights="raw"), module=Meddling(), val=loader(digits(300, 400)), max_epochs=1)
