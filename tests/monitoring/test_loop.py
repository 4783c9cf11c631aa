# SPDX-License-Identifier: Apache-2.0
"""A monitor in a loop of the user's own: values are the callback's, training is untouched, the files are a run's."""

import copy
import functools
import itertools
import json
import operator
import random
import warnings
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from _helpers.loops import EVALUATORS, Generator, N, labelled, small, train, without_figures
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, measured
from _helpers.runs import manifests
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from genmonitor import LoopMonitor
from genmonitor.callbacks import GenerativeMonitor
from genmonitor.distributed import MissingProcessError, SingleProcess
from genmonitor.evaluation import RegionEvaluator, RegionSettings, Sampler
from genmonitor.monitoring import loop as module
from genmonitor.report.run import MonitorRun

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:.*(only \\d+ images of|only \\d+ real images|no single place)"),
    pytest.mark.filterwarnings("ignore:.*prompts have fewer"),
]


# values


class Learns(Linear):
    """Draws digits by class, and learns without random numbers."""

    def __init__(self):
        super().__init__(lr=1e-2)
        self.net = Generator()

    def sample(self, n):
        return self.net.sample(n)

    def sample_prompts(self, labels):
        return self.net.sample_prompts(labels)

    def training_step(self, batch, index):
        return self.net.net[0].weight.square().sum()


class Beside(Callback):
    """Calls a LoopMonitor when a monitor of the Trainer works: on the same weights, by no Trainer's help."""

    def __init__(self, loop):
        self.loop = loop

    def on_train_start(self, trainer, pl_module):
        self.loop.fit(pl_module.net)

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.loop.evaluate(pl_module.net, step=3 * trainer.current_epoch + 2, epoch=trainer.current_epoch)


@pytest.mark.parametrize("kind", EVALUATORS)
def test_values_are_those_of_the_callback_to_the_last_bit(tmp_path, kind):
    evaluator = without_figures(EVALUATORS[kind]())
    how = {"batch_size": 25, "seed": 4}
    monitor = GenerativeMonitor(evaluator, Sampler(N, evaluator.prompts, **how), on_error="raise")
    loop = small(tmp_path / "loop", kind, **how)
    data = {"train": DataLoader(labelled(0, 300), 100), "val": DataLoader(labelled(300, 400), 100)}
    fit(tmp_path / "trainer", monitor, Beside(loop), module=Learns(), max_epochs=3, **data)
    for found, expected in zip(measured(loop), measured(monitor), strict=True):
        del expected["images_seen"]
        assert found == expected
    assert len({json.dumps(record) for record in measured(loop)}) == 3


def test_values_of_given_images_are_those_of_the_callback(tmp_path):
    evaluator = without_figures(EVALUATORS["regions"]())
    monitor = GenerativeMonitor(evaluator, Sampler(N), real_images=digits(0, 500), on_error="raise")
    loop = small(tmp_path / "loop", real_images=digits(0, 500), validation_images=None)
    fit(tmp_path / "trainer", monitor, Beside(loop), module=Learns(), val=loader(digits(0, 9)), max_epochs=1)
    assert measured(loop)[0].items() <= measured(monitor)[0].items()


def test_a_function_draws_what_a_module_and_its_method_draw(tmp_path):
    module = Generator()
    ways = {"function": (lambda n: module.sample(n), module), "method": (module.sample,), "module": (module,)}
    ways["networks"] = (lambda n: module.sample(n), [module.net, nn.Linear(2, 2)])
    found = [small(tmp_path / name).evaluate(*way, step=0, epoch=0) for name, way in ways.items()]
    values = [{k: v for k, v in x.values.items() if not k.endswith("seconds")} for x in found]
    assert values[1:] == values[:1] * 3


# the training


def rude(module):
    """Return a function that does everything a sampler should not."""

    def sample(n):
        module.train()
        torch.manual_seed(8)
        np.random.seed(8)  # noqa: NPY002
        random.seed(8)
        with torch.enable_grad():
            images = module.sample(n)
            images.square().sum().backward()
        return images.detach()

    return sample


