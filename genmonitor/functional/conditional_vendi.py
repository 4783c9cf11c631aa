# SPDX-License-Identifier: Apache-2.0
"""Conditional-Vendi and Information-Vendi: the variety of outputs given their prompts, by entropies of kernels."""

from __future__ import annotations

from torch import Tensor

from genmonitor._validation import check_min_samples, check_order, check_pairs
from genmonitor.functional.vendi import vendi_of_spectrum
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import check_kernels, check_side, gram_matrix


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

    H(X) is the entropy of K_X / n, H(X, T) that of (K_X ∘ K_T) / n, ∘ the elementwise product: two samples are alike if
    both outputs and prompts are. The two scores multiply to the Vendi score of the outputs.

    Args:
        outputs: [N, D], N at least 2; three [N, N] matrices are held, up to several thousand samples.
        prompts: [N, E].
        kernel: As for `scendi_score`.
        prompt_kernel: As for `scendi_score`.
        order: Q of the entropies, as for `vendi_score`; 2 gives Conditional-RKE.
        truncation: Of each spectrum, as for `vendi_score`.

    Returns:
        float64 scalars, at least 1 unless `truncation` is set: `conditional_vendi`, how many modes the outputs of one
        prompt have; `information_vendi`, by what factor prompts multiply that.

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
    """Both scores from float64 Gram matrices [N, N] with 1 on their diagonals, as `conditional_vendi_score`."""
    matrices = (gram * prompt_gram, gram, prompt_gram)
    return conditional_vendi_of(*(vendi_of_spectrum(matrix / len(gram), order, truncation) for matrix in matrices))


def conditional_vendi_of(pairs: Tensor, outputs: Tensor, prompts: Tensor) -> dict[str, Tensor]:
    """Both scores from the Vendi scores of pairs, outputs and prompts."""
    conditional = pairs / prompts
    return {"conditional_vendi": conditional, "information_vendi": outputs / conditional}
