# SPDX-License-Identifier: Apache-2.0
"""Scendi: the diversity of outputs not explained by prompts, by the Schur complement of their joint covariance."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import (
    check_min_samples,
    check_normalized,
    check_pairs,
    check_relative_cutoff,
    check_same_length,
)
from genmonitor.functional.vendi import vendi_modes
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import check_kernels, check_side, covariance, feature_map, gram_matrix
from genmonitor.linalg.distances import symmetric_product
from genmonitor.linalg.spectrum import inverse_root, psd_eigenvalues, rounding_of, unnormalized_entropy


@dataclass(frozen=True, eq=False)
class JointCovariance:
    """Second moments of the features φ_I of outputs and φ_T of prompts.

    Attributes:
        outputs: Covariance C_II [P, P], float64.
        cross: Covariance C_IT [P, Q].
        prompts: Covariance C_TT [Q, Q].
        count: Number N of samples.
    """

    outputs: Tensor
    cross: Tensor
    prompts: Tensor
    count: int

    @classmethod
    def of(cls, joint: Tensor, size: int, count: int) -> JointCovariance:
        """Split a joint covariance [P + Q, P + Q] with P = `size`."""
        return cls(joint[:size, :size], joint[:size, size:], joint[size:, size:], count)


def scendi_score(
    outputs: Tensor,
    prompts: Tensor,
    *,
    kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    num_features: int | None = None,
    rcond: float | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Scendi: the diversity of outputs after subtracting the part explained by a linear map of the prompts.

    C_II = Λ_T + Λ_I with Λ_T = C_IT C_TT⁺ C_TI, driven by prompts, and Λ_I, driven by the model. Row i of `prompts`
    belongs to row i of `outputs`; dimensions may differ.

    Args:
        outputs: Outputs [N, D], N at least 2.
        prompts: Prompts [N, E].
        kernel: Kernel of outputs; None for the cosine. A gamma that is not given comes from the first 1000 samples.
        prompt_kernel: Kernel of prompts, likewise.
        num_features: Number R of random Fourier features of each Gaussian kernel. Covariances then replace the [N, N]
            Gram matrices, for many samples. None for the exact kernel.
        rcond: Eigenvalues of C_TT up to rcond times the largest one count as zero. None for their number (N without
            explicit features) times the precision of float32, as in the paper's code.
        seed: Seed of the random Fourier features.

    Returns:
        Float64 scalars: `scendi` = exp(Σ λ log(Tr Λ_I / λ)) over the eigenvalues of Λ_I, at least 1; `scendi_prompt`,
        the same with Λ_T; `prompt_share` = Tr Λ_T in [0, 1].

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If an argument is out of its range, values are not finite, or sides differ in length. Also if
            samples are fewer than 2, or one is the zero vector under the cosine kernel.

    Warns:
        UserWarning: If the rank of C_TT is at least 90 % of N. Prompts then explain anything, and `scendi` is near 1
            for any model.

    References:
        Ospanov, Jalali and Farnia, "Scendi Score: Prompt-Aware Diversity Evaluation via Schur Complement of CLIP
            Embeddings", arXiv 2412.18645, Eq. 6, Definition 1.

    Example:
        >>> prompts = torch.eye(2).repeat_interleave(8, dim=0)  # 2 classes, each with 2 kinds of outputs of its own
        >>> score = scendi_score(torch.eye(4).repeat_interleave(4, dim=0), prompts)
        >>> {name: round(float(value), 3) for name, value in score.items()}
        {'scendi': 1.414, 'scendi_prompt': 1.414, 'prompt_share': 0.5}
    """
    x, t = check_pairs("outputs", outputs, "prompts", prompts)
    check_min_samples("outputs", x)
    kernel, prompt_kernel = check_kernels(num_features, kernel=kernel, prompt_kernel=prompt_kernel)
    kernel, prompt_kernel = check_side("outputs", x, kernel), check_side("prompts", t, prompt_kernel)
    features = feature_map(kernel, x.shape[1], num_features, seed)
    prompt_features = feature_map(prompt_kernel, t.shape[1], num_features, seed)
    if features and prompt_features and len(x) >= max(features.size, prompt_features.size):
        whole = covariance([x, t], [features, prompt_features])
        return scendi_from_covariances(JointCovariance.of(whole, features.size, len(x)), rcond=rcond)
    grams = gram_matrix(x, kernel, features), gram_matrix(t, prompt_kernel, prompt_features)
    return scendi_from_grams(*grams, rcond=cutoff(rcond, prompt_features.size if prompt_features else len(t)))


