# SPDX-License-Identifier: Apache-2.0
"""What every metric owes torchmetrics, checked on all of them."""

import copy
import pickle
from typing import Any

import pytest
import torch
from _helpers.citizens import CITIZENS, HALVES, REAL_AND_FAKE, feed
from _helpers.meta_tensor import MetaTensor
from matplotlib import pyplot
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import MetricCollection

import genmonitor
from genmonitor import CosineMeanSimilarity, GaussianKernel, MaximumMeanDiscrepancy, PixelCKA, PromptSplit, W1KPScore
from genmonitor.metrics._spectral import SpectralMetric

every = pytest.mark.parametrize("name", CITIZENS)


def same(found: Any, expected: Any, error: float = 1e-6) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=error)


def differ(found: Any, other: Any) -> bool:
    pairs = [(found[name], other[name]) for name in found] if isinstance(found, dict) else [(found, other)]
    return any(not torch.equal(a, b) for a, b in pairs)


def test_every_metric_is_a_citizen():
    assert {citizen.make.__name__ for citizen in CITIZENS.values()} == set(genmonitor.metrics.__all__)


@every
@pytest.mark.parametrize("batch", [1, 7])
def test_batches_change_nothing(name, batch):
    citizen = CITIZENS[name]
    same(citizen.fed(citizen.calls(batch)).compute(), citizen.fed().compute())


@every
def test_the_order_changes_nothing_where_it_should_not(name):
    citizen = CITIZENS[name]
    backwards = [(tuple(x.flip(0) for x in tensors), how) for tensors, how in reversed(citizen.calls())]
    found, expected = citizen.fed(backwards).compute(), citizen.fed().compute()
    if citizen.ordered:
        assert differ(found, expected)
    else:
        same(found, expected)


class Waits(TorchDispatchMode):
    """Counts what makes a processor wait until a device has computed: its values decide what is done next."""

    OPERATORS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in self.OPERATORS
        return func(*args, **(kwargs or {}))


@every
def test_a_batch_waits_for_the_device_as_often_whatever_its_size(name):
    citizen, counts = CITIZENS[name], []
    for size in (4, 10):
        *before, (tensors, how) = citizen.calls(size)
        metric = citizen.fed(before)
        with Waits() as waits:
            metric.update(*(x.repeat(size, *[1] * (x.ndim - 1)) for x in tensors), **how)
        counts.append(waits.count)
    streams = isinstance(metric, SpectralMetric)  # these read gamma and the number of features as well
    assert counts[0] == counts[1] <= (6 if streams else 1) * len(tensors)


@every
def test_copies_go_on_alike(name):
    citizen = CITIZENS[name]
    first, *rest = citizen.calls(12)
    metric = citizen.fed([first])
    copies = [metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))]
    expected = feed(metric, rest).compute()
    for one in copies:
        same(feed(one, rest).compute(), expected, 0)


@every
def test_a_saved_state_is_taken_up(name):
    citizen = CITIZENS[name]
    half, rest = citizen.calls(8)[:3], citizen.calls(8)[3:]
    metric = citizen.fed(half)
    metric.persistent(True)
    saved = copy.deepcopy(metric.state_dict())
    resumed = citizen.make(**citizen.arguments)
    resumed.load_state_dict(saved)
    same(feed(resumed, rest).compute(), feed(metric, rest).compute(), 0)


@every
def test_a_state_is_loaded_with_weights_only(name, tmp_path):
    metric = CITIZENS[name].fed()
    metric.compute()
    metric.persistent(True)
    torch.save(metric.state_dict(), tmp_path / "state.pt")
    assert set(torch.load(tmp_path / "state.pt", weights_only=True)) == set(metric.state_dict())


