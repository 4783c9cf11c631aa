# SPDX-License-Identifier: Apache-2.0
"""Vendi scores of any order, RKE, Conditional-Vendi, and the modes of a covariance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import (
    check_at_least,
    check_min_samples,
    check_normalized,
    check_order,
    check_pairs,
    check_vectors,
)
from genmonitor.functional.discrepancy import GroupKernels
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import check_kernels, check_side, covariance, feature_map, gram_matrix, has_features
from genmonitor.linalg.spectrum import entropy, psd_eigenvalues, rounding_of


def vendi_score(
    features: Tensor,
    *,
    kernel: Kernel | None = None,
    order: float = 1.0,
    num_features: int | None = None,
    truncation: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Vendi score exp(H_q(λ)), λ the eigenvalues of K / n: the number of equally common modes that would be as diverse.

    H_1 = -Σ λ log λ, H_q = log(Σ λ^q) / (1 - q), H_∞ = -log max λ. Values at different n are not comparable, since rare
    modes show only in many samples. Eigenvalues are those of a float64 matrix for features of any dtype. Those below
    1e-12 of its norm are rounding and do not count, which matters only at orders below about 0.5.

    Args:
        features: Features [N, D] or images [N, C, H, W], N at least 2.
        kernel: Kernel; None for the cosine. A gamma that is not given comes from the first 1000 samples.
        order: Order q, positive; small orders count rare modes, math.inf only the most common one.
        num_features: Number R of random Fourier features of a Gaussian kernel. A [2R, 2R] covariance then replaces the
            [N, N] Gram matrix, for many samples. None for the exact kernel.
        truncation: Number t of eigenvalues to keep, the largest; the missing mass is spread evenly over them. The score
            then converges at far fewer samples. None keeps all.
        seed: Seed of the random Fourier features.

    Returns:
        A float64 scalar from 1 (all samples alike) to N (all orthogonal); with `truncation` at most t.

    Raises:
        TypeError: If `features` is not a tensor of real numbers.
        ValueError: If an argument is out of its range, values are not finite, samples are fewer than 2, or one is the
            zero vector under the cosine kernel.

    References:
        Friedman and Dieng, "The Vendi Score: A Diversity Evaluation Metric for Machine Learning", arXiv 2210.02410.
        Ospanov et al., "Towards a Scalable Reference-Free Evaluation of Generative Models", arXiv 2407.02961, for
            random Fourier features.
        Ospanov and Farnia, "Do Vendi Scores Converge with Finite Samples? Truncated Vendi Score for Finite-Sample
            Convergence Guarantees", arXiv 2410.21719, for `truncation`.

    Example:
        >>> import torch
        >>> vendi_score(torch.eye(4).repeat(5, 1))  # 4 modes, 5 samples of each
        tensor(4., dtype=torch.float64)
    """
    check_order("order", order)
    x, kernel = _check(features, kernel, num_features)
    return vendi_of_spectrum(_spectral_matrix(x, kernel, num_features, seed), order, truncation)


def vendi_from_gram(gram: Tensor, *, order: float = 1.0, truncation: int | None = None) -> Tensor:
    """Vendi score from the Gram matrix of the samples.

    Args:
        gram: Gram matrix [N, N], symmetric, 1 on its diagonal, N at least 2. Use float64 if `order` is below 1: in
            float32, eigenvalues up to 2e-7 of the norm are rounding and do not count.
        order: Same as in `vendi_score`.
        truncation: Same as in `vendi_score`.

    Returns:
        A float64 scalar, as in `vendi_score`.

    Raises:
        ValueError: If it is not such a matrix or an argument is out of its range.

    Example:
        >>> import torch
        >>> vendi_from_gram(torch.eye(3), order=2)
        tensor(3.0000, dtype=torch.float64)
    """
    matrix = check_normalized("gram", gram, diagonal=True).double()
    check_min_samples("gram", matrix)
    return vendi_of_spectrum(matrix / len(matrix), order, truncation, rounding_of(gram))