def scendi_from_covariances(joint: JointCovariance, *, rcond: float | None = None) -> dict[str, Tensor]:
    """Scendi from the covariances of the samples' features; otherwise like `scendi_score`."""
    root = inverse_root(joint.prompts, cutoff(rcond, len(joint.prompts)))
    _warn_if_degenerate(root.shape[1], joint.count)
    factor = joint.cross @ root
    explained = symmetric_product(factor)
    # Λ_T = F Fᵀ has the eigenvalues of the smaller Fᵀ F
    small = explained if len(factor) <= factor.shape[1] else symmetric_product(factor.T)
    return _scores(joint.outputs, joint.outputs - explained, small)


def scendi_from_grams(gram: Tensor, prompt_gram: Tensor, *, rcond: float | None = None) -> dict[str, Tensor]:
    """Scendi from the Gram matrices of the samples, for kernels without explicit features.

    Args:
        gram: Gram matrix of outputs [N, N], symmetric, 1 on its diagonal.
        prompt_gram: Gram matrix of prompts [N, N], likewise.
        rcond: Same as in `scendi_score`, relative to the largest eigenvalue of K_T / n, which is that of C_TT.

    Returns:
        The same as `scendi_score`.

    Raises:
        ValueError: If they are not such matrices or differ in size.
    """
    outputs = check_normalized("gram", gram, diagonal=True)
    prompts = check_normalized("prompt_gram", prompt_gram, diagonal=True)
    check_same_length("gram", outputs, "prompt_gram", prompts)
    check_min_samples("gram", outputs)
    n, rounding = len(outputs), max(rounding_of(gram), rounding_of(prompt_gram))
    outputs, prompts = outputs.double() / n, prompts.double() / n
    root = inverse_root(prompts, cutoff(rcond, n))
    _warn_if_degenerate(root.shape[1], n)
    # the columns span what the prompts explain of the samples; Λ_I has the eigenvalues of (1 - B Bᵀ) K_I / n (1 - B Bᵀ)
    basis = torch.linalg.qr(root).Q
    across = outputs @ basis
    small = basis.T @ across
    mixed = across @ basis.T
    return _scores(outputs, outputs - mixed - mixed.T + basis @ small @ basis.T, small, rounding)


def least_squares_map(joint: JointCovariance, *, rcond: float | None = None) -> Tensor:
    """Return the map Γ* = C_IT C_TT⁺ [P, Q] that predicts features of outputs from those of prompts (Proposition 1).

    Args:
        joint: Joint covariance.
        rcond: Same as in `scendi_score`.
    """
    root = inverse_root(joint.prompts, cutoff(rcond, len(joint.prompts)))
    return (joint.cross @ root) @ root.T


class ScendiModes(NamedTuple):
    """The directions in which outputs vary most beyond their prompts.

    Attributes:
        eigenvalues: Largest eigenvalues of Λ_I [K], in falling order.
        vectors: Eigenvectors [P, K] of norm 1, features of outputs.
        prompt_vectors: Γ*ᵀ times the vectors [Q, K], which give the part of a score that a prompt explains.
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
        joint: Joint covariance.
        feature_sum: Sum of [φ_I, φ_T] over these samples [P + Q].
        num_modes: Number K of modes, at most P.
        rcond: Same as in `scendi_score`.
    """
    size, gamma = len(joint.outputs), least_squares_map(joint, rcond=rcond)
    own_sum = feature_sum[:size] - gamma @ feature_sum[size:]
    eigenvalues, vectors = vendi_modes(joint.outputs - gamma @ joint.cross.T, own_sum, num_modes, joint.count)
    return ScendiModes(eigenvalues, vectors, gamma.T @ vectors)


def cutoff(rcond: float | None, size: int) -> float:
    """Return rcond, or its default for C_TT [size, size]."""
    if rcond is None:
        return size * torch.finfo(torch.float32).eps
    return check_relative_cutoff("rcond", rcond)


def _scores(whole: Tensor, model: Tensor, prompt: Tensor, rounding: float | None = None) -> dict[str, Tensor]:
    """Compute the scores from C_II and matrices with the non-zero eigenvalues of Λ_I and Λ_T."""
    scendi, scendi_prompt = (unnormalized_entropy(psd_eigenvalues(x, rounding, whole)).exp() for x in (model, prompt))
    return {"scendi": scendi, "scendi_prompt": scendi_prompt, "prompt_share": prompt.trace().clamp(0, 1)}


def _warn_if_degenerate(rank: int, count: int) -> None:
    if rank >= 0.9 * count:
        warnings.warn(
            f"The prompts' features have rank {rank} for {count} samples: a linear map of them explains nearly any "
            "outputs, and `scendi` is near 1 whatever the model does. Use more samples per prompt, fewer "
            "`num_features` or a larger `rcond`.",
            stacklevel=3,
        )
