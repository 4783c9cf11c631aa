# SPDX-License-Identifier: Apache-2.0
"""The classifier that vetoes wrong proportions: blind to weights alone, not to what weights imitate."""

import pytest
import torch
from torch import Tensor

from genmonitor.functional.diagnosis.proportions import Weighted, separability
from genmonitor.functional.diagnosis.readings import READINGS

N = 240


def bars(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Bars that lie or, in some, stand, of any brightness; and which stand."""
    generator = torch.Generator().manual_seed(seed)
    stands = torch.rand(n, generator=generator) < share
    image = torch.zeros(n, 1, 12, 12)
    image[~stands, :, 4:7] = 1.0
    image[stands, :, :, 4:7] = 1.0
    bright = 0.3 + 0.5 * torch.rand(n, 1, 1, 1, generator=generator)
    return bright * image + 0.03 * torch.randn(image.shape, generator=generator), stands


def auc(fake: Tensor, real: Tensor, weights: Tensor) -> float:
    halves = [Weighted(fake[some], real[some], weights[some]) for some in (slice(N // 2), slice(N // 2, None))]
    return separability(*halves, READINGS, seed=0)


def test_right_weights_leave_nothing_to_tell() -> None:
    fake, _ = bars(N, 0.8, 0)
    real, stands = bars(N, 0.4, 1)
    assert auc(fake, real, torch.ones(N)) > 0.65
    assert auc(fake, real, torch.where(stands, 0.8 / 0.4, 0.2 / 0.6)) == pytest.approx(0.5, abs=0.09)


@pytest.mark.parametrize("size", [0.06, 0.2])
def test_weights_that_imitate_a_fault_are_found_out(size: float) -> None:
    fake, real = bars(N, 0.5, 0)[0], bars(N, 0.5, 1)[0]
    darker = fake - size
    weights = torch.softmax(-8 * real.mean((1, 2, 3)), 0)
    assert auc(darker, real, N * weights) > 0.6
