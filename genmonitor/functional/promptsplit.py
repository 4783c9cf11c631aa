# SPDX-License-Identifier: Apache-2.0
"""PromptSplit: the joint modes of outputs and prompts that one model has and another lacks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from genmonitor._validation import check_at_least, check_at_most, check_pairs, check_positive, check_vectors
from genmonitor.functional.joint_spectrum import JointSpectrum, by_covariances, by_gram, joint_rows
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.covariance import covariance
from genmonitor.kernels.product import check_pair_kernels, feature_size
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.spectrum import outermost


@dataclass(frozen=True, eq=False)
class PromptSplitModes:
    """Directions in which the joint features of two sets of outputs and prompts differ most, M of either sign.

    A positive eigenvalue is a mode that the test side has and the reference lacks; a negative one is the reverse.

    For up to 1024 samples of both sides together, with equal ones counted once, all eigenpairs are computed. The limit
    is 4096 if a sixteenth of them or more are requested as modes. Beyond it the eigenpairs are those of a block Krylov
    space, each with its residual. The Gram matrix is then computed in the precision of the samples. It must fit in
    memory: in float32, 46,000 samples of both sides together take 8 GiB.

    `total` needs all eigenvalues, whose cost grows with the cube of the number of samples. For more than 2048 samples
    of both sides together, it is the total of 2048 chosen at random, always the same ones. With random features it is
    that of all samples.

    Attributes:
        eigenvalues: Eigenvalues [2M], float64, in falling order: the M largest positive ones, then the M lowest
            negative ones. Missing ones are 0.
        residuals: Largest possible errors of the eigenvalues [2M], float64.
        scores: Scores of the test samples on each mode [N, 2M], float64, signed so that their mean over the side that
            has the mode is positive. Without rows if samples are not kept.
        reference_scores: Scores of the reference samples [N', 2M].
        total: Σ λ log(S / λ) over the positive eigenvalues λ with sum S: the amount of novelty of the test side.
        similar: One mode near zero for contrast: the direction with the largest share of both sides among those in
            which they hardly differ. None for that mode itself.
        score: Function that returns the scores [N, 2M] of other outputs [N, D] and prompts [N, E], or None for no
            prompts.
        eta: Weight of the reference side.
    """

    eigenvalues: Tensor
    residuals: Tensor
    scores: Tensor
    reference_scores: Tensor
    total: Tensor
    similar: PromptSplitModes | None
    score: Callable[[Tensor, Tensor | None], Tensor]
    eta: float

    def parts(self, prompts: Sequence[Hashable], reference_prompts: Sequence[Hashable]) -> dict[Hashable, Tensor]:
        """Split every eigenvalue into contributions of the prompts: λ = Σ s² / N - eta Σ s'² / N' with scores s.

        Args:
            prompts: Prompt of each test sample, N names.
            reference_prompts: Prompt of each reference sample, N' names.

        Returns:
            Part of each eigenvalue [2M], by prompt; the parts sum to the eigenvalues.

        Raises:
            ValueError: If there is not one prompt per sample.
        """
        out: dict[Hashable, Tensor] = {}
        sides = ((self.scores, prompts, 1.0), (self.reference_scores, reference_prompts, -self.eta))
        for scores, names, weight in sides:
            prompt_names, sums, counts = _by_prompt(scores.square(), names)
            for prompt, part in zip(prompt_names, weight * sums / counts.sum(), strict=True):
                out[prompt] = out.get(prompt, 0) + part
        return out


def prompt_split(
    outputs: Tensor,
    prompts: Tensor | None,
    reference_outputs: Tensor,
    reference_prompts: Tensor | None,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    eta: float = 1.0,
    num_modes: int = 10,
    num_features: int | None = None,
    seed: int = 0,
) -> PromptSplitModes:
    """Find the prompts that two models answer differently: outer eigenpairs of a difference of covariances.

    Λ = (1/N) Σ φ φᵀ over the test samples minus (eta/N') Σ φ φᵀ over the reference samples. The joint features φ of an
    output and its prompt have the product of both kernels as their kernel.

    Without prompts it is KEN: the modes of outputs that are more than eta times as common as in the reference.

    Args:
        outputs: Outputs of the test side [N, D], N at least 2; several may share a prompt.
        prompts: Embedded prompts [N, E], row i of output i; None, on both sides, for outputs without prompts.
        reference_outputs: Outputs of the reference side [N', D], N' at least 2; N' need not be N.
        reference_prompts: Embedded prompts of the reference side [N', E].
        output_kernel: Kernel of outputs; None for a Gaussian. A gamma that is not given comes from `reference_outputs`.
        prompt_kernel: Kernel of prompts; None for a Gaussian. A gamma that is not given comes from `reference_prompts`.
        eta: Weight of the reference side, positive.
        num_modes: Number M of modes of each side.
        num_features: Number R of random features, at a cost linear in the number of samples; None for exact kernels.
            These are also used for up to twice as many samples as features. Eigenvalues are off by about sqrt((8 + 8
            eta²) / R) (Theorem 1).
        seed: Seed of the random features.

    Returns:
        The modes of both sides; `PromptSplitModes` describes what is exact for many samples.

    Raises:
        TypeError: If an input is not a tensor of real numbers.
        ValueError: If lengths or dimensions differ, values are not finite, or a side has fewer than 2 samples. Also if
            an argument is out of its range, or the random features do not fit in memory.

    References:
        Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models",
            arXiv 2602.04009, Eq. 2-4, Proposition 1, Algorithm 2.
        Zhang, Li and Farnia, "An Interpretable Evaluation of Entropy-based Novelty of Generative Models",
            arXiv 2402.17287, for KEN.

    Example:
        >>> prompts = torch.eye(3).repeat(4, 1)
        >>> outputs = torch.linspace(0, 1, 12)[:, None]
        >>> reference = outputs + 5 * prompts[:, :1]  # another answer to the first prompt
        >>> modes = prompt_split(outputs, prompts, reference, prompts, num_modes=1)
        >>> modes.eigenvalues
        tensor([ 0.2711, -0.2711], dtype=torch.float64)
    """
    check_prompt_split_arguments(output_kernel, prompt_kernel, eta, num_modes, num_features)
    if prompts is None and reference_prompts is None:
        prompts, prompt_kernel = constant_prompts("outputs", outputs, prompt_kernel)
        reference_prompts, _ = constant_prompts("reference_outputs", reference_outputs, prompt_kernel)
    sides = ((outputs, prompts), (reference_outputs, reference_prompts))
    kernel, test, reference = joint_rows(*sides, output_kernel, prompt_kernel)
    rows, n = torch.cat([test, reference]).detach(), len(test)
    with full_precision():
        if num_features is None or len(rows) <= 2 * feature_size(output_kernel, num_features):
            spectrum = by_gram(rows, n, eta, kernel, num_modes)  # half of the matrix is enough
        else:
            features = kernel.features(num_features, seed)
            of_test, of_reference = (covariance([side], [features]) for side in (rows[:n], rows[n:]))
            spectrum = by_covariances(of_test, of_reference, eta, features, num_modes, rows=rows)
        return split_modes(spectrum, n, eta, num_modes, kernel.rows)


def constant_prompts(name: str, outputs: Tensor, kernel: Kernel | None) -> tuple[Tensor, Kernel]:
    """Return one prompt for all outputs [N, 1], and a kernel on it, which is 1 for any gamma."""
    kernel = kernel or GaussianKernel()
    is_open = kernel.takes_gamma and kernel.gamma is None
    return torch.ones(len(check_vectors(name, outputs)), 1), replace(kernel, gamma=1.0) if is_open else kernel


def split_modes(
    spectrum: JointSpectrum, n: int, eta: float, num_modes: int, to_rows: Callable[[Tensor, Tensor], Tensor]
) -> PromptSplitModes:
    """Return the modes of a spectrum.

    Args:
        spectrum: Difference of two covariances, in any form.
        n: Number N of rows of the test side; 0 if samples are not kept.
        eta: Weight of the reference side.
        num_modes: Number M of modes.
        to_rows: Function from outputs and prompts to rows for `spectrum.score_rows`.
    """
    values, coefficients = spectrum.space.values, spectrum.space.coefficients
    # a direction counts as shared by both sides up to this fraction of the largest eigenvalue
    near_zero = values.abs() <= max(0.1 * values.abs().max(), values.abs().min())
    shared = spectrum.most_shared(coefficients[:, near_zero])
    wanted = outermost(values, num_modes)
    score_rows = spectrum.score_rows

    def read(vectors: Tensor, count: int, similar: PromptSplitModes | None) -> PromptSplitModes:
        eigenvalues, residuals = spectrum.space.quotients(vectors)
        eigenvalues = eigenvalues.cummin(0).values  # falling, in spite of rounding
        # there are infinitely many directions without samples, with an eigenvalue of zero
        missing = (0, count - len(eigenvalues))
        eigenvalues, order = pad(eigenvalues, missing).sort(descending=True, stable=True)
        residuals, vectors = pad(residuals, missing)[order], pad(vectors, missing)[:, order]
        scores, directions = spectrum.scores(vectors), spectrum.space.vectors @ vectors
        test, reference = spectrum.means @ directions if spectrum.means is not None else _means(scores, n)
        sign = torch.where(torch.where(eigenvalues < 0, reference, test) < 0, -1, 1)
        scores, directions = scores * sign, directions * sign

        def score(outputs: Tensor, prompts: Tensor | None) -> Tensor:
            prompts = constant_prompts("outputs", outputs, None)[0] if prompts is None else prompts
            x, t = check_pairs("outputs", outputs, "prompts", prompts)
            with full_precision():
                return score_rows(to_rows(x, t), directions)

        return PromptSplitModes(eigenvalues, residuals, scores[:n], scores[n:], spectrum.total, similar, score, eta)

    return read(coefficients[:, wanted], 2 * num_modes, read(shared, 1, None))


def rank_prompts(scores: Tensor, prompts: Sequence[Hashable]) -> list[tuple[Hashable, float]]:
    """Rank prompts by the mean score of their samples on one mode.

    Args:
        scores: Scores of N samples on the mode [N]: test scores for a positive eigenvalue, reference scores for a
            negative one.
        prompts: Prompt of each sample, N names.

    Returns:
        Prompts and mean scores, highest first.

    Raises:
        ValueError: If there is not one prompt per score.

    Example:
        >>> rank_prompts(torch.tensor([0.1, 0.5, 0.7]), ["a cat", "a dog", "a dog"])[0]
        ('a dog', 0.6...)
    """
    names, sums, counts = _by_prompt(scores[:, None], prompts)
    means = (sums[:, 0] / counts).tolist()
    return sorted(zip(names, means, strict=True), key=lambda pair: pair[1], reverse=True)


def _means(scores: Tensor, n: int) -> Tensor:
    return torch.stack([scores[:n].mean(0), scores[n:].mean(0)])


def _by_prompt(values: Tensor, prompts: Sequence[Hashable]) -> tuple[list[Hashable], Tensor, Tensor]:
    """Return the prompts in order of appearance, the sums of the values [N, M] of each [P, M], and its samples [P]."""
    if len(prompts) != len(values):
        raise ValueError(
            f"Expected `prompts` to name the prompt of each of {len(values)} samples, but got {len(prompts)}. "
            "Where the samples were not kept, take the scores of your own from `modes.score(outputs, prompts)`."
        )
    index: dict[Hashable, int] = {}
    of_sample = torch.tensor([index.setdefault(prompt, len(index)) for prompt in prompts], device=values.device)
    sums = values.new_zeros(len(index), values.shape[1]).index_add_(0, of_sample, values)
    return list(index), sums, of_sample.bincount(minlength=len(index))


def check_prompt_split_arguments(
    output_kernel: Kernel | None, prompt_kernel: Kernel | None, eta: float, num_modes: int, num_features: int | None
) -> None:
    """Refuse arguments of PromptSplit that are invalid for any samples."""
    check_pair_kernels(output_kernel, prompt_kernel, num_features)
    check_positive("eta", eta)
    check_at_least("num_modes", num_modes, 1)
    if num_features is not None:
        # the covariances of random features of both sides may take 4 GiB
        covariances, bytes_per_entry = 2, 8
        largest = int((2**32 / (covariances * bytes_per_entry)) ** 0.5) // feature_size(output_kernel, 1)
        check_at_most("num_features", num_features, largest, "4 GiB")