@every
def test_gamma_is_saved_without_asking(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    metric.compute()
    again = citizen.make(**citizen.arguments)
    again.load_state_dict(metric.state_dict())
    gammas = {key: float(value) for key, value in metric.named_buffers() if "gamma" in key}
    assert {key: float(value) for key, value in again.named_buffers()} == pytest.approx(gammas, nan_ok=True, abs=0)


@every
def test_subclasses_of_tensor_are_taken_as_tensors(name):
    citizen = CITIZENS[name]
    as_subclass = [(tuple(map(MetaTensor, tensors)), how) for tensors, how in citizen.calls(8)]
    metric = citizen.fed(as_subclass)
    same(metric.compute(), citizen.fed(citizen.calls(8)).compute(), 0)
    kept = [x for state in metric.metric_state.values() for x in (state if isinstance(state, list) else [state])]
    assert {type(x) for x in kept} == {torch.Tensor}


@every
def test_the_default_dtype_does_not_matter(name):
    citizen = CITIZENS[name]
    calls, expected = citizen.calls(), citizen.fed().compute()
    torch.set_default_dtype(torch.float64)
    try:
        found = citizen.fed(calls).compute()
    finally:
        torch.set_default_dtype(torch.float32)
    same(found, expected, 1e-12)


@every
def test_reset_starts_anew(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    expected = metric.compute()
    metric.reset()
    assert not metric.update_called
    same(feed(metric, citizen.calls()).compute(), expected, 0)


@pytest.mark.parametrize("name", [name for name, citizen in CITIZENS.items() if "real" in citizen.data[0][1]])
def test_the_real_side_stays_across_resets(name):
    citizen = CITIZENS[name]
    expected = citizen.fed().compute()
    real, fake = citizen.calls()
    metric = citizen.fed([real], reset_real_features=False)
    for _ in range(2):
        metric.reset()
        same(feed(metric, [fake]).compute(), expected, 0)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8, torch.float64])
def test_inputs_of_any_dtype(name, dtype):
    citizen = CITIZENS[name]
    calls = citizen.calls(dtype=dtype)
    found = citizen.fed(calls).compute()
    # integers are a picture's 0..255, in features just numbers
    scale = 255 if dtype == torch.uint8 and calls[0][0][0].ndim == 4 else 1
    as_double = [
        (tuple(x if x.dtype == torch.int64 else x.double() / scale for x in tensors), how) for tensors, how in calls
    ]
    same(found, citizen.fed(as_double).compute())
    values = found.values() if isinstance(found, dict) else [found]
    assert {value.dtype for value in values if value.is_floating_point()} == {torch.float64}


@every
@pytest.mark.parametrize("convert", ["half", "bfloat16", "float", "double", "to", "set_dtype"])
def test_the_dtype_of_the_module_around_it_changes_nothing(name, convert):
    citizen = CITIZENS[name]
    expected = citizen.fed(citizen.calls(20)).compute()
    first, *rest = citizen.calls(20)
    module = torch.nn.Module()
    module.metric = citizen.fed([first])
    module.layer = torch.nn.Linear(1, 1)
    if convert == "to":
        module.to(torch.bfloat16)
        assert module.layer.weight.dtype == torch.bfloat16
    elif convert == "set_dtype":
        module.metric.set_dtype(torch.float16)
    else:
        getattr(module, convert)()
    same(feed(module.metric, rest).compute(), expected, 0)


@every
def test_autocast_changes_nothing(name):
    citizen = CITIZENS[name]
    expected = citizen.fed().compute()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(citizen.fed().compute(), expected, 0)


@every
def test_forward_adds_its_batch(name):
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments)
    for tensors, how in citizen.calls():
        value = metric(*tensors, **how)
        assert (value is None) == (how.get("real", False) or citizen.make in (PromptSplit, W1KPScore))
    same(metric.compute(), citizen.fed().compute())
    assert value is None or metric._forward_cache is value  # what Lightning logs per step


