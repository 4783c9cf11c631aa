# SPDX-License-Identifier: Apache-2.0
"""Conditional-Vendi: diversity given prompts as a difference of entropies, the alternative to Scendi."""

from __future__ import annotations

from torch import Tensor

from genmonitor._validation import check_min_samples, check_pairs
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import check_kernels, check_side, gram_matrix
from genmonitor.linalg.spectrum import entropy, psd_eigenvalues


def conditional_vendi_score(
    outputs: Tensor, prompts: Tensor, *, kernel: Kernel | None = None, prompt_kernel: Kernel | None = None
) -> Tensor:
    """Conditional-Vendi exp(H(K_X ∘ K_T / n) - H(K_T / n)), ∘ the elementwise product: the alternative to Scendi.

    Args:
        outputs: [N, D], N at least 2; two [N, N] matrices are held.
        prompts: [N, E].
        kernel: as for `scendi_score`.
        prompt_kernel: as for `scendi_score`.

    Returns:
        A float64 scalar, at least 1.

    Raises:
        TypeError, ValueError: as `scendi_score` does.

    References:
        Jalali et al., "Conditional Vendi Score: Prompt-Aware Diversity Evaluation for Generative AI Models and LLMs",
            arXiv 2411.02817.

    Example:
        >>> import torch
        >>> prompts = torch.eye(2).repeat_interleave(8, dim=0)
        >>> conditional_vendi_score(torch.eye(4).repeat_interleave(4, dim=0), prompts)
        tensor(2., dtype=torch.float64)
    """
    x, t = check_pairs("outputs", outputs, "prompts", prompts)
    check_min_samples("outputs", x)
    kernel, prompt_kernel = check_kernels(None, kernel=kernel, prompt_kernel=prompt_kernel)
    kernel, prompt_kernel = check_side("outputs", x, kernel), check_side("prompts", t, prompt_kernel)
    prompt_gram = gram_matrix(t, prompt_kernel) / len(t)
    joint = gram_matrix(x, kernel) * prompt_gram
    return (entropy(psd_eigenvalues(joint)) - entropy(psd_eigenvalues(prompt_gram))).exp()
