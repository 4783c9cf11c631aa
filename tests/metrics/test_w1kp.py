# SPDX-License-Identifier: Apache-2.0
"""Two processes are in test_promptsplit.py: starting them takes seconds."""

import pytest
import torch
from torch.testing import assert_close

from genmonitor import W1KPScore
from genmonitor.functional import calibrate, w1kp_by_prompt, w1kp_score

FEATURES, PROMPTS = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) ** 2 % 7
CALIBRATION = calibrate(FEATURES)


def fed(batch: int = 40, **kwargs) -> W1KPScore:
    metric = W1KPScore(CALIBRATION, **kwargs)
    for start in range(0, 40, batch):
        metric.update(FEATURES[start : start + batch], PROMPTS[start : start + batch])
    return metric


def same(found, expected):
    assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 40])
@pytest.mark.parametrize("k", [None, 4])
def test_it_is_the_function(batch, k):
    same(fed(batch, k=k).compute(), w1kp_score(FEATURES, PROMPTS, calibration=CALIBRATION, k=k))


def test_the_table_is_the_functions():
    names = [f"prompt {prompt}" for prompt in range(7)]
    expected = w1kp_by_prompt(FEATURES, PROMPTS, calibration=CALIBRATION, k=3, names=names)
    assert fed(9, k=3).per_prompt(names) == expected
    assert {row.prompt for row in fed().per_prompt()} == {0, 1, 2, 4}