@pytest.mark.filterwarnings("ignore:LoopMonitor. samples depend on the batch")
@pytest.mark.parametrize("sampled", ["politely", "rudely"])
def test_training_is_what_it_would_be_without(tmp_path, sampled):
    expected = train(Generator())
    monitor = small(tmp_path)

    def after_epoch(module, step, epoch):
        sample = rude(module) if sampled == "rudely" else module.sample
        monitor.evaluate(sample, module, step=step, epoch=epoch)

    found = train(Generator(), after_epoch=after_epoch)
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    assert len(monitor.history) == 2


@pytest.mark.filterwarnings("ignore:LoopMonitor. samples depend on the batch")
def test_sampling_that_changes_a_parameter_is_said(tmp_path):
    module, monitor = Generator(), small(tmp_path)

    def sample(n):
        with torch.no_grad():
            module.net[0].bias.add_(1)
        return module.sample(n)

    with pytest.warns(UserWarning, match="changed the training, which is put back as it was: parameter net.0.bias"):
        monitor.evaluate(sample, module, step=0, epoch=0)


# failures


@pytest.mark.filterwarnings("ignore:LoopMonitor. 3 evaluations in a row")
def test_failures_are_skipped_until_it_is_switched_off(tmp_path):
    module, monitor, drawn = Generator(), small(tmp_path, on_error="warn"), SimpleQueue()  # a list would be put back
    monitor.fit(module)

    def broken(n):
        drawn.put(n)
        raise RuntimeError("no samples today")

    for epoch in range(4):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert monitor.evaluate(broken, module, step=epoch, epoch=epoch) is None
        assert any("no samples today" in str(warning.message) for warning in said) == (epoch < 3)
    assert [drawn.get() for _ in range(drawn.qsize())] == [N] * 3
    assert monitor.history == []


