# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from scipy.stats import t

from genmonitor.functional import calibrate, prompt_reusability, reusability_curve
from genmonitor.functional.w1kp.subsets import ReusabilityCurve, expected_closest_pairs

GENERATOR = torch.Generator().manual_seed(0)
X, INDEX = torch.randn(58, 3, generator=GENERATOR), torch.arange(58) % 4  # 15, 15, 14 and 14 outputs
CALIBRATION = calibrate(X)


def each(k=None):
    return [expected_closest_pairs(X[p == INDEX], calibration=CALIBRATION, k=k)[0] for p in range(4)]


def test_it_is_the_mean_over_prompts_with_students_band():
    curve = reusability_curve(X, INDEX, calibration=CALIBRATION, k=10)
    curves = torch.stack(each(10)).numpy()
    np.testing.assert_allclose(curve.mean, curves.mean(0), atol=1e-12)
    low, high = t.interval(0.95, 3, curves.mean(0), curves.std(0, ddof=1) / 2)
    np.testing.assert_allclose(curve.low, low.clip(0), atol=1e-9)
    np.testing.assert_allclose(curve.high, high.clip(max=1), atol=1e-9)
    assert (curve.prompts, curve.skipped, curve.largest_k) == (4, 0, 10)


def test_without_k_it_goes_as_far_as_all_prompts():
    more, names = torch.cat([X, X[:1]]), torch.cat([INDEX, torch.tensor([9])])
    curve = reusability_curve(more, names, calibration=CALIBRATION)
    assert (curve.largest_k, curve.prompts, curve.skipped) == (14, 4, 1)
    further = reusability_curve(more, names, calibration=CALIBRATION, k=15)
    assert (further.largest_k, further.prompts, further.skipped) == (15, 2, 3)


def test_reusability_is_where_mean_and_band_cross():
    curve = ReusabilityCurve((0.1, 0.5, 0.7, 0.9), (0.0, 0.2, 0.3, 0.5), (0.2, 0.8, 0.9, 1.0), 5, 0, cutoff=0.6)
    assert curve.reusability == 3
    assert curve.interval == (2, 5)


def test_equal_prompts_have_the_reusability_of_one():
    x = torch.cat([X[:15], X[:15]])
    curve = reusability_curve(x, torch.arange(30) // 15, calibration=CALIBRATION, cutoff=0.9)
    assert curve.reusability == prompt_reusability(X[:15], calibration=CALIBRATION, cutoff=0.9)
    assert 1 < curve.reusability < 15
    assert curve.interval == (curve.reusability, curve.reusability)


def test_refusals():
    with pytest.raises(ValueError, match="at least 2 prompts with 2 outputs for a mean over prompts, but got 1"):
        reusability_curve(X, 0 * INDEX, calibration=CALIBRATION, k=2)
    with pytest.raises(ValueError, match=r"at least 2 prompts with 20 outputs.*but got 0"):
        reusability_curve(X, INDEX, calibration=CALIBRATION, k=20)
    with pytest.raises(ValueError, match=r"at least 2 prompts with 2 outputs.*but got 0"):
        reusability_curve(X, torch.arange(58), calibration=CALIBRATION)
    with pytest.raises(ValueError, match="`calibration` to be a W1KPCalibration"):
        reusability_curve(X, INDEX)
    with pytest.raises(ValueError, match="`k` to be a whole number >= 2"):
        reusability_curve(X, INDEX, calibration=CALIBRATION, k=1)
