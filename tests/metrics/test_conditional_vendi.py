# SPDX-License-Identifier: Apache-2.0
"""ConditionalVendiScore; what every metric owes torchmetrics and two processes are in test_citizens and test_sync."""

import pytest
import torch
from _helpers import entropy_references as twin
from _helpers.entropy_references import digits, one_hot
from torch import Tensor

from genmonitor import ConditionalVendiScore, GaussianKernel
from genmonitor.functional import conditional_vendi_score


def fed(metric: ConditionalVendiScore, outputs: Tensor, prompts: Tensor, batch: int) -> ConditionalVendiScore:
    for x, t in zip(outputs.split(batch), prompts.split(batch), strict=True):
        metric.update(x, t)
    return metric


def floats(score: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in score.items()}


@pytest.mark.parametrize("batch", [120, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_twin_of_digits(dtype, batch):
    outputs, prompts = (digits()[:120] + 1), one_hot()[:120]
    grams = [twin.unit(x.numpy()) @ twin.unit(x.numpy()).T for x in (outputs, prompts)]
    metric = fed(ConditionalVendiScore(), outputs.to(dtype), prompts.to(dtype), batch)
    assert floats(metric.compute()) == pytest.approx(twin.conditional_vendi(*grams), rel=1e-6)


def test_arguments_are_those_of_the_function():
    outputs, prompts = digits()[:60], one_hot()[:60]
    options = {"prompt_kernel": GaussianKernel(0.5), "order": 2.0, "truncation": 9}
    metric = fed(ConditionalVendiScore(GaussianKernel(0.02), **options), outputs, prompts, 20)
    expected = conditional_vendi_score(outputs, prompts, kernel=GaussianKernel(0.02), **options)
    assert floats(metric.compute()) == floats(expected)


def test_an_open_width_is_resolved_once():
    metric = fed(ConditionalVendiScore(GaussianKernel()), digits()[:60], one_hot()[:60], 20)
    assert metric.kernel.gamma is None
    metric.compute()
    resolved = metric.kernel
    assert resolved == GaussianKernel().resolved(digits()[:60])
    metric.reset()
    fed(metric, 3 * digits()[60:], one_hot()[60:], 20).compute()
    assert metric.kernel == resolved
