# SPDX-License-Identifier: Apache-2.0
"""What is measured of each prompt's samples: how spread they are, and how far from the reference's."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.changes import Estimate
from genmonitor.functional.mmd_influence import RealSide
from genmonitor.functional.two_sample_test import MIN_SAMPLES
from genmonitor.kernels import Kernel
from genmonitor.kernels.means import kernel_dispersion

ALL = "all samples"
"""What the samples are called where those of single prompts are too few, or there are no prompts."""


class PromptGroups:
    """Which samples are judged together: those of each prompt that has enough, or all where none has.

    Args:
        prompts: sample i has prompt i modulo their number; None for a generator without prompts.
        sizes: how many samples there are, on each side of a comparison.

    Attributes:
        by_prompt: whether samples are judged prompt by prompt.
        left_out: how many prompts have too few samples to be judged.

    Example:
        >>> {name: len(rows) for name, rows in PromptGroups(Prompts([5, 7]), 17).split(torch.zeros(17, 2)).items()}
        {'5': 9, '7': 8}
    """

    def __init__(self, prompts: Prompts | None, *sizes: int) -> None:
        counts = [] if prompts is None else [Counter(prompts.names(n)) for n in sizes]
        distinct = [] if prompts is None else prompts.distinct
        enough = [min(count[prompt] for count in counts) >= MIN_SAMPLES for prompt in distinct]
        self._prompts, self._enough = prompts, enough
        self._any = min(sizes) >= MIN_SAMPLES
        self.by_prompt, self.left_out = any(enough), enough.count(False)

    def split(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the rows [N, ...] of each prompt that is judged, row i being of sample i; {} where there are too few.

        Args:
            rows: of all samples of a side.
        """
        if self._prompts is None or not self.by_prompt:
            return {ALL: rows} if self._any else {}
        numbers = self._prompts.numbers(torch.arange(len(rows), device=rows.device))
        judged = [(i, prompt) for i, prompt in enumerate(self._prompts.distinct) if self._enough[i]]
        return {str(prompt): rows[numbers == i] for i, prompt in judged}

    def note(self) -> str:
        """Return what a user should know about which prompts can raise alerts; "" where all can."""
        if not self.left_out:
            return ""
        others = "the others" if self.by_prompt else "all together" if self._any else "none"
        return (
            f"{self.left_out} of {len(self._enough)} prompts have fewer than {MIN_SAMPLES} samples, too few for alerts "
            f"about them; alerts are about {others}"
        )


def spread_by_prompt(features: Tensor, groups: PromptGroups, kernel: Kernel) -> dict[str, Estimate]:
    """Return how spread each prompt's samples are, see `kernel_dispersion`.

    Args:
        features: of all samples [N, D], row i of sample i.
        groups: whose samples are judged together.
        kernel: of the features.
    """
    out = {}
    for name, rows in groups.split(features).items():
        found = kernel_dispersion(rows, kernel)
        out[name] = Estimate(float(found.value), float(found.standard_error), len(rows))
    return out


class PromptDistances:
    """How far each prompt's samples are from the reference's: squared MMD without bias, see `mmd_influence`.

    Args:
        reference: features of all its samples [M, D], row i of the prompt of sample i.
        groups: whose samples are judged together.
    """

    def __init__(self, reference: Tensor, groups: PromptGroups) -> None:
        self._groups = groups
        self._sides = {name: RealSide.of(rows, None, None) for name, rows in groups.split(_wide(reference)).items()}

    def measure(self, features: Tensor) -> dict[str, Estimate]:
        """Return the distance of each prompt, from features [N, D] whose row i is of sample i."""
        out = {}
        for name, rows in self._groups.split(_wide(features)).items():
            side = self._sides[name]
            found = side.influence(rows.to(side.samples))
            n, m = len(rows), len(side.samples)
            error = (found.fake.var() / n + found.real.var() / m).sqrt()
            out[name] = Estimate(float(found.mmd), float(error), min(n, m))
        return out


def _wide(features: Tensor) -> Tensor:
    """Return features in a dtype that holds a kernel's small differences."""
    return features if features.dtype == torch.float64 else features.float()
