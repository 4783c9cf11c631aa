# SPDX-License-Identifier: Apache-2.0
"""A state owns its memory: whoever writes into a tensor after it was handed over, or handed out, changes nothing."""

import copy

import pytest
import torch
from _helpers.citizens import CITIZENS, PER_BASE, feed
from torch import nn

from genmonitor.encoders import FeatureMetrics


def scribble(x):
    x.copy_(torch.zeros_like(x) if x.ndim == 1 else (37 * x.flip(0)).sin() + 2)  # no shift or scale, which may not show


def in_place(tensors):
    """A tensor that its owner goes on with: images.mul_(255)."""
    return tuple(x.clone() for x in tensors)


def view(tensors):
    """A view of other strides."""
    return tuple(x.mT.clone().mT if x.ndim == 2 else x.clone() for x in tensors)


def update_and_scribble(metric, calls, way=in_place, call="update"):
    for tensors, how in calls:
        given = way(tensors)
        getattr(metric, call)(*given, **how)
        for x in given:
            scribble(x)
    return metric


@pytest.mark.parametrize("way", [in_place, view], ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", CITIZENS)
def test_writing_into_what_update_was_given_changes_nothing(name, way):
    citizen = CITIZENS[name]
    calls = citizen.calls(12, torch.float64) if way is view else citizen.calls(12)
    expected = citizen.fed(calls).compute()
    metric = update_and_scribble(citizen.make(**citizen.arguments), calls, way)
    torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", PER_BASE)
def test_nor_after_forward(name):
    citizen = CITIZENS[name]
    metric = update_and_scribble(citizen.make(**citizen.arguments), citizen.calls(), call="forward")
    torch.testing.assert_close(metric.compute(), citizen.fed().compute(), rtol=0, atol=0)


def handed_out(metric):
    """Tensors that a metric hands out: its value, its saved state, a copy's states, those that it was loaded from."""
    metric.persistent(True)
    value = metric.compute()
    saved = metric.state_dict()
    yield from value.values() if isinstance(value, dict) else [value]
    for state in (*copy.deepcopy(metric).metric_state.values(), *(saved[name] for name in metric.metric_state)):
        yield from state if isinstance(state, list) else [state]


@pytest.mark.parametrize("name", CITIZENS)
def test_writing_into_what_it_hands_out_changes_nothing(name):
    citizen = CITIZENS[name]
    metric, untouched, more = citizen.fed(), citizen.fed(), citizen.calls(30)
    untouched.compute()
    expected = feed(untouched, more).compute()
    for x in handed_out(metric):
        x.fill_(7)
    torch.testing.assert_close(feed(metric, more).compute(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", CITIZENS)
def test_writing_into_a_value_leaves_that_of_the_next_call(name):
    """As cka.fill_diagonal_(0) does, since torchmetrics keeps the value and returns the same tensor."""
    metric = CITIZENS[name].fed()
    value = metric.compute()
    expected = copy.deepcopy(value)
    for x in value.values() if isinstance(value, dict) else [value]:
        x.fill_(7)
    torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", PER_BASE)
def test_a_metric_that_goes_on_leaves_the_state_it_was_loaded_or_merged_from(name):
    citizen = CITIZENS[name]
    metric = citizen.fed()
    metric.persistent(True)
    saved = metric.state_dict()
    before = copy.deepcopy(saved)
    loaded = citizen.make(**citizen.arguments)
    loaded.load_state_dict(saved)
    feed(loaded, citizen.calls())
    merged = citizen.fed().clone()
    merged.reset()
    merged.merge_state(metric)
    feed(merged, citizen.calls())
    for key, value in before.items():
        after = saved[key]
        assert all(map(torch.equal, after, value)) if isinstance(value, list) else str(after) == str(value)
    torch.testing.assert_close(metric.compute(), citizen.fed().compute(), rtol=0, atol=0)


def test_features_that_are_a_view_of_the_images_are_copied():
    images = torch.rand(40, 1, 2, 2, generator=torch.Generator().manual_seed(0))

    def fed(scribbles):
        metric = FeatureMetrics(nn.Flatten(), ["kid", "prdc", "vendi"], num_features=4, subset_size=20)
        for side, real in ((images[:20], True), (images[20:] ** 2, False)):
            given = side.clone()
            metric.update(given, real=real)
            if scribbles:
                scribble(given)
        torch.manual_seed(0)
        return metric.compute()

    torch.testing.assert_close(fed(True), fed(False), rtol=0, atol=0)
