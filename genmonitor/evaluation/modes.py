# SPDX-License-Identifier: Apache-2.0
"""Modes of samples with prompts: those of a disagreement with their prompts, those of diversity with their samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from genmonitor.distributed import Collective
from genmonitor.findings.finding import differs
from genmonitor.functional.promptsplit import PromptSplitModes, rank_prompts
from genmonitor.functional.scendi import scendi_from_covariances
from genmonitor.functional.vendi import rke_from_covariance, vendi_from_covariance, vendi_from_gram
from genmonitor.images.sampler import Samples
from genmonitor.linalg.distances import symmetric_product
from genmonitor.metrics.scendi import ScendiScore

ROUNDING = 1e-6
"""Absolute value below which eigenvalues count as zero."""
LARGEST_SIDE = 128
"""Largest side of the pictures of samples, in pixels."""

COVARIANCES = ("outputs", "prompts")
"""Keys that DiversityMetric returns in addition to scores."""

Ranked = list[tuple[Any, float]]
"""Prompts with a number each, in falling order."""


@dataclass(frozen=True, eq=False)
class SampleSet:
    """Outputs of one side of the comparison, or of one process.

    Attributes:
        features: Features [n, d].
        indices: Index of each row in the global set, int64 [n]; row i has prompt `indices[i]` modulo their number.
        shown: Pictures of some samples of every prompt [k, C, h, w].
        shown_indices: Indices of these in the global set, int64 [k].
    """

    features: Tensor
    indices: Tensor
    shown: Tensor
    shown_indices: Tensor

    def gathered(self, comm: Collective) -> SampleSet:
        """Return the samples of all processes, in the order of the global set. Every process must call it."""
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
        eigenvalue: Eigenvalue, positive if the model has the mode and the reference lacks it.
        prompts: Prompts with their mean score on the side that has the mode.
        samples: Rows of the model with the highest scores, the highest first.
        reference_samples: Rows of the reference with the highest scores.
    """

    eigenvalue: float
    prompts: Ranked
    samples: Sequence[int] = ()
    reference_samples: Sequence[int] = ()


class ByChance(NamedTuple):
    """Disagreement of a random split of the samples, see `permuted_sides`.

    Attributes:
        total: Total, as in `Disagreement`.
        top: Largest eigenvalue.
        bottom: Lowest eigenvalue.
    """

    total: float
    top: float
    bottom: float

    @classmethod
    def of(cls, modes: PromptSplitModes) -> ByChance:
        """Make it from a split."""
        return cls(float(modes.total), float(modes.eigenvalues[0]), float(modes.eigenvalues[-1]))


@dataclass(frozen=True)
class Disagreement:
    """Modes in which the model and the reference differ.

    Attributes:
        total: Σ λ log(S / λ) over the positive eigenvalues with sum S.
        top: Largest positive eigenvalues, in falling order, at most the requested number.
        bottom: Lowest negative eigenvalues, in rising order.
        similar: Mode that both sides have.
        changed: Every prompt with its part of these modes, in falling order.
        p: P-value that both sides answer their prompts alike.
        by_chance: Draws of random splits, as for two sets of one model.
        prompt_p: P-value of each prompt, at one level for all; empty if single prompts cannot be tested.
    """

    total: float
    top: list[Mode]
    bottom: list[Mode]
    similar: Mode
    changed: Ranked
    p: float = 0.0
    by_chance: Sequence[ByChance] = ()
    prompt_p: Mapping[Any, float] = field(default_factory=dict)

    @property
    def differing(self) -> Ranked:
        """Prompts of `changed` that differ by more than chance; all of them if single ones cannot be tested."""
        untested = 1.0 if self.prompt_p else self.p
        return [(prompt, part) for prompt, part in self.changed if differs(self.prompt_p.get(prompt, untested))]

    def named(self, count: int) -> list[tuple[str, Mode]]:
        """Return a number of modes of either sign by their names, "top 1" and so on."""
        signs = {"top": self.top, "bottom": self.bottom}
        return [(f"{sign} {i}", mode) for sign, modes in signs.items() for i, mode in enumerate(modes[:count], start=1)]

    def beyond_chance(self, mode: Mode) -> bool:
        """Return True if a mode is larger than any mode of random splits."""
        limits = [drawn.top if mode.eigenvalue > 0 else -drawn.bottom for drawn in self.by_chance]
        return differs(self.p) and abs(mode.eigenvalue) > max(limits, default=0.0)


