# SPDX-License-Identifier: Apache-2.0
"""PRDC; what every metric owes torchmetrics and two processes are in test_citizens and test_sync."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genmonitor import PRDC
from genmonitor.functional import precision_recall_density_coverage


def draw(n: int, d: int = 3, seed: int = 0, shift: float = 0.0) -> Tensor:
    return shift + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fed(metric: PRDC, fake: Tensor, real: Tensor, batch: int = 1000) -> PRDC:
    for side, is_real in ((fake, False), (real, True)):
        for samples in side.split(batch):
            metric.update(samples, real=is_real)
    return metric


def floats(values: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


@settings(max_examples=15, deadline=None, derandomize=True)
@given(n=st.integers(4, 20), m=st.integers(4, 20), seed=st.integers(0, 99), data=st.data())
def test_any_batches_in_any_order_say_what_the_function_says(n, m, seed, data):
    """Batches of both sides in turn, in an order of their own."""
    sides = {False: draw(n, 2, seed, shift=0.5), True: draw(m, 2, seed + 1)}
    rows = data.draw(st.permutations([(real, i) for real, side in sides.items() for i in range(len(side))]))
    metric = PRDC(k=3)
    for real, i in rows:
        metric.update(sides[real][i : i + 1], real=real)
    expected = precision_recall_density_coverage(sides[False], sides[True], k=3)
    assert floats(metric.compute()) == pytest.approx(floats(expected))
