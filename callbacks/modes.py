# SPDX-License-Identifier: Apache-2.0
"""What DiversityMonitor measures of one check: every score from one covariance, and the samples that show a mode."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from genmonitor import ScendiScore
from genmonitor.functional.scendi import least_squares_map, scendi_from_covariances
from genmonitor.functional.vendi import rke_from_covariance, vendi_from_covariance


class DiversityMetric(ScendiScore):
    """Scendi, and Vendi and RKE of the outputs, all from the joint covariance.

    Attributes:
        parts: C_II and the part Λ_T of it that the prompts explain, each [P, P], of the last `compute`.
    """

    parts: tuple[Tensor, Tensor]

    def compute(self) -> dict[str, Tensor]:
        """Return the dictionary of ScendiScore, `vendi` and `rke`."""
        joint = self._joint()
        self.parts = joint.outputs, least_squares_map(joint, rcond=self.rcond) @ joint.cross.T
        return scendi_from_covariances(joint, rcond=self.rcond) | {
            "vendi": vendi_from_covariance(joint.outputs, rounding=joint.rounding),
            "rke": rke_from_covariance(joint.outputs),
        }


def gathered(rows: Tensor) -> Tensor:
    """Return the rows of all processes [N, ...] in the order of the processes; every process must call it."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.cat(gather_all_tensors(rows.contiguous()))
    return rows


@dataclass(frozen=True)
class ModeEnds:
    """The samples at both ends of each mode: `images` [modes, 2k, C, H, W] and their `indices` [modes, 2k].

    The first k of a row have the highest scores, the highest first; the last k the lowest, the lowest last.
    """

    images: Tensor
    indices: Tensor


@dataclass(frozen=True)
class Scored:
    """Samples, of one process or of all, with their scores.

    Attributes:
        scores: on each mode [n, modes].
        images: [n, C, H, W].
        indices: which of the global set they are [n].
    """

    scores: Tensor
    images: Tensor
    indices: Tensor

    def near_ends(self, k: int) -> Scored:
        """Return those among the k highest or the k lowest of a mode."""
        near = _ends(self.scores, k).unique()
        return Scored(self.scores[near], self.images[near], self.indices[near])

    def ends(self, k: int) -> ModeEnds:
        """Return the k highest and the k lowest of each mode; fewer where there are fewer than 2k samples."""
        ends = _ends(self.scores, k)
        return ModeEnds(self.images[ends].cpu(), self.indices[ends].cpu())

    def gathered(self) -> Scored:
        """Return the samples of all processes; every process must call it."""
        return Scored(gathered(self.scores), gathered(self.images), gathered(self.indices))


def _ends(scores: Tensor, k: int) -> Tensor:
    """Return the rows of the highest and of the lowest scores [modes, 2k]."""
    order = scores.argsort(dim=0, descending=True, stable=True).T
    k = min(k, order.shape[1] // 2)
    return torch.cat([order[:, :k], order[:, order.shape[1] - k :]], dim=1)