@every
def test_a_forward_that_has_no_value_adds_its_batch_too(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    tensors, how = citizen.calls()[-1]
    one = tuple(x[:1] for x in tensors)
    if citizen.make in (PromptSplit, W1KPScore):
        assert metric(*one, **how) is None
    else:
        with pytest.raises(ValueError, match=r"at least|more than"):
            metric(*one, **how)
    if name != "cms blocks":  # 25 samples are not whole blocks
        same(metric.compute(), citizen.fed([*citizen.calls(), (one, how)]).compute())


@every
def test_compute_is_cached_and_a_new_batch_undoes_it(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    first = metric.compute()
    assert metric.compute() is first
    more = [((tensors[0] ** 3, *tensors[1:]), how) for tensors, how in citizen.calls()]
    assert differ(feed(metric, more).compute(), first)


@every
def test_nothing_fed_keeps_a_graph(name):
    citizen = CITIZENS[name]
    one = torch.ones((), requires_grad=True)
    first, how = citizen.calls()[0]
    metric = citizen.fed([((first[0] * one, *first[1:]), how)])
    for state in metric.metric_state.values():
        for tensor in state if isinstance(state, list) else [state]:
            assert not tensor.requires_grad


@every
def test_facts(name):
    metric = CITIZENS[name].make(**CITIZENS[name].arguments)
    assert metric.full_state_update is False
    assert metric.is_differentiable in (True, False)
    assert metric.higher_is_better in (True, False, None)


@every
def test_plot(name):
    metric = CITIZENS[name].fed()
    metric.compute()
    figure, ax = metric.plot()
    figure.canvas.draw()
    assert ax in figure.axes
    pyplot.close("all")


@every
def test_a_pair_in_a_collection_says_what_each_says_alone(name):
    citizen = CITIZENS[name]
    metrics = MetricCollection({key: citizen.make(**citizen.arguments) for key in ("one", "other")})
    rounds = [citizen.calls(9), citizen.calls()]
    for calls in rounds:
        expected = citizen.fed(calls).compute()
        feed(metrics, calls)
        assert list(metrics.compute_groups.values()) == [["one", "other"]]
        for key in ("one", "other"):
            same(metrics[key].compute(), expected)
        metrics.reset()


@every
@pytest.mark.parametrize("on_step", [False, True])
def test_forward_of_a_collection_adds_its_batch_once(name, on_step):
    citizen = CITIZENS[name]
    metrics = MetricCollection(
        {key: citizen.make(**citizen.arguments, dist_sync_on_step=on_step) for key in ("one", "other")}
    )
    *calls, (tensors, how) = citizen.calls(30)
    feed(metrics, calls)
    metrics(*tensors, **how)
    for key in ("one", "other"):
        same(metrics[key].compute(), citizen.fed().compute())


def test_unlike_metrics_share_their_states():
    metrics = MetricCollection(
        {
            "cms": CosineMeanSimilarity(),
            "regions": CosineMeanSimilarity(HALVES),
            "mmd": MaximumMeanDiscrepancy(),
            "cka": PixelCKA(GaussianKernel(0.05)),
        }
    )
    calls = REAL_AND_FAKE * 2
    feed(metrics, calls)
    assert sorted(map(sorted, metrics.compute_groups.values())) == [["cka"], ["cms", "mmd", "regions"]]
    found = metrics.compute()
    same(found["cms"], CITIZENS["cms"].fed(calls).compute(), 0)
    same(found["mmd"], CITIZENS["mmd"].fed(calls).compute(), 0)
    same(found["share_2"], CITIZENS["cms regions"].fed(calls).compute()["share_2"], 0)
    same(found["cka"], CITIZENS["cka streaming"].fed([(tensors, {}) for tensors, _ in calls]).compute(), 0)


def test_metrics_that_keep_the_real_side_form_their_own_group():
    metrics = MetricCollection(
        {"forgets": CosineMeanSimilarity(), "keeps": MaximumMeanDiscrepancy(reset_real_features=False)}
    )
    feed(metrics, REAL_AND_FAKE)
    metrics.compute()
    metrics.reset()
    assert {name: len(metric.real_samples) for name, metric in metrics.items()} == {"forgets": 0, "keeps": 1}


@every
def test_a_notebook_sees_the_last_values(name):
    metric = CITIZENS[name].fed()
    shown = type(metric).__name__
    assert repr(metric) == f"{shown}()"
    assert metric._repr_html_() == f"<p><b>{shown}</b> before `compute`</p>"
    value = metric.compute()
    names = value if isinstance(value, dict) else ["value"]
    assert all(f"{part}=" in repr(metric) for part in names)
    assert "<table>" in metric._repr_html_() or "<img" in metric._repr_html_()
