# SPDX-License-Identifier: Apache-2.0
"""The modes of a covariance: the directions in which samples vary most, kernel PCA without a mean taken off."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.linalg.spectrum import largest_eigenpairs


class VendiModes(NamedTuple):
    """The directions in which samples vary most.

    Attributes:
        eigenvalues: [K], falling: the share of the samples' features along each; all of them sum to 1.
        vectors: [P, K], of norm 1: features of the kernel.
    """

    eigenvalues: Tensor
    vectors: Tensor


def vendi_modes(covariance: Tensor, feature_sum: Tensor, num_modes: int, count: float) -> VendiModes:
    """Top eigenvectors v of a covariance, signed so that the scores ⟨v, φ⟩ of the samples seen have a positive sum.

    Where that sum is zero, the largest entry of v is positive.

    Args:
        covariance: [P, P].
        feature_sum: Σ φ over those samples [P].
        num_modes: K, at most P.
        count: how many samples they are.

    References:
        Ospanov et al., "Towards a Scalable Reference-Free Evaluation of Generative Models", arXiv 2407.02961, for the
            modes of random Fourier features.
    """
    size = len(covariance)
    if check_at_least("num_modes", num_modes, 1) > size:
        raise ValueError(f"Expected `num_modes` to be at most {size}, the features of the kernel, but got {num_modes}.")
    eigenvalues, vectors = largest_eigenpairs(covariance, num_modes)
    totals = feature_sum @ vectors
    rounding = 1e-5 * count * eigenvalues.clamp_min(0).sqrt()
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))[0]
    vectors = vectors * torch.where(totals.abs() > rounding, totals, largest).sign()
    return VendiModes(eigenvalues.clamp_min(0), vectors)
