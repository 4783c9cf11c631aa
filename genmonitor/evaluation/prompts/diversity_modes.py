# SPDX-License-Identifier: Apache-2.0
"""What DiversityEvaluator measures: every score from one covariance, and the samples that show a mode."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.evaluation.collective import Collective
from genmonitor.functional.scendi import least_squares_map, scendi_from_covariances
from genmonitor.functional.vendi import rke_from_covariance, vendi_from_covariance, vendi_from_gram
from genmonitor.linalg.distances import symmetric_product
from genmonitor.metrics.scendi import ScendiScore

COVARIANCES = ("outputs", "explained", "prompts")
"""What DiversityMetric returns beside scores."""


class DiversityMetric(ScendiScore):
    """Scendi, and Vendi and RKE of the outputs, all from the joint covariance."""

    def compute(self) -> dict[str, Tensor]:
        """Return the dictionary of ScendiScore, `vendi`, `rke`, and three covariances.

        `outputs` is C_II, `explained` the part Λ_T of it that the prompts explain, `prompts` C_TT [Q, Q].
        """
        joint = self._joint()
        return scendi_from_covariances(joint, rcond=self.rcond) | {
            "vendi": vendi_from_covariance(joint.outputs),
            "rke": rke_from_covariance(joint.outputs),
            "outputs": joint.outputs,
            "explained": least_squares_map(joint, rcond=self.rcond) @ joint.cross.T,
            "prompts": joint.prompts,
        }

    def vendi_of_pairs(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        """Return the Vendi score of outputs [n, D] and prompts [n, E] together, alike if both sides are."""
        x, t = self._features(outputs.double(), prompts.double())
        return vendi_from_gram(symmetric_product(x) * symmetric_product(t))


@dataclass(frozen=True)
class ModeEnds:
    """The samples at both ends of each mode.

    The first k of a row have the highest scores, the highest first; the last k the lowest, the lowest last.

    Attributes:
        images: [modes, 2k, C, H, W].
        indices: which of the global set they are [modes, 2k].
    """

    images: Tensor
    indices: Tensor


@dataclass(frozen=True)
class ScoredSamples:
    """Samples, of one process or of all, with their scores.

    Attributes:
        scores: on each mode [n, modes].
        images: [n, C, H, W].
        indices: which of the global set they are [n].
    """

    scores: Tensor
    images: Tensor
    indices: Tensor

    def near_ends(self, k: int) -> ScoredSamples:
        """Return those among the k highest or the k lowest of a mode."""
        near = _ends(self.scores, k).unique()
        return ScoredSamples(self.scores[near], self.images[near], self.indices[near])

    def ends(self, k: int) -> ModeEnds:
        """Return the k highest and the k lowest of each mode; fewer where there are fewer than 2k samples."""
        ends = _ends(self.scores, k)
        return ModeEnds(self.images[ends].cpu(), self.indices[ends].cpu())

    def gathered(self, comm: Collective) -> ScoredSamples:
        """Return the samples of all processes; every process must call it."""
        return ScoredSamples(*(comm.gather_rows(rows) for rows in (self.scores, self.images, self.indices)))


def _ends(scores: Tensor, k: int) -> Tensor:
    """Return the rows of the highest and of the lowest scores [modes, 2k]."""
    order = scores.argsort(dim=0, descending=True, stable=True).T
    k = min(k, order.shape[1] // 2)
    return torch.cat([order[:, :k], order[:, order.shape[1] - k :]], dim=1)
