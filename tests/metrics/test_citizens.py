# SPDX-License-Identifier: Apache-2.0
"""What every metric owes torchmetrics: all of them where a metric could differ, else one for each base class."""

import copy
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from _helpers.citizens import CITIZENS, PER_BASE, feed
from _helpers.meta_tensor import MetaTensor
from matplotlib import pyplot
from torch.utils._python_dispatch import TorchDispatchMode

import genmonitor
from genmonitor import GaussianKernel, PixelCKA, PromptSplit, W1KPScore
from genmonitor.metrics._spectral import SpectralMetric

every = pytest.mark.parametrize("name", CITIZENS)
each_base = pytest.mark.parametrize("name", PER_BASE)
WITH_VALUE = [name for name, citizen in CITIZENS.items() if citizen.make not in (PromptSplit, W1KPScore)]
"""Those whose `forward` has a value; the others compare what no single batch holds."""


def same(found: Any, expected: Any, error: float = 1e-6) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=error)


def differ(found: Any, other: Any) -> bool:
    pairs = [(found[name], other[name]) for name in found] if isinstance(found, dict) else [(found, other)]
    return any(not torch.equal(a, b) for a, b in pairs)


def made(name, **more):
    citizen = CITIZENS[name]
    return citizen.make(**citizen.arguments | more)


def powered(calls, power):
    return [((tensors[0] ** power, *tensors[1:]), how) for tensors, how in calls]


def test_every_metric_is_a_citizen_and_every_base_has_one():
    assert {citizen.make.__name__ for citizen in CITIZENS.values()} == set(genmonitor.metrics.__all__)
    bases = {citizen.make.__bases__ for citizen in CITIZENS.values()}
    assert {CITIZENS[name].make.__bases__ for name in PER_BASE} == bases
    states = {frozenset(made(name)._defaults) for name in CITIZENS if name != "conditional vendi"}
    assert {frozenset(made(name)._defaults) for name in PER_BASE} == states


# batches


@every
def test_batches_change_nothing(name):
    citizen = CITIZENS[name]
    same(citizen.fed(citizen.calls(7)).compute(), citizen.fed().compute())


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


@each_base
def test_a_refused_batch_changes_nothing(name):
    citizen = CITIZENS[name]
    metric, expected = citizen.fed(), citizen.fed().compute()
    (first, *others), how = citizen.calls()[-1]
    nan = first.clone()
    nan[1] = torch.nan
    refused = {"NaN": (nan, *others), "fewer values": (first[..., :-1], *others), "a list": (first.tolist(), *others)}
    if others:
        refused["more of one"] = (first[1:], *others)
    for tensors in refused.values():
        with pytest.raises((ValueError, TypeError), match=r"^Expected .*`"):
            metric.update(*tensors, **how)
    same(metric.compute(), expected, 0)


@each_base
def test_compute_before_update_warns_and_says_what_to_call(name):
    with (
        pytest.warns(UserWarning, match="was called before the ``update`` method"),
        pytest.raises(ValueError, match=r"^Expected .* before .*, but got (none|0).* Call `update\("),
    ):
        made(name).compute()


# forward


@every
def test_forward_adds_its_batch(name):
    citizen = CITIZENS[name]
    metric = made(name)
    for tensors, how in citizen.calls():
        value = metric(*tensors, **how)
        assert (value is None) == (how.get("real", False) or name not in WITH_VALUE)
    same(metric.compute(), citizen.fed().compute())
    assert value is None or metric._forward_cache is value  # what Lightning logs per step


