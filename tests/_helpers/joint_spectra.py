# SPDX-License-Identifier: Apache-2.0
"""PromptSplit's slow twins in NumPy, written from the paper's equations, and the data that its tests share."""

import functools

import numpy as np
import torch
from _helpers.golden import digits
from _helpers.references import Array, gram
from sklearn.datasets import load_digits
from torch import Tensor

from genmonitor import GaussianKernel
from genmonitor.linalg.spectrum import Space

KERNELS = {"output_kernel": GaussianKernel.from_sigma(3), "prompt_kernel": GaussianKernel.from_sigma(0.5)}
"""Of the golden numbers."""

TOP = [0.04742459, 0.03747312, 0.03478913, 0.02473298]
BOTTOM = [-0.02559710, -0.03945521, -0.03995746]
TOTAL = 3.557133186
ENERGY = 0.016784402792


def labels() -> Tensor:
    return torch.from_numpy(load_digits().target)


@functools.cache
def digit_sides() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Digits with their labels as prompts; the reference has 3 and 7 in negative."""
    x, label = digits().flatten(1), labels()
    t = torch.nn.functional.one_hot(label).double()
    y = x[500:1000] * torch.where((label == 3) | (label == 7), -1, 1)[500:1000, None]
    return x[:500], t[:500], y, t[500:1000]


def random_sides(n: int = 30, m: int = 20, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Test and reference outputs and prompts, three of a prompt, all dimensions different."""
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randn(10, 3, generator=generator, dtype=torch.float64)
    t, u = prompts[torch.arange(n) // 3 % 10], prompts[torch.arange(m) // 2 % 10]
    x, y = (torch.randn(count, 5, generator=generator, dtype=torch.float64) for count in (n, m))
    return x + t[:, :1], t, y - u[:, 1:2], u


def mixture(differing: int, spread: float = 0.3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Eight components of 50 values, each with a prompt of its own, 100 samples each; the first ones differ."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(8, 50, generator=generator)
    others = centers.clone()
    others[:differing] = torch.randn(differing, 50, generator=generator)
    component = torch.arange(8).repeat_interleave(100)
    noise = spread * torch.randn(2, 800, 50, generator=generator)
    prompts = torch.eye(8)[component]
    return centers[component] + noise[0], prompts, others[component] + noise[1], prompts


def joint_gram(x: Array, t: Array, y: Array, u: Array, gammas: tuple[float, float]) -> Array:
    return gram(x, y, gammas[0]) * gram(t, u, gammas[1])


def difference_spectrum(x: Array, t: Array, y: Array, u: Array, gammas: tuple[float, float], eta: float) -> Array:
    """All eigenvalues of K_Δ (Eq. 3), falling."""
    n, m = len(x), len(y)
    across = joint_gram(x, t, y, u, gammas) / np.sqrt(n * m)
    k = np.block(
        [
            [joint_gram(x, t, x, t, gammas) / n, across],
            [-eta * across.T, -eta * joint_gram(y, u, y, u, gammas) / m],
        ]
    )
    return np.sort(np.linalg.eigvals(k).real)[::-1]


def by_side(eigenvalues: Array, count: int) -> Array:
    """The `count` largest positive and as many of the lowest negative, falling, with zeros for those that lack."""
    falling = np.sort(eigenvalues)[::-1]
    positive, negative = falling[falling > 0][:count], falling[falling < 0][-count:]
    return np.concatenate([positive, np.zeros(2 * count - len(positive) - len(negative)), negative])


def symmetric(n: int, seed: int = 0) -> Tensor:
    x = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x + x.T


def ends_of(matrix: Tensor, count: int, columns: int = 8) -> Space:
    signs = torch.randint(2, (len(matrix), columns), generator=torch.Generator().manual_seed(1))
    return Space.ends(lambda v: v, lambda v: matrix @ v, 2e-16, 2 * signs.double() - 1, count, max_blocks=32)


def ken_total(eigenvalues: Array) -> float:
    positive = eigenvalues[eigenvalues > 1e-12]
    return float((positive * np.log(positive.sum() / positive)).sum())


def energy(x: Array, t: Array, y: Array, u: Array, gammas: tuple[float, float], eta: float) -> float:
    squares = [
        (joint_gram(a, b, c, d, gammas) ** 2).mean() for a, b, c, d in ((x, t, x, t), (x, t, y, u), (y, u, y, u))
    ]
    return float(squares[0] - 2 * eta * squares[1] + eta**2 * squares[2])
