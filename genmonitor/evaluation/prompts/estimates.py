# SPDX-License-Identifier: Apache-2.0
"""Estimates of each prompt's samples, how spread they are and how far from real ones, and which are judged alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.functional.mmd_influence import RealSide
from genmonitor.functional.two_sample_test import MIN_SAMPLES
from genmonitor.kernels import Kernel
from genmonitor.kernels.means import kernel_dispersion

ALL = "all samples"
"""Name of all samples, where single prompts have too few or there are no prompts."""


@dataclass(frozen=True)
class Estimate:
    """A value of a prompt's samples.

    Attributes:
        value: the estimate.
        error: its standard error.
        samples: the number that the error is estimated from.
    """

    value: float
    error: float
    samples: int


class PromptGroups:
    """Groups of samples that are judged together: those of each prompt with enough, or all if none has enough.

    Args:
        prompts: sample i has prompt i modulo their number; None for a generator without prompts.
        sizes: numbers of samples, on each side of a comparison.

    Attributes:
        by_prompt: whether samples are judged prompt by prompt.
        left_out: number of prompts with too few samples to be judged.
        names: of the groups that are judged.

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
        alone = [str(prompt) for prompt, judged in zip(distinct, enough, strict=True) if judged]
        self.names = alone or ([ALL] if self._any else [])

    def split(self, rows: Tensor) -> dict[str, Tensor]:
        """Split rows [N, ...], row i of sample i, by the prompts that are judged; {} if there are too few.

        Args:
            rows: of all samples of a side.
        """
        if self._prompts is None or not self.by_prompt:
            return {ALL: rows} if self._any else {}
        numbers = self._prompts.numbers(torch.arange(len(rows), device=rows.device))
        judged = [(i, prompt) for i, prompt in enumerate(self._prompts.distinct) if self._enough[i]]
        return {str(prompt): rows[numbers == i] for i, prompt in judged}

    def note(self) -> str:
        """Return a note on the prompts that cannot raise alerts; "" if all can."""
        if not self.left_out:
            return ""
        others = "the others" if self.by_prompt else "all together" if self._any else "none"
        return (
            f"{self.left_out} of {len(self._enough)} prompts have fewer than {MIN_SAMPLES} samples, too few for alerts "
            f"about them; alerts are about {others}"
        )


def spread_by_prompt(features: Tensor, groups: PromptGroups, kernel: Kernel) -> dict[str, Estimate]:
    """Estimate the spread of each prompt's samples, see `kernel_dispersion`.

    Args:
        features: of all samples [N, D], row i of sample i.
        groups: of samples judged together.
        kernel: of the features.
    """
    out = {}
    for name, rows in groups.split(features).items():
        found = kernel_dispersion(rows, kernel)
        out[name] = Estimate(float(found.value), float(found.standard_error), len(rows))
    return out


class PromptDistances:
    """Distances of each prompt's samples from the reference's: squared MMD without bias, see `mmd_influence`.

    Args:
        reference: features of all its samples [M, D], row i of the prompt of sample i.
        groups: of samples judged together.
    """

    def __init__(self, reference: Tensor, groups: PromptGroups) -> None:
        self._groups = groups
        self._sides = {name: RealSide.of(rows, None, None) for name, rows in groups.split(_wide(reference)).items()}

    def measure(self, features: Tensor) -> dict[str, Estimate]:
        """Estimate the distance of each prompt from features [N, D], row i of sample i."""
        out = {}
        for name, rows in self._groups.split(_wide(features)).items():
            side = self._sides[name]
            found = side.influence(rows.to(side.samples))
            n, m = len(rows), len(side.samples)
            error = (found.fake.var() / n + found.real.var() / m).sqrt()
            out[name] = Estimate(float(found.mmd), float(error), min(n, m))
        return out


def _wide(features: Tensor) -> Tensor:
    """Convert features to a dtype that resolves a kernel's small differences."""
    return features if features.dtype == torch.float64 else features.float()
