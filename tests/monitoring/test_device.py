# SPDX-License-Identifier: Apache-2.0
"""Evaluations on another device than the one that trains, and training on one without float64."""

import copy

import pytest
import torch
from _helpers.evaluations import ScriptedCollective
from _helpers.loops import EVALUATORS, Generator, small
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, measured, plain
from _helpers.no_float64 import DEVICE, Device, OnDevice
from torch import nn

from genmonitor.evaluation import RegionEvaluator, RegionSettings, Samples
from genmonitor.images.sampler import weights_fingerprint
from genmonitor.monitoring.options import check_apart, evaluation_device, moved
from genmonitor.training_state.rng import preserve_rng, seed_everything

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:.*(only \\d+ images of|only \\d+ real images|no single place)"),
    pytest.mark.filterwarnings("ignore:.*prompts have fewer"),
]
CPU = torch.device("cpu")


class OnMPS(nn.Module):
    """The generator of the tests with its parameters on the device."""

    def __init__(self):
        super().__init__()
        self.inside = Generator()
        for part in self.inside.modules():
            for name, x in list(part.named_parameters(recurse=False)):
                setattr(part, name, nn.Parameter(OnDevice(x.detach()), requires_grad=False))
            for name, x in list(part.named_buffers(recurse=False)):
                part.register_buffer(name, OnDevice(x))

    def sample(self, n):
        return self.inside(torch.randn(n, 4, device=DEVICE), torch.randint(5, (n,), device=DEVICE))

    def sample_prompts(self, labels):
        return self.inside(torch.randn(len(labels), 4, device=DEVICE), labels)


def test_the_device_of_the_tests_has_no_float64():
    with Device():
        x = torch.ones(3, device=DEVICE)
        assert x.device == DEVICE
        assert (x + 1).sum().item() == 6
        assert x.cpu().double().sum() == 3
        with pytest.raises(TypeError, match="doesn't support float64"):
            x.double()
        with pytest.raises(TypeError, match="doesn't support float64"):
            x.sum(dtype=torch.float64)
        with pytest.raises(RuntimeError, match="on the same device"):
            x + torch.ones(3)


@pytest.mark.parametrize("kind", EVALUATORS)
def test_a_model_on_a_device_without_float64_is_evaluated_on_the_cpu(tmp_path, kind):
    expected = small(tmp_path / "cpu", kind)
    expected.evaluate(Generator(), step=0, epoch=0)
    found = small(tmp_path / "mps", kind)
    with Device():
        found.evaluate(OnMPS(), step=0, epoch=0)
    (record,), (reference,) = measured(found), measured(expected)
    assert record == pytest.approx(reference, rel=1e-6)


def test_weights_on_it_have_the_fingerprint_of_those_on_the_cpu():
    with Device():
        assert weights_fingerprint(OnMPS()) == weights_fingerprint(Generator())


def test_random_states_of_mps_come_back(monkeypatch):
    states = [torch.zeros(3)]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states[-1])
    monkeypatch.setattr(torch.mps, "set_rng_state", states.append)
    monkeypatch.setattr(torch.mps, "manual_seed", lambda seed: states.append(torch.full((3,), float(seed))))
    with preserve_rng():
        seed_everything(7)
        assert states[-1].tolist() == [7, 7, 7]
    assert states[-1].tolist() == [0, 0, 0]


# the device that was asked for


def test_evaluations_move_to_the_device_asked_for(tmp_path):
    monitor, seen = small(tmp_path, evaluate_on="cpu"), []
    update = monitor.evaluator.update

    def look(samples):
        seen.append((samples.images.device, samples.indices.device))
        update(samples)

    monitor.evaluator.update = look
    with Device():
        monitor.evaluate(OnMPS(), step=0, epoch=0)
    assert seen == [(CPU, CPU)]
    assert monitor.manifest()["evaluate_on"] == "cpu"


def test_a_trainer_evaluates_where_it_is_told(tmp_path):
    expected, found = plain(), plain(evaluate_on="cpu")
    for monitor in (expected, found):
        torch.manual_seed(0)
        fit(tmp_path, monitor, module=Linear(), val=loader(digits(300, 400)))
    assert measured(found) == measured(expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", EVALUATORS)
@pytest.mark.parametrize(("trains", "evaluates"), [("cuda", "cpu"), ("cuda", None)])
def test_values_are_those_of_the_training_device(tmp_path, kind, trains, evaluates):
    class Moved(Generator):
        def sample(self, n):
            return self(torch.randn(n, 4, device=trains), torch.randint(5, (n,), device=trains))

        def sample_prompts(self, labels):
            return self(torch.randn(len(labels), 4, device=trains), labels)

    expected = small(tmp_path / "cpu", kind)
    expected.evaluate(Generator(), step=0, epoch=0)
    monitor = small(tmp_path / "there", kind, evaluate_on=evaluates)
    monitor.evaluate(Moved().to(trains), step=0, epoch=0)
    (record,), (reference,) = measured(monitor), measured(expected)
    assert record == pytest.approx(reference, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("given", ["gpu:1", 1.5, "mps", "cuda:1", torch.device("cuda")])
def test_another_device_than_the_cpu_is_refused(tmp_path, given):
    with pytest.raises(ValueError, match=f"`evaluate_on` to be 'cpu', where .* or None, but got '{given}'"):
        small(tmp_path, evaluate_on=given)


def test_several_processes_need_a_way_to_each_other_from_the_cpu(monkeypatch):
    gpu, several = torch.device("cuda", 0), ScriptedCollective()
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: "cpu:gloo,cuda:nccl")
    assert evaluation_device(CPU, gpu, several) == CPU
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: "cuda:nccl")
    with pytest.raises(ValueError, match=r"set up for cuda alone.* 'cpu:gloo,cuda:nccl'"):
        evaluation_device(CPU, gpu, several)


def test_a_part_of_the_trained_module_is_not_moved_away():
    module, elsewhere = Linear(), torch.device("meta")
    shares = RegionEvaluator(RegionSettings(2, n_samples=20), site_encoder=nn.Sequential(module.net))
    with pytest.raises(ValueError, match="`site_encoder` to be apart from the trained module, to be moved to meta"):
        check_apart(shares, module, elsewhere, CPU)
    check_apart(shares, module, CPU, CPU)
    check_apart(shares, copy.deepcopy(module), elsewhere, CPU)


def test_samples_keep_their_indices_where_they_are_moved():
    found = moved(Samples(digits(0, 3), torch.arange(3)), torch.device("meta"))
    assert (found.images.device.type, found.indices.device.type) == ("meta", "meta")
    assert found.images.shape == (3, 1, 8, 8)
