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
SHOWN = 5
"""Samples of each side that show a mode."""
LARGEST_SIDE = 128
"""Pixels of the pictures that are kept of samples."""

Ranked = list[tuple[Any, float]]
"""Prompts with a number each, falling."""


@dataclass(frozen=True, eq=False)
class SampleSet:
    """The outputs of one side of the comparison, or those of one process.

    Attributes:
        features: [n, d].
        indices: which of the global set each row is, int64 [n]; row i has prompt `indices[i]` modulo their number.
        shown: pictures of some samples of every prompt [k, C, h, w].
        shown_indices: which of the global set these are, int64 [k].
    """

    features: Tensor
    indices: Tensor
    shown: Tensor
    shown_indices: Tensor

    def gathered(self, comm: Collective) -> SampleSet:
        """Return those of all processes, in the order of the global set; every process must call it."""
        features, indices = comm.gather_rows(self.features), comm.gather_rows(self.indices)
        shown, shown_indices = comm.gather_rows(self.shown).cpu(), comm.gather_rows(self.shown_indices)
        order, shown_order = indices.argsort(), shown_indices.argsort()
        return SampleSet(
            features[order.to(features.device)], indices[order], shown[shown_order.cpu()], shown_indices[shown_order]
        )


@dataclass(frozen=True)
class Mode:
    """A mode and its prompts.

    Attributes:
        eigenvalue: positive where the model has it and the reference lacks it.
        prompts: with their mean score on the side that has the mode.
        samples: rows of the model with the highest scores on it, the highest first.
        reference_samples: the same of the reference.
    """

    eigenvalue: float
    prompts: Ranked
    samples: Sequence[int] = ()
    reference_samples: Sequence[int] = ()


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
        [_mode(modes, i, modes.scores, names) for i in top],
        [_mode(modes, i, modes.reference_scores, reference_names) for i in bottom],
        _mode(similar, 0, similar.scores, names),
        _changed(modes, names, reference_names),
        float(modes.total_error),
    )


def _mode(modes: PromptSplitModes, i: int, owner: Tensor, names: Sequence[Any]) -> Mode:
    """Read a mode off a split, its prompts by the scores of the side that has it."""
    highest = [scores[:, i].topk(min(SHOWN, len(scores))).indices for scores in (modes.scores, modes.reference_scores)]
    ranked = rank_prompts(owner[:, i], names)
    return Mode(float(modes.eigenvalues[i]), ranked, *(rows.tolist() for rows in highest))


def _changed(modes: PromptSplitModes, names: Sequence[Any], reference_names: Sequence[Any]) -> Ranked:
    values = modes.eigenvalues
    whole = values.abs().sum()
    weights = values.sign() / whole if whole > ROUNDING else torch.zeros_like(values)
    parts = modes.parts(names, reference_names)
    weighted = [(prompt, float((part * weights).sum())) for prompt, part in parts.items()]
    return sorted(weighted, key=lambda pair: pair[1], reverse=True)
