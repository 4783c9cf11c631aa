# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from genmonitor import CosineKernel


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_cosine_is_the_formula():
    x, y = draw(5, 3), draw(4, 3, seed=1)
    norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1)
    np.testing.assert_allclose(CosineKernel()(x, y), x.numpy() @ y.numpy().T / norms, atol=1e-14)


def test_cosine_has_no_gamma():
    with pytest.raises(ValueError, match=r"no `gamma` for CosineKernel, but got 1\.0"):
        CosineKernel(gamma=1.0)