def thumbnail(images: Tensor) -> Tensor:
    """Shrink large images [n, C, H, W] by averaging over squares."""
    factor = -(-max(images.shape[2:]) // LARGEST_SIDE)
    return avg_pool2d(images, factor) if factor > 1 else images


def disagreement(
    split: Callable[[int], PromptSplitModes], k: int, names: Sequence[Any], reference_names: Sequence[Any]
) -> Disagreement:
    """Return the k largest modes of either sign of a split, with their prompts.

    Args:
        split: Function that returns a number of modes of either sign.
        k: Number of modes of either sign.
        names: Prompt of each sample of the model.
        reference_names: Prompt of each sample of the reference.
    """
    modes = split(2 * k)  # prompts are ranked by more modes than are logged
    values = modes.eigenvalues.tolist()
    of_test, of_reference = (modes.scores, names), (modes.reference_scores, reference_names)
    top = [_mode(modes, i, *of_test) for i in range(k) if values[i] > ROUNDING]
    bottom = [_mode(modes, i, *of_reference) for i in range(-1, -k - 1, -1) if values[i] < -ROUNDING]
    similar = modes.similar or modes
    shared = _mode(similar, 0, similar.scores, names)
    return Disagreement(float(modes.total), top, bottom, shared, _changed(modes, names, reference_names))


def _mode(modes: PromptSplitModes, i: int, owner: Tensor, names: Sequence[Any]) -> Mode:
    """Return a mode of a split, with prompts ordered by the scores of the side that has it."""
    # five samples of each side show a mode
    highest = [scores[:, i].topk(min(5, len(scores))).indices for scores in (modes.scores, modes.reference_scores)]
    ranked = rank_prompts(owner[:, i], names)
    return Mode(float(modes.eigenvalues[i]), ranked, *(rows.tolist() for rows in highest))


def _changed(modes: PromptSplitModes, names: Sequence[Any], reference_names: Sequence[Any]) -> Ranked:
    values = modes.eigenvalues
    whole = values.abs().sum()
    weights = values.sign() / whole if whole > ROUNDING else torch.zeros_like(values)
    parts = modes.parts(names, reference_names)
    weighted = [(prompt, float((part * weights).sum())) for prompt, part in parts.items()]
    return sorted(weighted, key=lambda pair: pair[1], reverse=True)


class DiversityMetric(ScendiScore):
    """Scendi, and Vendi and RKE of the outputs, all from the joint covariance."""

    def compute(self) -> dict[str, Tensor]:
        """Return what ScendiScore does, `vendi`, `rke`, `one_prompt_share`, and the covariances of both sides."""
        joint = self._joint()
        mean = self.feature_sum[: len(joint.outputs)] / self.count  # all that one prompt explains
        of_outputs = {"vendi": vendi_from_covariance(joint.outputs), "rke": rke_from_covariance(joint.outputs)}
        covariances = {"outputs": joint.outputs, "prompts": joint.prompts}
        scores = scendi_from_covariances(joint, rcond=self.rcond) | {"one_prompt_share": mean.square().sum()}
        return scores | of_outputs | covariances

    def vendi_of_pairs(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        """Return the Vendi score of pairs of outputs [n, D] and prompts [n, E], which are alike if both parts are."""
        x, t = self._features(outputs.double(), prompts.double())
        return vendi_from_gram(symmetric_product(x) * symmetric_product(t))


@dataclass(frozen=True)
class ModeEnds:
    """The samples at both ends of each mode.

    The first k of a row have the highest scores, the last k the lowest, in falling order.

    Attributes:
        images: Images [modes, 2k, C, H, W].
        indices: Indices of the images in the global set [modes, 2k].
    """

    images: Tensor
    indices: Tensor


def mode_ends(scores: Tensor, samples: Samples, k: int, comm: Collective) -> ModeEnds:
    """Return the samples of all processes with the k highest and the k lowest scores on each mode.

    With fewer than 2k samples there are fewer. Every process must call it.

    Args:
        scores: Scores of this process's samples on each mode [n, modes].
        samples: Samples of this process.
        k: Number of samples at each end.
        comm: Processes that evaluate together.
    """
    with comm.all_ranks_or_none():
        near = _ends(scores, k).unique() if len(scores) >= 2 * k else torch.arange(len(scores))
    scores, images, indices = (comm.gather_rows(rows[near]) for rows in (scores, samples.images, samples.indices))
    ends = _ends(scores, k)
    return ModeEnds(images[ends].cpu(), indices[ends].cpu())


def _ends(scores: Tensor, k: int) -> Tensor:
    """Return the rows of the highest and of the lowest scores [modes, 2k]."""
    order = scores.argsort(dim=0, descending=True, stable=True).T
    k = min(k, order.shape[1] // 2)
    return torch.cat([order[:, :k], order[:, order.shape[1] - k :]], dim=1)
