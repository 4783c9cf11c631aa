# SPDX-License-Identifier: Apache-2.0
"""PromptSplit, 8 modes of either side of n + n outputs (1536 values) and prompts (384), beside the paper's Table 1.

python benchmarks/promptsplit.py                      # about two minutes
python benchmarks/promptsplit.py --long               # the exact form at 20,000 and 30,000 samples a side as well
python benchmarks/promptsplit.py --case exact_10000
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import DEVICE, clock, row, run
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from genmonitor import GaussianKernel
from genmonitor.functional import prompt_split

OUTPUT_DIM, PROMPT_DIM, TOPICS, CHANGED, MODES = 1536, 384, 200, 20, 8

PAPER = {
    None: {1_000: 0.856, 5_000: 111.890, 10_000: 902.818},
    1_000: {1_000: 4.186, 5_000: 5.391, 10_000: 7.830, 30_000: 17.765},
    2_000: {1_000: 43.674, 5_000: 40.290, 10_000: 64.162, 30_000: 72.271},
    3_000: {1_000: 88.156, 5_000: 162.831, 10_000: 158.452, 30_000: 206.996},
}
"""Seconds on one RTX A5000 (Lotfian et al. 2026, Table 1), by frequency pairs (None: the exact form) and n."""

NOTES = (
    "Our times include the total, by all eigenvalues of 2,048 samples at most, and the samples' scores; scipy's eigsh "
    "finds the 16 eigenvalues alone. "
    "Random features of as many frequency pairs as a quarter of the samples or more: exact kernels cost less and are "
    "taken."
)


def sides(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw embeddings of prompts on 200 topics, of 20 of which the reference gives other outputs.

    Their variance falls like one over the rank, as that of real embeddings: most of the Gram matrix is in its tail.
    """
    generator = torch.Generator().manual_seed(0)
    topics = torch.randn(TOPICS, PROMPT_DIM, generator=generator)
    answers = torch.randn(2, TOPICS, OUTPUT_DIM, generator=generator)
    answers[1, CHANGED:] = answers[0, CHANGED:]
    scale = torch.arange(1, OUTPUT_DIM + 1).float().rsqrt()
    drawn = []
    for side in answers:
        topic = torch.randint(TOPICS, (n,), generator=generator)
        drawn.append((side[topic] + torch.randn(n, OUTPUT_DIM, generator=generator)) * scale)
        drawn.append(topics[topic] + 0.5 * torch.randn(n, PROMPT_DIM, generator=generator))
    return drawn[0], drawn[1], drawn[2], drawn[3]


def joint_gram(x: Tensor, t: Tensor, y: Tensor, u: Tensor) -> Tensor:
    """Compute the Gram matrix of both sides' pairs in float64, with the widths of the reference side."""
    outputs, prompts = torch.cat([x, y]).double(), torch.cat([t, u]).double()
    return GaussianKernel().resolved(y)(outputs, outputs) * GaussianKernel().resolved(u)(prompts, prompts)


def all_eigenpairs(*inputs: Tensor) -> np.ndarray:
    """Decompose the paper's matrix K_Δ (Eq. 3) as a whole, which is not symmetric; return its eigenvalues."""
    n = len(inputs[0])
    weights = torch.ones(2 * n, 1, dtype=torch.float64) / n
    weights[n:] *= -1
    return np.linalg.eig((joint_gram(*inputs) * weights).numpy())[0].real


def scipy_eigsh(*inputs: Tensor) -> np.ndarray:
    """Find the outermost eigenvalues of Lᵀ W L, symmetric and with the eigenvalues of K_Δ = W L Lᵀ, by Lanczos."""
    n = len(inputs[0])
    lower = torch.linalg.cholesky(joint_gram(*inputs) + 1e-10 * torch.eye(2 * n)).numpy()
    weights = np.r_[np.full(n, 1 / n), np.full(n, -1 / n)]

    def apply(v: np.ndarray) -> np.ndarray:
        return lower.T @ (weights * (lower @ v))

    operator = LinearOperator((2 * n, 2 * n), matvec=apply, dtype=np.float64)
    return eigsh(operator, k=2 * MODES, which="BE", return_eigenvectors=False)


def timed(work: Callable[..., Any], *inputs: Tensor) -> tuple[float, Any]:
    start = clock()
    found = work(*inputs)
    return clock() - start, found


def case(n: int, pairs: int | None, *peers: Callable[..., np.ndarray]) -> Callable[[], dict[str, Any]]:
    def split(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        modes = prompt_split(*inputs, num_modes=MODES, num_features=pairs)
        return modes.eigenvalues.cpu(), modes.residuals.cpu()

    def measure() -> dict[str, Any]:
        # loads what is loaded once
        prompt_split(*(side.to(DEVICE) for side in sides(100)), num_features=pairs and 100)
        inputs = [side.to(DEVICE) for side in sides(n)]
        took, (eigenvalues, residuals) = timed(split, *inputs)
        theirs, error = {}, None
        for peer in peers:
            theirs[peer.__name__.replace("_", " ")], exact = timed(peer, *(side.cpu() for side in inputs))
            falling = np.sort(exact)[::-1]
            furthest = np.concatenate([falling[:MODES], falling[-MODES:]])
            error = float(np.abs(eigenvalues.numpy() - furthest).max())
        if n in PAPER[pairs]:
            theirs["paper, RTX A5000"] = PAPER[pairs][n]
        size = 2 * n if pairs is None else min(4 * pairs, 2 * n)
        more = {
            "largest eigenvalue": f"{float(eigenvalues[0]):.4f}",
            "largest residual": f"{float(residuals.max()):.0e}",
        }
        return row(
            f"{n:,} + {n:,}",
            "exact" if pairs is None else f"{pairs:,} frequency pairs",
            took,
            operations=2 * n * size * (OUTPUT_DIM + PROMPT_DIM if pairs is None else size),
            moved=sum(side.numel() * side.element_size() for side in inputs),
            error=error,
            peers=theirs,
            more=more,
        )

    measure.__name__ = f"exact_{n}" if pairs is None else f"features_{n}_{pairs}"
    return measure


if __name__ == "__main__":
    exact = [
        case(500, None, all_eigenpairs, scipy_eigsh),
        case(1_000, None, all_eigenpairs, scipy_eigsh),
        case(2_000, None, scipy_eigsh),
        case(5_000, None, scipy_eigsh),
        case(10_000, None),
    ]
    random = [case(n, pairs) for pairs in (1_000, 2_000, 3_000) for n in (1_000, 5_000, 10_000, 30_000)]
    long = [case(n, None) for n in (20_000, 30_000)]
    run(__file__, [*exact, *random], "PromptSplit: 8 modes of either side", long, notes=NOTES)