@every
def test_a_forward_that_has_no_value_adds_its_batch_too(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    tensors, how = citizen.calls()[-1]
    one = tuple(x[:1] for x in tensors)
    if name in WITH_VALUE:
        with pytest.raises(ValueError, match=r"at least|more than"):
            metric(*one, **how)
    else:
        assert metric(*one, **how) is None
    if name != "cms blocks":  # 25 samples are not whole blocks
        same(metric.compute(), citizen.fed([*citizen.calls(), (one, how)]).compute())


def sides(name, size):
    """Return what a metric is fed first, and its last batches, each of which has a value of its own."""
    *first, (tensors, how) = CITIZENS[name].data
    return first, [(part, how) for part in zip(*(x.split(size) for x in tensors), strict=True)]


@pytest.mark.parametrize("name", WITH_VALUE)
def test_forward_says_what_its_batch_alone_says(name):
    first, batches = sides(name, 12)
    metric = feed(made(name), first)
    for tensors, how in batches:
        if len(tensors[0]) < 12:  # the rest of 40 features
            continue
        value = metric(*tensors, **how)
        same(value, feed(made(name), [*first, (tensors, how)]).compute())


def fixed_width(name):
    """Return arguments under which no width of a kernel is taken from the samples."""
    kernel = CITIZENS[name].arguments.get("kernel")
    open_width = name.startswith("cms") and kernel is None
    return {"kernel": GaussianKernel(0.5)} if open_width or kernel == GaussianKernel() else {}


def doubles(tensors):
    return tuple(x.double() if x.is_floating_point() else x for x in tensors)


@pytest.mark.parametrize("name", WITH_VALUE)
def test_a_differentiable_metric_and_no_other_has_the_gradient_of_its_value(name):
    first, ((tensors, how), *_) = sides(name, 12)
    first, tensors = [(doubles(xs), h) for xs, h in first], doubles(tensors)

    def value(x):
        found = feed(made(name, **fixed_width(name)), first)(x, *tensors[1:], **how)
        return tuple(found.values()) if isinstance(found, dict) else (found,)

    x = tensors[0].requires_grad_(True)
    assert any(part.requires_grad for part in value(x)) == made(name).is_differentiable
    if made(name).is_differentiable:
        assert torch.autograd.gradcheck(value, (x,), eps=1e-6, atol=1e-5)


# states


@each_base
def test_copies_go_on_alike(name):
    citizen = CITIZENS[name]
    first, *rest = citizen.calls(12)
    metric = citizen.fed([first])
    copies = [metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))]
    expected = feed(metric, rest).compute()
    for one in copies:
        same(feed(one, rest).compute(), expected, 0)


@every
def test_a_saved_state_is_taken_up(name, tmp_path):
    citizen = CITIZENS[name]
    half, rest = citizen.calls(8)[:3], citizen.calls(8)[3:]
    metric = citizen.fed(half)
    assert not metric.state_dict().keys() & metric.metric_state.keys()  # not unasked
    metric.persistent(True)
    torch.save(metric.state_dict(), tmp_path / "state.pt")
    resumed = made(name)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    same(feed(resumed, rest).compute(), feed(metric, rest).compute(), 0)


