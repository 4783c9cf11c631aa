# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref

from genmonitor import CosineKernel, GaussianKernel
from genmonitor.functional.dispersion import kernel_dispersion
from genmonitor.linalg import chunking


def features(n, seed=0):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dispersion(gram):
    n = len(gram)
    return np.mean([1 - gram[i, j] for i in range(n) for j in range(n) if i != j])


@pytest.mark.parametrize("budget", [chunking.MEMORY_BUDGET, 500])
def test_twin(budget, monkeypatch):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    x, n = features(12), 12
    gram = ref.gram(x.numpy(), x.numpy(), 0.3)
    value, others = dispersion(gram), [[j for j in range(n) if j != i] for i in range(n)]
    left_out = np.array([dispersion(gram[np.ix_(rest, rest)]) for rest in others])
    found = kernel_dispersion(x, GaussianKernel(0.3))
    assert float(found.value) == pytest.approx(value)
    assert found.influence.tolist() == pytest.approx((n - 1) * (left_out.mean() - left_out))
    assert float(found.standard_error) == pytest.approx(
        np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    )


def test_the_same_samples_are_not_spread():
    found = kernel_dispersion(torch.tensor([[0.3, 0.7, 0.1]]).expand(50, -1), CosineKernel())
    assert float(found.value) == pytest.approx(0, abs=1e-6)
    assert float(found.standard_error) == pytest.approx(0, abs=1e-6)


def test_orthogonal_samples_are_one_apart():
    assert float(kernel_dispersion(torch.eye(5), CosineKernel()).value) == 1


def test_value_has_no_bias_and_its_error_is_what_it_varies_by():
    found = [kernel_dispersion(features(30, seed), GaussianKernel(0.1)) for seed in range(400)]
    values = torch.stack([one.value for one in found])
    # E exp(-g |x - y|²) of standard normal samples is (1 + 4 g)^(-D/2); the mean of 400 varies by 1/20 of one
    assert float(values.mean()) == pytest.approx(1 - 1.4**-1.5, abs=4 * float(values.std()) / 20)
    # a standard deviation of 400 values is known to 1 / sqrt(800) = 4 %; the jackknife is a little too large
    assert float(torch.stack([one.standard_error for one in found]).mean()) == pytest.approx(
        float(values.std()), rel=0.2
    )


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="at least 3 samples, but got 2"):
        kernel_dispersion(features(2), CosineKernel())