def vendi_from_covariance(covariance: Tensor, *, order: float = 1.0, truncation: int | None = None) -> Tensor:
    """Vendi score from the covariance (1/N) Σ φ φᵀ of the samples' features, which have norm 1.

    Args:
        covariance: Covariance [P, P], symmetric, of trace 1; float64 if `order` is below 1, as in `vendi_from_gram`.
        order: Same as in `vendi_score`.
        truncation: Same as in `vendi_score`.

    Returns:
        A float64 scalar from 1 to P, as in `vendi_score`.

    Raises:
        ValueError: If it is not such a matrix or an argument is out of its range.

    Example:
        >>> import torch
        >>> vendi_from_covariance(torch.eye(2) / 2)
        tensor(2., dtype=torch.float64)
    """
    matrix = check_normalized("covariance", covariance, diagonal=False).double()
    return vendi_of_spectrum(matrix, order, truncation, rounding_of(covariance))


def rke_score(
    features: Tensor, *, kernel: Kernel | None = None, num_features: int | None = None, seed: int = 0
) -> Tensor:
    """RKE, the Vendi score of order 2: 1 / Σλ² = 1 / ‖C‖_F² = 1 / mean k(x_i, x_j)², without eigenvalues.

    Unlike the Vendi score of order 1, it hardly grows with n. It is exact at any n, a block of pairs at a time.

    Args:
        features: Features [N, D] or images [N, C, H, W], N at least 2.
        kernel: Kernel; None for the cosine. A gamma that is not given comes from the first 1000 samples.
        num_features: Same as in `vendi_score`; seldom needed here.
        seed: Seed of the random Fourier features.

    Returns:
        A float64 scalar from 1 (all samples alike) to N (all orthogonal).

    Raises:
        TypeError: If `features` is not a tensor of real numbers.
        ValueError: As `vendi_score` does.

    References:
        Jalali, Li and Farnia, "An Information-Theoretic Evaluation of Generative Models in Learning Multi-modal
            Distributions", NeurIPS 2023.

    Example:
        >>> import torch
        >>> rke_score(torch.eye(4).repeat(5, 1))
        tensor(4., dtype=torch.float64)
    """
    x, kernel = _check(features, kernel, num_features)
    if has_features(kernel, num_features):
        return rke_from_covariance(_spectral_matrix(x, kernel, num_features, seed))
    return rke_from_samples(x, kernel)


def rke_from_covariance(matrix: Tensor) -> Tensor:
    """1 / ‖C‖_F² of a covariance [P, P], or of K / n."""
    return 1 / matrix.double().square().sum()


def rke_from_samples(x: Tensor, kernel: Kernel) -> Tensor:
    """1 / mean k², a block of the pairs at a time, of a kernel with its gamma set."""
    sums = GroupKernels.single(kernel, x, None, mixture=True).sums(x)
    # k² = 1 + 2 (k - 1) + (k - 1)²
    return 1 / (1 + (2 * sums.rows.sum() + sums.squares.sum()) / len(x) ** 2)


def _check(features: Tensor, kernel: Kernel | None, num_features: int | None) -> tuple[Tensor, Kernel]:
    """Check the samples and resolve their kernel."""
    x = check_vectors("features", features)
    check_min_samples("features", x)
    (kernel,) = check_kernels(num_features, kernel=kernel)
    return x, check_side("features", x, kernel)


def _spectral_matrix(x: Tensor, kernel: Kernel, num_features: int | None, seed: int) -> Tensor:
    """Return the smaller of covariance and K / n, which have the same non-zero eigenvalues, float64."""
    features = feature_map(kernel, x.shape[1], num_features, seed)
    if features is not None and len(x) >= features.size:
        return covariance([x], [features])
    return gram_matrix(x, kernel, features) / len(x)


def vendi_of_spectrum(matrix: Tensor, order: float, truncation: int | None, rounding: float | None = None) -> Tensor:
    """Return the score of a covariance, or of K / n; `rounding` is as in `psd_eigenvalues`."""
    eigenvalues = psd_eigenvalues(matrix, rounding)
    if truncation is not None:
        largest = eigenvalues[-check_at_least("truncation", truncation, 1) :]
        eigenvalues = largest + (eigenvalues.sum() - largest.sum()) / len(largest)
    return entropy(eigenvalues, order).exp()


class VendiModes(NamedTuple):
    """The directions in which samples vary most.

    Attributes:
        eigenvalues: Eigenvalues [K] in falling order: the share of the samples' features along each mode; all of them
            sum to 1.
        vectors: Eigenvectors [P, K] of norm 1, features of the kernel.
    """

    eigenvalues: Tensor
    vectors: Tensor


