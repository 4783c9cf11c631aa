# SPDX-License-Identifier: Apache-2.0
"""Every metric inside torchmetrics' own wrappers, and merged with another of its kind."""

import pytest
import torch
from _helpers.citizens import CITIZENS, Citizen, feed
from torchmetrics import MetricTracker
from torchmetrics.wrappers import BootStrapper

from genmonitor import GaussianKernel, PromptSplit

every = pytest.mark.parametrize("name", CITIZENS)
SCALARS = [
    "cms",
    "cms cosine",
    "mmd",
    "mmd laplacian",
    "authenticity",
    "vendi",
    "vendi gaussian",
    "vendi fourier",
    "rke",
    "rke gaussian",
    "two-sample test",
]
scalars = pytest.mark.parametrize("name", SCALARS)


def test_those_that_give_one_number_are_named():
    assert [
        n
        for n, c in CITIZENS.items()
        if isinstance(v := c.fed().compute(), torch.Tensor) and not v.ndim and n != "cms blocks"
    ] == SCALARS


@every
def test_a_tracker_keeps_the_value_of_every_epoch(name):
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments)
    tracker = MetricTracker(metric, maximize=bool(metric.higher_is_better))
    powers = (1, 2, 3)
    for power in powers:
        tracker.increment()
        feed(tracker, [((tensors[0] ** power, *tensors[1:]), how) for tensors, how in citizen.calls()])
    tracked = tracker.compute_all()
    for step, power in enumerate(powers):
        expected = citizen.fed([((t[0] ** power, *t[1:]), how) for t, how in citizen.calls()]).compute()
        found = {key: value[step] for key, value in tracked.items()} if isinstance(expected, dict) else tracked[step]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@scalars
def test_a_tracker_finds_the_best_epoch(name):
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments)
    tracker = MetricTracker(metric, maximize=bool(metric.higher_is_better))
    values = []
    for power in (1, 3):
        tracker.increment()
        feed(tracker, [((tensors[0] ** power, *tensors[1:]), how) for tensors, how in citizen.calls()])
        values.append(float(tracker.compute()))
    best, step = tracker.best_metric(return_step=True)
    assert values[step] == best == (max if metric.higher_is_better else min)(values)


@scalars
def test_bootstrapping_gives_values_around_the_metrics_own(name):
    torch.manual_seed(0)
    citizen = CITIZENS[name]
    strapped = BootStrapper(
        citizen.make(**citizen.arguments), num_bootstraps=8, raw=True, sampling_strategy="multinomial"
    )
    found = feed(strapped, citizen.calls()).compute()
    assert found["raw"].shape == (8,)
    assert found["raw"].isfinite().all()
    # samples drawn twice on one side are not exchangeable with the other's: the test rejects every time
    assert float(found["std"]) > 0 or name == "two-sample test"
    assert float(found["mean"]) == pytest.approx(float(found["raw"].mean()))


@pytest.mark.parametrize("name", [name for name, citizen in CITIZENS.items() if not citizen.ordered])
def test_two_parts_are_merged_into_the_whole(name):
    citizen = CITIZENS[name]
    first, *rest = citizen.calls(20)
    metric = citizen.fed([first])
    other = metric.clone()
    other.reset()
    metric.merge_state(feed(other, rest))
    torch.testing.assert_close(metric.compute(), citizen.fed(citizen.calls(20)).compute(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["cka streaming", "promptsplit fourier"])
def test_sums_about_other_points_are_not_merged(name):
    citizen = CITIZENS["cka streaming"]
    if name == "promptsplit fourier":
        kernel = GaussianKernel(0.7)
        arguments = {"output_kernel": kernel, "prompt_kernel": kernel, "num_features": 16, "num_modes": 3}
        citizen = Citizen(PromptSplit, CITIZENS["promptsplit"].data, arguments)
    first, *rest = citizen.calls(20)
    metric = citizen.fed([first])
    with pytest.raises(ValueError, match=r"its first `update` fixed other expansion points. Begin both alike"):
        metric.merge_state(citizen.fed(rest))
