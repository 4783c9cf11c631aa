# SPDX-License-Identifier: Apache-2.0
import numpy as np
import torch
from _helpers import references as ref

from genmonitor import GaussianKernel


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_gaussian_is_the_formula():
    x, y = draw(5, 3), draw(4, 3, seed=1)
    expected = ref.gram(x.numpy(), y.numpy(), 0.3, "gaussian")
    np.testing.assert_allclose(GaussianKernel(gamma=0.3)(x, y), expected, rtol=1e-13)
    np.testing.assert_allclose(GaussianKernel(gamma=0.3)(x.float(), y.float()), expected, rtol=1e-5)


def test_sigma_is_the_standard_deviation_of_the_gaussian():
    assert GaussianKernel.from_sigma(0.5) == GaussianKernel(gamma=2.0)
