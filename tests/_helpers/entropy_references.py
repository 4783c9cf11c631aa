# SPDX-License-Identifier: Apache-2.0
"""Golden numbers of the scores by entropy and neighbors, and their slow twins in NumPy, written from the formulas.

Samples are float64 arrays (n, d), features of norm 1 (n, p).
"""

import functools

import numpy as np
import torch
from _helpers.references import Array
from sklearn.datasets import load_digits
from torch import Tensor

VENDI, RKE, VENDI_INFINITE = 4.3553368664, 2.0038426664, 1.4266858838
"""Cosine kernel, `digits() + 1`."""
EXACT_VENDI, EXACT_RKE = 263.950446858, 128.939924320
"""Gaussian kernel of sigma 2, `digits()`."""
SCENDI = {"scendi": 1.6416991166, "scendi_prompt": 1.9433543382, "prompt_share": 0.8447667684}
"""Cosine kernels, outputs `digits() + 1`, prompts `one_hot()`."""


@functools.cache
def digits() -> Tensor:
    """The first 500 digits (500, 64) in [-1, 1], float64."""
    return torch.from_numpy(load_digits().images[:500]).flatten(1) / 8 - 1


@functools.cache
def one_hot() -> Tensor:
    """Their labels (500, 10), float64."""
    return torch.nn.functional.one_hot(torch.from_numpy(load_digits().target[:500])).double()


def unit(x: Array) -> Array:
    return x / np.sqrt((x**2).sum(1, keepdims=True))


def fourier(x: Array, frequencies: Array) -> Array:
    angles = x @ frequencies.T
    return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(len(frequencies))


def spectrum(matrix: Array) -> Array:
    values = np.linalg.eigvalsh(matrix)
    return values[values > 1e-12]


def vendi(gram: Array, order: float = 1.0) -> float:
    p = spectrum(gram / len(gram))
    if order == 1:
        return float(np.exp(-(p * np.log(p)).sum()))
    if np.isinf(order):
        return float(1 / p.max())
    return float((p**order).sum() ** (1 / (1 - order)))


def truncated_vendi(gram: Array, t: int) -> float:
    p = np.sort(np.linalg.eigvalsh(gram / len(gram)))[-t:]
    p = p + (1 - p.sum()) / t
    return float(np.exp(-(p * np.log(p)).sum()))


def parts(outputs: Array, prompts: Array, rcond: float) -> tuple[Array, Array]:
    """Λ_I and Λ_T of features."""
    n = len(outputs)
    c_ii, c_it, c_tt = outputs.T @ outputs / n, outputs.T @ prompts / n, prompts.T @ prompts / n
    driven = c_it @ np.linalg.pinv(c_tt, rcond, hermitian=True) @ c_it.T
    return c_ii - driven, driven


def scendi(outputs: Array, prompts: Array, rcond: float = 1e-6) -> dict[str, float]:
    def score(part: Array) -> float:
        p = spectrum(part)
        return float(np.exp((p * np.log(p.sum() / p)).sum()))

    model, driven = parts(outputs, prompts, rcond)
    return {"scendi": score(model), "scendi_prompt": score(driven), "prompt_share": float(np.trace(driven))}


def conditional_vendi(gram: Array, prompt_gram: Array, order: float = 1.0) -> dict[str, float]:
    outputs, prompts, pairs = (np.log(vendi(k, order)) for k in (gram, prompt_gram, gram * prompt_gram))
    return {
        "conditional_vendi": float(np.exp(pairs - prompts)),
        "information_vendi": float(np.exp(outputs + prompts - pairs)),
    }


def prdc(fake: Array, real: Array, k: int, tie: float = 0.0) -> dict[str, float]:
    """Go by the definitions, one sample after the other; what is closer to a radius than its part `tie` is outside."""

    def radius(x: Array, i: int) -> float:
        others = [np.linalg.norm(x[i] - x[j]) for j in range(len(x)) if j != i]
        return float(np.sort(others)[k - 1])

    fake_radii, real_radii = ([(1 - tie) * radius(x, i) for i in range(len(x))] for x in (fake, real))
    distances = [[np.linalg.norm(x - y) for x in fake] for y in real]
    in_real = np.array([[d < r for d in row] for row, r in zip(distances, real_radii, strict=True)])
    in_fake = np.array([[d < r for d, r in zip(row, fake_radii, strict=True)] for row in distances])
    return {
        "precision": float(np.mean([in_real[:, j].any() for j in range(len(fake))])),
        "recall": float(np.mean([in_fake[i].any() for i in range(len(real))])),
        "density": float(np.mean([in_real[:, j].sum() / k for j in range(len(fake))])),
        "coverage": float(np.mean([in_real[i].any() for i in range(len(real))])),
    }
