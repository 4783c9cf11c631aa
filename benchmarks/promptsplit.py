# SPDX-License-Identifier: Apache-2.0
"""PromptSplit, the 16 outermost modes of n + n outputs (1536 values) and prompts (384), beside the paper's Table 1.

python benchmarks/promptsplit.py                      # about two minutes
python benchmarks/promptsplit.py --long               # the exact form at 20,000 and 30,000 samples a side as well
python benchmarks/promptsplit.py --case exact_10000
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from harness import run
from torch import Tensor

from genmonitor.functional import prompt_split

OUTPUT_DIM, PROMPT_DIM, TOPICS, CHANGED = 1536, 384, 200, 20

PAPER = {
    None: {1_000: 0.856, 5_000: 111.890, 10_000: 902.818},
    1_000: {1_000: 4.186, 5_000: 5.391, 10_000: 7.830, 30_000: 17.765},
    2_000: {1_000: 43.674, 5_000: 40.290, 10_000: 64.162, 30_000: 72.271},
    3_000: {1_000: 88.156, 5_000: 162.831, 10_000: 158.452, 30_000: 206.996},
}
"""Seconds on one RTX A5000 (Lotfian et al. 2026, Table 1), by frequency pairs (None: the exact form) and n."""


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


def case(n: int, pairs: int | None) -> Callable[[], dict[str, Any]]:
    def measure() -> dict[str, Any]:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        prompt_split(*(x.to(device) for x in sides(100)), num_features=pairs and 100)  # loads what is loaded once
        x, t, y, u = (x.to(device) for x in sides(n))
        start = time.perf_counter()
        modes = prompt_split(x, t, y, u, num_modes=16, num_features=pairs)
        largest = float(modes.eigenvalues.abs().max())  # waits for the device
        took, paper = time.perf_counter() - start, PAPER[pairs].get(n)
        return {
            "form": "exact" if pairs is None else f"{pairs} frequency pairs",
            "n + n": f"{n} + {n}",
            "seconds": f"{took:.1f}",
            "paper, RTX A5000": "—" if paper is None else f"{paper:.1f}",
            "× paper": "" if paper is None else f"{paper / took:.1f}",
            "largest eigenvalue": f"{largest:.4f}",
            "largest residual": f"{float(modes.residuals.max()):.0e}",
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        }

    measure.__name__ = f"exact_{n}" if pairs is None else f"features_{n}_{pairs}"
    return measure


if __name__ == "__main__":
    exact = [case(n, None) for n in (1_000, 5_000, 10_000)]
    random = [case(n, pairs) for pairs in (1_000, 2_000, 3_000) for n in (1_000, 5_000, 10_000, 30_000)]
    long = [case(n, None) for n in (20_000, 30_000)]
    run(__file__, [*exact, *random], "PromptSplit: the 16 outermost modes", long)
