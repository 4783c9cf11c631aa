# SPDX-License-Identifier: Apache-2.0
"""What torchmetrics' own tests ask of every metric, beside what test_citizens.py and test_sync.py ask."""

import pickle

import pytest
import torch
from _helpers.citizens import CITIZENS, feed
from matplotlib import pyplot

from genmonitor import GaussianKernel, PixelCKA

every = pytest.mark.parametrize("name", CITIZENS)
WITH_VALUE = [name for name in CITIZENS if not name.startswith(("promptsplit", "w1kp"))]
"""Those whose `forward` has a value; the others compare what no single batch holds."""
CONSTANTS = (
    "higher_is_better",
    "is_differentiable",
    "full_state_update",
    "plot_lower_bound",
    "plot_upper_bound",
    "plot_legend_name",
)


def made(name, **more):
    citizen = CITIZENS[name]
    return citizen.make(**citizen.arguments | more)


def sides(name, size):
    """Return what a metric is fed first, and its last batches, each of which has a value of its own."""
    citizen = CITIZENS[name]
    *first, (tensors, how) = citizen.data
    return first, [(part, how) for part in zip(*(x.split(size) for x in tensors), strict=True)]


@pytest.mark.parametrize("name", WITH_VALUE)
def test_forward_says_what_its_batch_alone_says(name):
    first, batches = sides(name, 20 if isinstance(made(name), PixelCKA) else 12)
    metric = feed(made(name), first)
    for tensors, how in batches:
        if len(tensors[0]) < 12:  # the rest of 40 features
            continue
        value = metric(*tensors, **how)
        torch.testing.assert_close(value, feed(made(name), [*first, (tensors, how)]).compute(), rtol=0, atol=1e-6)


def fixed_width(name):
    """Return arguments under which no width of a kernel is taken from the samples."""
    kernel = CITIZENS[name].arguments.get("kernel")
    open_width = name.startswith("cms") and kernel is None
    return {"kernel": GaussianKernel(0.5)} if open_width or kernel == GaussianKernel() else {}


def tiny(name):
    """Return what a metric is fed first, and a last batch of few samples in float64."""
    first, ((tensors, how), *_) = sides(name, 12)
    first = [(tuple(x.double() if x.is_floating_point() else x for x in xs), h) for xs, h in first]
    return first, tuple(x.double() if x.is_floating_point() else x for x in tensors), how


@pytest.mark.parametrize("name", [name for name in WITH_VALUE if made(name).is_differentiable])
def test_differentiable_metric_has_the_gradient_of_its_value(name):
    first, tensors, how = tiny(name)

    def value(x):
        found = feed(made(name, **fixed_width(name)), first)(x, *tensors[1:], **how)
        return tuple(found.values()) if isinstance(found, dict) else found

    x = tensors[0].requires_grad_(True)
    out = value(x)
    assert any(part.requires_grad for part in (out if isinstance(out, tuple) else (out,)))
    assert torch.autograd.gradcheck(value, (x,), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in WITH_VALUE if not made(name).is_differentiable])
def test_other_metric_has_no_gradient(name):
    first, tensors, how = tiny(name)
    x = tensors[0].requires_grad_(True)
    value = feed(made(name), first)(x, *tensors[1:], **how)
    values = value.values() if isinstance(value, dict) else [value]
    assert not any(part.requires_grad for part in values)


@every
def test_states_are_those_declared_and_reset_to_defaults(name):
    metric = CITIZENS[name].fed()
    empty = made(name)
    assert metric.metric_state.keys() == metric._defaults.keys()
    metric.reset()
    for state, before in empty.metric_state.items():
        after = metric.metric_state[state]
        kept = state == "dims"  # a metric goes on with samples of the same size
        assert kept or (after == before if isinstance(before, list) else torch.equal(after, before))


@every
def test_no_state_is_saved_unasked(name):
    metric = CITIZENS[name].fed()
    assert not metric.state_dict().keys() & metric.metric_state.keys()
    metric.persistent(True)
    tensors = {state for state, value in metric.metric_state.items() if isinstance(value, torch.Tensor)}
    assert tensors <= metric.state_dict().keys()


@every
@pytest.mark.parametrize("constant", CONSTANTS)
def test_constants_are_not_overwritten(name, constant):
    with pytest.raises(RuntimeError, match=f"Can't change const `{constant}`"):
        setattr(made(name), constant, None)


@every
def test_compute_before_update_warns_and_says_what_to_call(name):
    with (
        pytest.warns(UserWarning, match="was called before the ``update`` method"),
        pytest.raises(ValueError, match=r"^Expected .* before .*, but got (none|0).* Call `update\("),
    ):
        made(name).compute()


@every
def test_unknown_arguments_are_refused(name):
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `no_such_argument`"):
        made(name, no_such_argument=1)


@every
def test_instances_have_hashes_of_their_own(name):
    one, other = made(name), made(name)
    assert hash(one) == hash(one)
    assert hash(one) != hash(other)
    assert hash(feed(one, CITIZENS[name].calls())) != hash(other)


@every
def test_copies_share_nothing_with_the_original(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    expected = metric.compute()
    for other in (metric.clone(), pickle.loads(pickle.dumps(metric.clone()))):
        feed(other, [((x[0] ** 3, *x[1:]), how) for x, how in citizen.calls()])
        other.reset()
    torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=0)
    metric._computed = None
    torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=0)


@every
@pytest.mark.parametrize("option", ["compute_on_cpu", "compute_with_cache", "sync_on_compute"])
def test_options_of_torchmetrics_change_no_value(name, option):
    metric = feed(made(name, **{option: option == "compute_on_cpu"}), CITIZENS[name].calls(15))
    expected = CITIZENS[name].fed().compute()
    for _ in range(2):
        torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CITIZENS if CITIZENS[name].make is not PixelCKA])
def test_several_values_are_plotted_into_a_given_axis(name):
    metric = CITIZENS[name].fed()
    value = metric.compute()
    figure, ax = pyplot.subplots()
    for drawn in (value, [value, value]):
        assert metric.plot(drawn, ax=ax)[1] is ax
        figure.canvas.draw()
    pyplot.close("all")
