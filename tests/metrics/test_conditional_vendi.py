# SPDX-License-Identifier: Apache-2.0
"""ConditionalVendiScore; what every metric owes torchmetrics and two processes are in test_citizens and test_sync."""

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