def vendi_modes(covariance: Tensor, feature_sum: Tensor, num_modes: int, count: float) -> VendiModes:
    """Top eigenvectors v of a covariance, signed so that the scores ⟨v, φ⟩ of the samples seen have a positive sum.

    If that sum is zero, the largest entry of v is positive.

    Args:
        covariance: Covariance [P, P].
        feature_sum: Sum of φ over these samples [P].
        num_modes: Number K of modes, at most P.
        count: Number of samples.

    References:
        Ospanov et al., "Towards a Scalable Reference-Free Evaluation of Generative Models", arXiv 2407.02961, for the
            modes of random Fourier features.
    """
    size = len(covariance)
    if check_at_least("num_modes", num_modes, 1) > size:
        raise ValueError(f"Expected `num_modes` to be at most {size}, the features of the kernel, but got {num_modes}.")
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    eigenvalues, vectors = eigenvalues.flip(0)[:num_modes], vectors.flip(1)[:, :num_modes]
    totals = feature_sum @ vectors
    rounding = 1e-5 * count * eigenvalues.clamp_min(0).sqrt()
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))[0]
    vectors = vectors * torch.where(totals.abs() > rounding, totals, largest).sign()
    return VendiModes(eigenvalues.clamp_min(0), vectors)


def conditional_vendi_score(
    outputs: Tensor,
    prompts: Tensor,
    *,
    kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    order: float = 1.0,
    truncation: int | None = None,
) -> dict[str, Tensor]:
    """Conditional-Vendi exp(H(X, T) - H(T)) and Information-Vendi exp(H(X) + H(T) - H(X, T)), in place of Scendi.

    H(X) is the entropy of K_X / n, and H(X, T) that of the elementwise product (K_X ∘ K_T) / n. Two samples are alike
    if both their outputs and their prompts are. The product of the two scores is the Vendi score of the outputs.

    Args:
        outputs: Outputs [N, D], N at least 2; three [N, N] matrices are held, for up to several thousand samples.
        prompts: Prompts [N, E].
        kernel: Same as in `scendi_score`.
        prompt_kernel: Same as in `scendi_score`.
        order: Order q of the entropies, as in `vendi_score`; 2 gives Conditional-RKE.
        truncation: Truncation of each spectrum, as in `vendi_score`.

    Returns:
        Float64 scalars, at least 1 unless `truncation` is set: `conditional_vendi`, the number of modes of the outputs
        of one prompt, and `information_vendi`, the factor by which prompts multiply it.

    Raises:
        TypeError: As `scendi_score` does.
        ValueError: As `scendi_score` does, or if `order` or `truncation` is out of its range.

    References:
        Jalali, Ospanov, Gohari and Farnia, "Conditional Vendi Score: Prompt-Aware Diversity Evaluation for Generative
            AI Models and LLMs", arXiv 2411.02817.

    Example:
        >>> import torch
        >>> prompts = torch.eye(3).repeat_interleave(4, dim=0)  # 3 prompts, each with 2 kinds of outputs of its own
        >>> score = conditional_vendi_score(torch.eye(6).repeat_interleave(2, dim=0), prompts)
        >>> {name: round(float(value), 3) for name, value in score.items()}
        {'conditional_vendi': 2.0, 'information_vendi': 3.0}
    """
    check_order("order", order)
    x, t = check_pairs("outputs", outputs, "prompts", prompts)
    check_min_samples("outputs", x)
    kernel, prompt_kernel = check_kernels(None, kernel=kernel, prompt_kernel=prompt_kernel)
    kernel, prompt_kernel = check_side("outputs", x, kernel), check_side("prompts", t, prompt_kernel)
    return conditional_vendi_from_grams(gram_matrix(x, kernel), gram_matrix(t, prompt_kernel), order, truncation)


def conditional_vendi_from_grams(
    gram: Tensor, prompt_gram: Tensor, order: float = 1.0, truncation: int | None = None
) -> dict[str, Tensor]:
    """Compute both scores from float64 Gram matrices [N, N] with 1 on their diagonals."""
    matrices = (gram * prompt_gram, gram, prompt_gram)
    return conditional_vendi_of(*(vendi_of_spectrum(matrix / len(gram), order, truncation) for matrix in matrices))


def conditional_vendi_of(pairs: Tensor, outputs: Tensor, prompts: Tensor) -> dict[str, Tensor]:
    """Compute both scores from the Vendi scores of pairs, outputs and prompts."""
    conditional = pairs / prompts
    return {"conditional_vendi": conditional, "information_vendi": outputs / conditional}
