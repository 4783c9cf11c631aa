# SPDX-License-Identifier: Apache-2.0
"""What DisagreementEvaluator measures: the modes of both signs, and the prompts that they are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from genmonitor.evaluation.collective import Collective
from genmonitor.functional.promptsplit import PromptSplitModes, rank_prompts

LOOKED_AT = 2
"""Modes of either sign that are computed for each one that is logged: prompts are ranked by all of them."""
ROUNDING = 1e-6
"""An eigenvalue closer to zero than this is none."""
LARGEST_SIDE = 128
"""Pixels of the pictures that are kept of samples."""

Ranked = list[tuple[Any, float]]
"""Prompts with a number each, falling."""


@dataclass(frozen=True, eq=False)
class SampleSet:
    """The outputs of one side of the comparison, or those of one process.

    Attributes:
        features: [n, d]; row i of all has prompt i modulo the number of prompts.
        shown: pictures of the first k samples of every prompt, in the same order [k · prompts, C, h, w].
    """

    features: Tensor
    shown: Tensor

    def gathered(self, comm: Collective) -> SampleSet:
        """Return those of all processes; every process must call it."""
        return SampleSet(comm.gather_rows(self.features), comm.gather_rows(self.shown).cpu())


@dataclass(frozen=True)
class Mode:
    """A mode and its prompts.

    Attributes:
        eigenvalue: positive where the model has it and the reference lacks it.
        prompts: with their mean score on the side that has the mode.
    """

    eigenvalue: float
    prompts: Ranked


@dataclass(frozen=True)
class Disagreement:
    """Where the model and the reference differ.

    Attributes:
        total: Σ λ log(S / λ) over the positive eigenvalues, S their sum.
        top: the largest positive eigenvalues, falling; fewer than asked for where there are fewer.
        bottom: the lowest negative ones, rising.
        similar: a mode that both sides have.
        changed: every prompt with its part of the modes looked at, falling.
        total_error: the total's standard error, 0 where it is exact.
    """

    total: float
    top: list[Mode]
    bottom: list[Mode]
    similar: Mode
    changed: Ranked
    total_error: float = 0.0


def thumbnail(images: Tensor) -> Tensor:
    """Return images [n, C, H, W] as small pictures, averaged over squares where they are large."""
    factor = -(-max(images.shape[2:]) // LARGEST_SIDE)
    return avg_pool2d(images, factor) if factor > 1 else images


def disagreement(
    split: Callable[[int], PromptSplitModes], k: int, names: Sequence[Any], reference_names: Sequence[Any]
) -> Disagreement:
    """Read the k largest modes of either sign and their prompts off a split.

    Args:
        split: gives so many modes of either sign.
        k: modes of each sign.
        names: the prompt of each sample of the model.
        reference_names: the prompt of each sample of the reference.
    """
    modes = split(LOOKED_AT * k)
    values = modes.eigenvalues.tolist()
    top = [i for i in range(k) if values[i] > ROUNDING]
    bottom = [i for i in range(-1, -k - 1, -1) if values[i] < -ROUNDING]
    similar = modes.similar or modes
    return Disagreement(
        float(modes.total),
        [Mode(values[i], rank_prompts(modes.scores[:, i], names)) for i in top],
        [Mode(values[i], rank_prompts(modes.reference_scores[:, i], reference_names)) for i in bottom],
        Mode(float(similar.eigenvalues[0]), rank_prompts(similar.scores[:, 0], names)),
        _changed(modes, names, reference_names),
        float(modes.total_error),
    )


def _changed(modes: PromptSplitModes, names: Sequence[Any], reference_names: Sequence[Any]) -> Ranked:
    values = modes.eigenvalues
    whole = values.abs().sum()
    weights = values.sign() / whole if whole > ROUNDING else torch.zeros_like(values)
    parts = modes.parts(names, reference_names)
    weighted = [(prompt, float((part * weights).sum())) for prompt, part in parts.items()]
    return sorted(weighted, key=lambda pair: pair[1], reverse=True)
