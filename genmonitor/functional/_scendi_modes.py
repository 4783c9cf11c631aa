# SPDX-License-Identifier: Apache-2.0
"""The modes that outputs have beyond what their prompts explain."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from genmonitor.functional._vendi_modes import vendi_modes
from genmonitor.functional.scendi import JointCovariance, least_squares_map


class ScendiModes(NamedTuple):
    """The directions in which outputs vary most beyond what their prompts explain.

    Attributes:
        eigenvalues: [K], falling: the largest of Λ_I.
        vectors: [P, K], of norm 1: features of outputs.
        prompt_vectors: [Q, K]: Γ*ᵀ times the vectors, which give what a prompt takes off a score.
    """

    eigenvalues: Tensor
    vectors: Tensor
    prompt_vectors: Tensor


def scendi_modes(
    joint: JointCovariance, feature_sum: Tensor, num_modes: int, *, rcond: float | None = None
) -> ScendiModes:
    """Top eigenvectors v of Λ_I, signed so that the scores ⟨v, φ_I - Γ* φ_T⟩ of the samples seen have a positive sum.

    That sum is zero with one-hot prompts, whose span contains the constant: see `vendi_modes`.

    Args:
        joint: covariances.
        feature_sum: Σ [φ_I, φ_T] over those samples [P + Q].
        num_modes: K, at most P.
        rcond: as for `scendi_score`.
    """
    size, gamma = len(joint.outputs), least_squares_map(joint, rcond=rcond)
    own_sum = feature_sum[:size] - gamma @ feature_sum[size:]
    eigenvalues, vectors = vendi_modes(joint.outputs - gamma @ joint.cross.T, own_sum, num_modes, joint.count)
    return ScendiModes(eigenvalues, vectors, gamma.T @ vectors)