@each_base
def test_a_loaded_state_replaces_a_value_computed_before(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    metric.persistent(True)
    other = citizen.fed(powered(citizen.calls(), 3))
    other.compute()
    other.load_state_dict(metric.state_dict())
    same(other.compute(), metric.compute(), 0)


@each_base
def test_gamma_is_saved_without_asking(name):
    metric = CITIZENS[name].fed()
    metric.compute()
    again = made(name)
    again.load_state_dict(metric.state_dict())
    gammas = {key: float(value) for key, value in metric.named_buffers() if "gamma" in key}
    assert {key: float(value) for key, value in again.named_buffers()} == pytest.approx(gammas, nan_ok=True, abs=0)


@each_base
def test_reset_starts_anew(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    expected = metric.compute()
    metric.reset()
    assert not metric.update_called
    for state, before in made(name).metric_state.items():
        after = metric.metric_state[state]
        goes_on = state == "dims"  # a metric goes on with samples of the same size
        assert goes_on or (after == before if isinstance(before, list) else str(after) == str(before))
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


@each_base
@pytest.mark.parametrize("last", ["made", "updated", "computed", "reset"])
def test_a_metric_used_in_inference_mode_goes_on_outside_of_it(name, last):
    """As in Lightning's validation, whose metrics another loop may use too."""

    def used(mode):
        with mode:
            metric = made(name)
            if last != "made":
                feed(metric, CITIZENS[name].calls())
            if last in ("computed", "reset"):
                metric.compute()
            if last == "reset":
                metric.reset()
        return feed(metric, CITIZENS[name].calls()).compute()

    same(used(torch.inference_mode()), used(nullcontext()))


@pytest.mark.parametrize("name", [name for name, citizen in CITIZENS.items() if not citizen.ordered])
def test_two_parts_are_merged_into_the_whole(name):
    citizen = CITIZENS[name]
    first, *rest = citizen.calls(20)
    metric = citizen.fed([first])
    by_state = metric.clone()
    other = metric.clone()
    other.reset()
    if name != "w1kp":
        metric._computed = torch.zeros(())  # of a `compute` before
    feed(other, rest)
    metric.merge_state(other)
    by_state.merge_state(other.metric_state)
    for merged in (metric, by_state):
        same(merged.compute(), citizen.fed(citizen.calls(20)).compute())


@each_base
def test_a_fresh_metric_takes_over_all_of_another(name):
    citizen = CITIZENS[name]
    fresh = made(name)
    fresh.merge_state(citizen.fed())
    same(fresh.compute(), citizen.fed().compute())
    assert str(fresh.state_dict().keys()) == str(citizen.fed().state_dict().keys())


UNLIKE = {
    "another gamma": ({"kernel": GaussianKernel(0.5)}, {"kernel": GaussianKernel(0.6)}),
    "gammas of other samples": ({"kernel": GaussianKernel()}, {"kernel": GaussianKernel()}),
    "another seed": ({"kernel": GaussianKernel(0.5)}, {"kernel": GaussianKernel(0.5), "seed": 1}),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_sums_of_other_features_are_not_merged(case):
    one, other = (genmonitor.VendiScore(num_features=8, **arguments) for arguments in UNLIKE[case])
    one.update(torch.rand(10, 3, generator=torch.Generator().manual_seed(0)))
    other.update(torch.rand(10, 3, generator=torch.Generator().manual_seed(1)))
    before = one.compute()
    with pytest.raises(ValueError, match=r"Expected a VendiScore with the features of .* Give both the same kernels"):
        one.merge_state(other)
    with pytest.raises(ValueError, match="Expected sums of this VendiScore's own features"):
        one.merge_state(other.metric_state)
    assert torch.equal(one.compute(), before)


# dtypes


@each_base
@pytest.mark.parametrize("dtype", [torch.float16, torch.uint8, torch.float64])
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


@each_base
@pytest.mark.parametrize("convert", ["half", "double", "to", "set_dtype"])
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


@each_base
def test_subclasses_of_tensor_are_taken_as_tensors(name):
    citizen = CITIZENS[name]
    as_subclass = [(tuple(map(MetaTensor, tensors)), how) for tensors, how in citizen.calls(8)]
    metric = citizen.fed(as_subclass)
    same(metric.compute(), citizen.fed(citizen.calls(8)).compute(), 0)
    kept = [x for state in metric.metric_state.values() for x in (state if isinstance(state, list) else [state])]
    assert {type(x) for x in kept} == {torch.Tensor}


# torchmetrics' options and pictures


@each_base
def test_states_on_the_cpu_change_no_value(name):
    metric = feed(made(name, compute_on_cpu=True), CITIZENS[name].calls(15))
    expected = CITIZENS[name].fed().compute()
    for _ in range(2):
        same(metric.compute(), expected)


@each_base
def test_values_are_plotted(name):
    metric = CITIZENS[name].fed()
    value = metric.compute()
    figure, ax = metric.plot()
    figure.canvas.draw()
    assert ax in figure.axes
    if not isinstance(metric, PixelCKA):
        figure, ax = pyplot.subplots()
        for drawn in (value, [value, value]):
            assert metric.plot(drawn, ax=ax)[1] is ax
            figure.canvas.draw()
    pyplot.close("all")
