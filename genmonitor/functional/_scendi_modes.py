# SPDX-License-Identifier: Apache-2.0
"""The modes that outputs have beyond what their prompts explain."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.functional.scendi import JointCovariance, least_squares_map
from genmonitor.linalg.spectrum import largest_eigenpairs


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

    Where that sum is zero, as with one-hot prompts, whose span contains the constant, the largest entry of v is
    positive.

    Args:
        joint: covariances.
        feature_sum: Σ [φ_I, φ_T] over those samples [P + Q].
        num_modes: K, at most P.
        rcond: as for `scendi_score`.
    """
    size = len(joint.outputs)
    if check_at_least("num_modes", num_modes, 1) > size:
        raise ValueError(f"Expected `num_modes` to be at most {size}, the features of outputs, but got {num_modes}.")
    gamma = least_squares_map(joint, rcond=rcond)
    eigenvalues, vectors = largest_eigenpairs(joint.outputs - gamma @ joint.cross.T, num_modes)
    totals = (feature_sum[:size] - gamma @ feature_sum[size:]) @ vectors
    rounding = 1e-5 * joint.count * eigenvalues.clamp_min(0).sqrt()
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))[0]
    vectors = vectors * torch.where(totals.abs() > rounding, totals, largest).sign()
    return ScendiModes(eigenvalues.clamp_min(0), vectors, gamma.T @ vectors)
