# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("kernel", "name"), [(GaussianKernel(gamma=0.3), "gaussian"), (LaplacianKernel(gamma=0.3), "laplacian")]
)
def test_exponential_kernels_are_the_formulas(kernel, name):
    x, y = draw(5, 3), draw(4, 3, seed=1)
    expected = ref.gram(x.numpy(), y.numpy(), 0.3, name)
    np.testing.assert_allclose(kernel(x, y), expected, rtol=1e-13)
    np.testing.assert_allclose(kernel(x.float(), y.float()), expected, rtol=1e-5)


def test_sigma_is_the_standard_deviation_of_the_gaussian():
    assert GaussianKernel.from_sigma(0.5) == GaussianKernel(gamma=2.0)


def test_cosine_is_the_formula():
    x, y = draw(5, 3), draw(4, 3, seed=1)
    norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1)
    np.testing.assert_allclose(CosineKernel()(x, y), x.numpy() @ y.numpy().T / norms, atol=1e-14)


def test_cosine_has_no_gamma():
    with pytest.raises(ValueError, match=r"no `gamma` for CosineKernel, but got 1\.0"):
        CosineKernel(gamma=1.0)
