# SPDX-License-Identifier: Apache-2.0
"""The disagreement of two models over prompts as one differentiable number, to steer a sampler by."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_min_samples, check_pairs, check_positive
from genmonitor.functional.promptsplit.joint_spectrum import joint_rows
from genmonitor.kernels import Kernel
from genmonitor.kernels.product import PairKernel, check_pair_kernels
from genmonitor.linalg.chunking import float64_sum, row_blocks
from genmonitor.linalg.precision import full_precision


def prompt_split_energy(
    outputs: Tensor,
    prompts: Tensor,
    reference_outputs: Tensor,
    reference_prompts: Tensor,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    eta: float = 1.0,
) -> Tensor:
    """Squared Frobenius norm of the difference of joint covariances, the sum of all squared eigenvalues.

    ‖Λ‖² = mean k(i, i')² - 2 eta mean k(i, j)² + eta² mean k(j, j')² over test pairs i and reference pairs j, k the
    product of both kernels. Differentiable in all four inputs. Gram matrices are computed, and computed again for the
    gradient, a block of rows at a time.

    Args:
        outputs: of the test side [N, D], N at least 2.
        prompts: embedded, row i belonging to output i [N, E].
        reference_outputs: [N', D], N' at least 2.
        reference_prompts: [N', E].
        output_kernel: None for a Gaussian. An open gamma is resolved from `reference_outputs`; in a loop, give one.
        prompt_kernel: None for a Gaussian. An open gamma is resolved from `reference_prompts`.
        eta: weight of the reference side, positive.

    Returns:
        A float64 scalar, never negative but for rounding; 0 for the same sets at eta = 1.

    Raises:
        TypeError: if an input is not a tensor of real numbers.
        ValueError: if lengths or dimensions differ, values are not finite, a side has fewer than 2 samples, or `eta`
            is not positive.

    References:
        Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models",
            arXiv 2602.04009, Section 5 and Eq. 5.

    Example:
        >>> x, t = torch.tensor([[0.0], [1.0]]), torch.eye(2)
        >>> prompt_split_energy(x, t, x, t)
        tensor(0., dtype=torch.float64)
        >>> prompt_split_energy(x.flip(0), t, x, t)
        tensor(0.7476, dtype=torch.float64)
    """
    check_pair_kernels(output_kernel, prompt_kernel)
    check_positive("eta", eta)
    sides = ((outputs, prompts), (reference_outputs, reference_prompts))
    kernel, test, reference = joint_rows(*sides, output_kernel, prompt_kernel)
    dtype = torch.promote_types(test.dtype, reference.dtype)
    test, reference = test.to(dtype), reference.to(dtype)
    across = _mean_square(kernel, test, reference)
    return _mean_square(kernel, test, test) - 2 * eta * across + eta**2 * _mean_square(kernel, reference, reference)


def joint_diversity(
    outputs: Tensor,
    prompts: Tensor,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
) -> Tensor:
    """Mean squared joint kernel, mean k(i, i')², of outputs and prompts: one over the number of distinct pairs (RKE).

    Small where outputs are diverse: minimize it together with `prompt_split_energy` to keep a steered sampler from
    giving the same output again and again. Differentiable in both inputs.

    Args:
        outputs: [N, D], N at least 2.
        prompts: embedded, row i belonging to output i [N, E].
        output_kernel: None for a Gaussian. An open gamma is resolved from `outputs`; in a loop, give one.
        prompt_kernel: None for a Gaussian. An open gamma is resolved from `prompts`.

    Returns:
        A float64 scalar from 1/N (all pairs orthogonal) to 1 (all alike).

    Raises:
        TypeError: if an input is not a tensor of real numbers.
        ValueError: if lengths differ, values are not finite, or samples are fewer than 2.

    References:
        Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models",
            arXiv 2602.04009, Section 5.

    Example:
        >>> from genmonitor import GaussianKernel
        >>> joint_diversity(torch.zeros(2, 1), torch.eye(2), output_kernel=GaussianKernel(gamma=1.0))
        tensor(0.5677, dtype=torch.float64)
    """
    check_pair_kernels(output_kernel, prompt_kernel)
    x, t = check_pairs("outputs", outputs, "prompts", prompts)
    check_min_samples("outputs", x)
    kernel = PairKernel.of(x, t, output_kernel, prompt_kernel)
    rows = kernel.rows(x, t)
    return _mean_square(kernel, rows, rows)


def _mean_square(kernel: PairKernel, a: Tensor, b: Tensor) -> Tensor:
    """Average the squared kernel over all pairs of rows; of one set with itself only the upper triangle is computed."""
    from torch.utils.checkpoint import checkpoint  # older versions of torch load sympy for it

    same = a is b

    def block_sum(rows: Tensor, columns: Tensor) -> Tensor:
        with full_precision():
            squares = kernel.gram(rows, columns).square()
        total = float64_sum(squares)
        return 2 * total - float64_sum(squares[:, : len(rows)]) if same else total

    total = a.new_zeros((), dtype=torch.float64)
    for start, stop in row_blocks(len(a), 8 * a.element_size(), columns=None if same else len(b)):
        columns = b[start:] if same else b
        total = total + checkpoint(block_sum, a[start:stop], columns, use_reentrant=False, preserve_rng_state=False)
    return total / (len(a) * len(b))
