# SPDX-License-Identifier: Apache-2.0
"""Pairs of sides whose spectra are of all kinds, and PromptSplit's total of them in NumPy."""

import functools

import numpy as np
import torch
from _helpers.golden import digits
from _helpers.joint_spectra import ken_total, labels, mixture
from torch import Tensor

from genmonitor import GaussianKernel
from genmonitor.kernels.product import PairKernel

N = 400
"""Samples a side."""


def dimmed(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Digits at 0.7 of their brightness against themselves, with their labels as prompts."""
    index = torch.arange(n) % 1797
    images, prompts = (digits().flatten(1) + 1) / 2, torch.nn.functional.one_hot(labels()).double()
    return 0.7 * images[index], prompts[index], images[index], prompts[index]


def kernels(sigma: float, prompt_sigma: float) -> dict[str, GaussianKernel]:
    return {
        "output_kernel": GaussianKernel.from_sigma(sigma),
        "prompt_kernel": GaussianKernel.from_sigma(prompt_sigma),
    }


@functools.cache
def spectra() -> dict[str, tuple[tuple[Tensor, ...], dict]]:
    """Sides and arguments whose spectra are flat, steep, of low rank, one-sided, multiple, of noise alone."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, y, t, u = draw(N, 200), draw(N, 200), draw(N, 50), draw(N, 50)
    scale = torch.arange(1, 201).double().rsqrt()
    topics, answers = draw(40, 32), draw(2, 40, 200)
    answers[1, 8:] = answers[0, 8:]
    topic, other = torch.randint(40, (2, N), generator=generator)
    embeddings = (
        (answers[0, topic] + x) * scale,
        topics[topic] + 0.5 * draw(N, 32),
        (answers[1, other] + y) * scale,
        topics[other] + 0.5 * draw(N, 32),
    )
    components = tuple(side.double()[::2] for side in mixture(3))
    copies = tuple(side.double()[::2] for side in mixture(3, spread=0.0))
    one = (x[:1] + 0.01 * x, t[:1] + 0.01 * t, y, u)
    large = {"output_kernel": GaussianKernel(0.1), "prompt_kernel": GaussianKernel(0.1)}
    return {
        "dimmed digits": (dimmed(N), kernels(4.3, 0.25)),
        "noise": ((x, t, y, u), {}),
        "embeddings": (embeddings, {}),
        "mixture": (components, {}),
        "mixture, eta 10": (components, {"eta": 10.0}),
        "copies": (copies, {}),
        "one mode above all others": (one, {}),
        "sides far apart": ((x, t, y + 100, u), large | {"output_kernel": GaussianKernel(1e-3)}),
        "nearly orthogonal": ((x, t, y, u), large),
    }


@functools.cache
def exact_total(name: str) -> float:
    """The total of one of the spectra by all eigenvalues of K^½ D K^½, in NumPy."""
    (x, t, y, u), arguments = spectra()[name]
    eta, options = arguments.get("eta", 1.0), {k: v for k, v in arguments.items() if k != "eta"}
    kernel = PairKernel.of(y, u, options.get("output_kernel"), options.get("prompt_kernel"))
    rows = torch.cat([kernel.rows(x, t), kernel.rows(y, u)])
    values, vectors = np.linalg.eigh(kernel.gram(rows, rows).numpy())
    root = vectors * np.sqrt(
        values * (values > 1e-14 * values.max())
    )  # where copies cancel, rounding has a square root
    weights = np.repeat([1 / len(x), -eta / len(y)], [len(x), len(y)])
    return ken_total(np.linalg.eigvalsh(root.T @ (weights[:, None] * root)))
