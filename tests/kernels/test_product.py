# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch
from _helpers.joint_spectra import difference_spectrum, random_sides
from torch.testing import assert_close

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.kernels.product import PairKernel, feature_size

KERNELS = [GaussianKernel(0.3), LaplacianKernel(0.2), CosineKernel()]


def pair_kernel(output_kernel, prompt_kernel) -> PairKernel:
    _, _, y, u = random_sides()
    return PairKernel.of(y, u, output_kernel, prompt_kernel)


@pytest.mark.parametrize("output_kernel", KERNELS)
@pytest.mark.parametrize("prompt_kernel", KERNELS)
def test_the_kernel_of_pairs_is_the_product_of_both(output_kernel, prompt_kernel):
    x, t, y, u = random_sides()
    kernel = pair_kernel(output_kernel, prompt_kernel)
    found = kernel.gram(kernel.rows(x, t), kernel.rows(y, u))
    assert_close(found, output_kernel(x, y) * prompt_kernel(t, u), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", [GaussianKernel(0.3), CosineKernel()])
def test_random_features_are_unbiased(kernel):
    x, t, y, u = random_sides()
    pairs = pair_kernel(kernel, kernel)
    a, b = pairs.rows(x, t), pairs.rows(y, u)
    draws = []
    for seed in range(40):
        features = pairs.features(1000, seed)
        assert features(a).shape == (30, features.size) == (30, feature_size(kernel, 1000))
        draws.append(features(a) @ features(b).T)
    mean, deviation = torch.stack(draws).mean(0), torch.stack(draws).std(0)
    error = (mean - pairs.gram(a, b)).abs() / (deviation / math.sqrt(len(draws)))
    assert error.max() < 5
    assert error.mean() < 1.2


def test_fourier_features_have_norm_one():
    x, t, _, _ = random_sides()
    pairs = pair_kernel(GaussianKernel(0.3), GaussianKernel(2.0))
    norms = pairs.features(7, seed=0)(pairs.rows(x, t)).square().sum(1)
    assert_close(norms, torch.ones(30).double(), rtol=0, atol=1e-12)


def test_a_draw_is_fixed_by_its_seed():
    x, t, _, _ = random_sides()
    for kernel in (GaussianKernel(0.3), CosineKernel()):
        pairs = pair_kernel(kernel, kernel)
        rows = pairs.rows(x, t)
        assert torch.equal(pairs.features(9, 1)(rows), pairs.features(9, 1)(rows))
        assert not torch.equal(pairs.features(9, 1)(rows), pairs.features(9, 2)(rows))


@pytest.mark.parametrize(("frequencies", "eta"), [(100, 2.0), (1600, 1.0)])
def test_theorem_1_holds_over_100_draws(frequencies, eta):
    """‖λ(K) - λ(K̃)‖ ≤ sqrt((8 + 8 eta²) / r) (1 + sqrt(2 log(1 / δ))) with probability at least 1 - δ."""
    sides = random_sides(12, 10)
    x, t, y, u = sides
    pairs = PairKernel.of(y, u, GaussianKernel(0.1), GaussianKernel(0.2))
    rows, weights = torch.cat([pairs.rows(x, t), pairs.rows(y, u)]), torch.tensor([1 / 12] * 12 + [-eta / 10] * 10)
    exact = torch.from_numpy(difference_spectrum(*(side.numpy() for side in sides), (0.1, 0.2), eta).copy())
    bound = math.sqrt((8 + 8 * eta**2) / frequencies) * (1 + math.sqrt(2 * math.log(1 / 0.05)))
    errors = []
    for seed in range(100):
        features = pairs.features(frequencies, seed)(rows)
        found = torch.linalg.eigvals(weights[:, None] * (features @ features.T)).real.sort(descending=True).values
        errors.append(float((found - exact).norm()))
    assert sum(error <= bound for error in errors) >= 95
    assert 0.01 * bound < max(errors)  # the features are random after all
    assert sorted(errors)[50] < 2 / math.sqrt(frequencies)