REFUSED = {
    "no real images": (lambda m: LoopMonitor(folder="x", real_images=None), ValueError, "`real_images`, a Dataset"),
    "another sampler": (
        lambda m: LoopMonitor(sampler=Sampler(7), folder="x", real_images=3),
        ValueError,
        "as many samples as the evaluator needs",
    ),
    "another logger": (lambda m: small("x", loggers=[3]), TypeError, "`loggers` to hold a .*SummaryWriter.*got int"),
    "no module": (lambda m: m.evaluate(lambda n: 0, step=0, epoch=0), ValueError, "`module`, the network or networks"),
    "no function": (lambda m: m.evaluate(3, step=0, epoch=0), TypeError, "`sample` to be a function from n"),
    "step": (lambda m: m.evaluate(Generator(), step=-1, epoch=0), ValueError, "`step` to be a whole number >= 0"),
    "epoch": (
        lambda m: m.evaluate(Generator(), step=0, epoch=None),
        ValueError,
        "`epoch` to be a finite number, but got None",
    ),
    "no way to draw": (lambda m: m.evaluate(nn.Linear(2, 2), step=0, epoch=0), ValueError, r"no method `sample\(n\)`"),
    "no argument": (lambda m: m.fit(lambda: 0, nn.Linear(2, 2)), ValueError, r"`sample_fn\(n\)` to draw images, but"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(tmp_path, name):
    call, kind, said = REFUSED[name]
    with pytest.raises(kind, match=said):
        call(small(tmp_path, on_error="warn"))
    assert not (tmp_path / "genmonitor").exists()


def test_a_step_back_is_refused(tmp_path):
    monitor = small(tmp_path)
    monitor.evaluate(Generator(), step=5, epoch=1)
    with pytest.raises(ValueError, match="`step` to be at least that of the previous evaluation, 5, but got 4"):
        monitor.evaluate(Generator(), step=4, epoch=2)


# files and state


def test_a_quiet_one_prints_nothing(tmp_path, capsys):
    small(tmp_path, verbose=False).evaluate(Generator(), step=0, epoch=0)
    assert capsys.readouterr().out == ""


def test_folder_and_summary_are_those_of_a_run(tmp_path, capsys):
    monitor = LoopMonitor(
        RegionEvaluator(RegionSettings(3, n_samples=N, n_cluster_images=200)),
        folder=tmp_path,
        real_images=labelled(0, 300),
        validation_images=labelled(300, 400),
    )
    train(Generator(), after_epoch=lambda module, step, epoch: monitor.evaluate(module, step=step, epoch=epoch))
    names = {path.name for path in (tmp_path / "genmonitor").iterdir()}
    assert {"report.html", "cms_run.json", "cms_partition.npz"} <= names
    assert "cms_samples_epoch_0000_step_3.png" in names
    _, manifest = manifests(tmp_path / "genmonitor")
    expected = {"monitor": "LoopMonitor", "seed": 0, "n_samples": N, "processes": 1, "device": "cpu"}
    assert manifest.items() >= expected.items()
    for step in {record["step"] for record in monitor.history}:
        (tmp_path / f"mine-step={step:g}.ckpt").touch()
    assert ", mine-step=" in monitor.summary()
    asked = [line.split()[0] for line in monitor.summary().split("\n\n")[-2].splitlines()]
    assert asked == ["Better?", "Where", "What", "Sure?", "To", "Keep"]
    assert monitor.summary().endswith(f"Report: {tmp_path / 'genmonitor' / 'report.html'}")
    assert "epoch  1 " in capsys.readouterr().out
    monitor.show()
    assert capsys.readouterr().out == f"{monitor.summary()}\n"


def test_streams_serve_as_real_images(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([(image,) for image in digits(0, 300)])

    monitor = small(tmp_path, real_images=Stream(), validation_images=None)
    with pytest.warns(UserWarning, match="`real_images` can only be streamed, so its first 300 images serve"):
        monitor.evaluate(Generator(), step=0, epoch=0)


@pytest.mark.parametrize("kind", ["regions", "disagreement with the start"])
def test_a_resumed_loop_goes_on_as_if_it_had_never_stopped(tmp_path, kind):
    def evaluating(monitor):
        return lambda module, step, epoch: monitor.evaluate(module, step=step, epoch=epoch)

    whole = small(tmp_path / "whole", kind)
    train(Generator(), 3, evaluating(whole))
    first = small(tmp_path / "cut", kind)
    saved = {}

    def save(module, step, epoch):
        first.evaluate(module, step=step, epoch=epoch)
        if epoch == 1:
            torch.save(first.state_dict(), tmp_path / "state.pt")
            saved.update(module=module, step=step)

    train(Generator(), 2, save)
    resumed = small(tmp_path / "cut", kind)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    module = Generator()
    train(module, 3, lambda m, step, epoch: epoch == 2 and resumed.evaluate(m, step=step, epoch=epoch))
    assert measured(resumed) == measured(whole)
    (path,) = (tmp_path / "cut").glob("*/*_run.json")
    assert MonitorRun.read(path).records == resumed.history


@pytest.mark.filterwarnings("ignore:LoopMonitor. resumed with n_samples changed")
def test_state_of_other_settings_starts_anew(tmp_path):
    first = small(tmp_path)
    first.evaluate(Generator(), step=0, epoch=0)
    other = LoopMonitor(
        without_figures(RegionEvaluator(RegionSettings(3, n_samples=40, n_cluster_images=200))),
        folder=tmp_path,
        real_images=labelled(0, 300),
    )
    other.load_state_dict(first.state_dict())
    assert other.history == []


def places(state, path=()):
    """Yield the path of each entry of a state, of lists the first one's."""
    for name, value in state.items() if isinstance(state, dict) else enumerate(state[:1]):
        yield *path, name
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, name))


def edited(state, path, drop):
    """Return a state without the entry of a path, or with a number in its place."""
    out = copy.deepcopy(state)
    inside = functools.reduce(operator.getitem, path[:-1], out)
    if drop:
        del inside[path[-1]]
    else:
        inside[path[-1]] = 3
    return out


@pytest.mark.filterwarnings("ignore:LoopMonitor. resumed with")
@pytest.mark.parametrize("kind", EVALUATORS)
def test_a_state_that_was_edited_is_refused_by_name(tmp_path, kind):
    monitor = small(tmp_path, kind)
    monitor.evaluate(Generator(), step=0, epoch=0)
    state, said = monitor.state_dict(), []
    for path, drop in itertools.product(places(state), (True, False)):
        try:
            small(tmp_path, kind).load_state_dict(edited(state, path, drop))
        except ValueError as error:
            said.append(str(error))
    assert len(said) > 5
    assert all(line.startswith("Expected the state of LoopMonitor[prefix=") for line in said)


@pytest.mark.parametrize("when", [{"step": 1}, {"epoch": float("nan")}, {"epoch": float("inf")}, {"step": 2.5}])
def test_an_impossible_moment_is_skipped_in_mid_run(tmp_path, when):
    module, monitor = Generator(), small(tmp_path, on_error="warn")
    monitor.evaluate(module, step=np.int64(5), epoch=0)
    with pytest.warns(UserWarning, match="an evaluation is skipped. Expected `(step|epoch)`"):
        assert monitor.evaluate(module, **{"step": 6, "epoch": 1.0, **when}) is None
    monitor.evaluate(module, step=torch.tensor(7), epoch=1)
    assert [record["step"] for record in monitor.history] == [5, 7]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"real_images": [["no", "images"]]}, "real_images"),
        ({"validation_images": [{"a": 1}] * 9}, "validation_images"),
    ],
)
def test_data_without_images_are_refused_at_once(tmp_path, data, said):
    with pytest.raises((TypeError, ValueError), match=said):
        small(tmp_path, **data)


def test_a_folder_stays_where_it_is_when_the_working_directory_changes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    module, monitor = Generator(), small("run")
    monitor.evaluate(module, step=0, epoch=0)
    monkeypatch.chdir("elsewhere")
    monitor.evaluate(module, step=1, epoch=1)
    assert not (tmp_path / "elsewhere" / "run").exists()
    assert len(manifests(tmp_path / "run" / "genmonitor")) == 2


@pytest.mark.filterwarnings("ignore:.*(no samples today|LoopMonitor)")
def test_is_best_after_each_evaluation(tmp_path):
    def fail(n):
        raise RuntimeError("no samples today")

    monitor, found, module = small(tmp_path, "regions", on_error="warn"), [], Generator()
    for step, sample in enumerate([module.sample, fail, module.sample]):
        monitor.evaluate(sample, module, step=step, epoch=step)
        found.append(monitor.is_best)
    assert found[:2] == [True, False]
    first, last = (record["error_ratio_image"] for record in monitor.history)
    assert found[2] == (last < first)


def test_a_later_call_that_another_process_does_not_make_is_skipped(tmp_path, monkeypatch):
    def nobody_came(call, key, timeout, step):
        raise MissingProcessError(f"{call}() must be called by every process; 1 of 2 came within {timeout:g} s.")

    several = SingleProcess()
    several.world_size = 2
    monitor, net = small(tmp_path, "regions", on_error="warn"), Generator()
    monkeypatch.setattr(module, "wait_for_every_process", nobody_came)
    monkeypatch.setattr(module, "current_processes", lambda: several)
    with pytest.raises(MissingProcessError, match="1 of 2 came within 60 s"):  # before any time was spent
        monitor.evaluate(net, step=0, epoch=0)
    monitor._fitted = monitor.is_best = True
    with pytest.warns(UserWarning, match=r"an evaluation is skipped. evaluate\(\) must be called by every process"):
        assert monitor.evaluate(net, step=0, epoch=0) is None
    assert not monitor.is_best
