# SPDX-License-Identifier: Apache-2.0
"""The disagreement of two models over prompts as one number, to steer a sampler by, and its permutation test."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_min_samples, check_pairs, check_positive
from genmonitor.functional.permutation import NUM_PERMUTATIONS, familywise_p_values, standardized
from genmonitor.functional.promptsplit.joint_spectrum import joint_rows
from genmonitor.kernels import Kernel
from genmonitor.kernels.product import PairKernel, check_pair_kernels
from genmonitor.linalg.chunking import float64_sum, row_blocks
from genmonitor.linalg.precision import full_precision

WIDER = (1 / 16, 1 / 4)
"""Powers of a kernel of distances that are wider ones, which see what lies farther apart."""
TESTED = 10_000
"""Samples of both sides together that are tested, chosen at random: the cost grows with their square."""


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


def permuted_sides(prompts: Sequence[Hashable], reference_prompts: Sequence[Hashable], count: int, seed: int) -> Tensor:
    """Draw which side each sample is on, as if both were one model's.

    Sides are exchanged among the samples of a prompt, so that each side keeps its prompts. Where some prompt is on one
    side alone, they are exchanged among all pairs of output and prompt.

    Args:
        prompts: the prompt of each of N test samples.
        reference_prompts: of each of N' reference samples.
        count: number of draws S.
        seed: of the draws.

    Returns:
        bool [S, N + N'] on the CPU, true for the test side, the test samples first.

    Example:
        >>> permuted_sides("aab", "abb", 2, seed=0).sum(1)
        tensor([3, 3])
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(prompts))}
    shared = places.keys() == set(reference_prompts)
    groups = torch.tensor([places[name] if shared else 0 for name in (*prompts, *reference_prompts)])
    in_order, test = groups.argsort(stable=True), torch.arange(len(groups)) < len(prompts)
    generator = torch.Generator().manual_seed(seed)
    out = torch.empty(count, len(groups), dtype=torch.bool)
    for sides in out:
        shuffled = torch.randperm(len(groups), generator=generator)
        sides[shuffled[groups[shuffled].argsort(stable=True)]] = test[in_order]
    return out


def disagreement_p_value(
    test: tuple[Tensor, Tensor],
    reference: tuple[Tensor, Tensor],
    prompts: Sequence[Hashable],
    reference_prompts: Sequence[Hashable],
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    *,
    num_permutations: int = NUM_PERMUTATIONS,
    seed: int = 0,
) -> float:
    """p-value of the hypothesis that both sides answer their prompts alike, by `permuted_sides`.

    The statistic is the largest of several squared distances in standard deviations over the permutations: of the means
    of the joint features, of their covariances, which is PromptSplit's ‖Λ‖² with eta = 1 (`prompt_split_energy`), and
    of the means by wider kernels, where the kernel is one of distances. Of more than 10,000 samples as many are tested,
    chosen at random.

    Args:
        test: outputs [N, D] and embedded prompts [N, E], N at least 2.
        reference: outputs [N', D] and embedded prompts [N', E], N' at least 2.
        prompts: the prompt of each test sample.
        reference_prompts: of each reference sample.
        output_kernel: as for `prompt_split`.
        prompt_kernel: as for `prompt_split`.
        num_permutations: B.
        seed: of the permutations, and of the choice of samples.

    Returns:
        A multiple of 1 / (B + 1), up to 1.

    Example:
        >>> prompts, names = torch.eye(3).repeat(8, 1), [0, 1, 2] * 8
        >>> x, y = torch.linspace(0, 1, 24)[:, None], torch.linspace(0.01, 0.99, 24)[:, None]
        >>> other = y + 5 * prompts[:, :1]  # another answer to the first prompt
        >>> [disagreement_p_value((x, prompts), (z, prompts), names, names) for z in (y, other)]
        [1.0, 0.001]
    """
    check_at_least("num_permutations", num_permutations, 1)
    kernel, *sides = joint_rows(test, reference, output_kernel, prompt_kernel)
    rows, _, n, splits = _tested(sides, prompts, reference_prompts, num_permutations, seed)
    weights = torch.where(splits, 1 / n, -1 / (len(rows) - n)).double()
    wide = kernel.output_kernel.shift_invariant and kernel.prompt_kernel.shift_invariant
    powers = (*(WIDER if wide else ()), 1, 2)
    distances = weights.new_zeros(len(powers), weights.shape[1])
    with full_precision():
        for start, stop in row_blocks(len(rows), 16):
            gram = kernel.gram(rows[start:stop], rows[start:]).double()
            for distance, power in zip(distances, powers, strict=True):
                values = gram.pow(power)
                values[:, : stop - start] /= 2  # counted by its own rows and by its own columns
                distance += (weights[start:stop] * (values @ weights[start:])).sum(0)
    return float(familywise_p_values(standardized(distances).amax(0, keepdim=True)))


def prompt_p_values(
    test: tuple[Tensor, Tensor],
    reference: tuple[Tensor, Tensor],
    prompts: Sequence[Hashable],
    reference_prompts: Sequence[Hashable],
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    *,
    num_permutations: int = NUM_PERMUTATIONS,
    seed: int = 0,
) -> dict[Hashable, float]:
    """p-value of each prompt that both sides answer it alike, with one level for all prompts.

    The statistic of a prompt is the squared MMD of its samples of both sides, in standard deviations over the
    permutations; its p-value is the part of the permutations in which the largest of all prompts is as large. A prompt
    with one sample a side has a p-value of 1.

    Args:
        test: as for `disagreement_p_value`.
        reference: likewise.
        prompts: the prompt of each test sample.
        reference_prompts: of each reference sample.
        output_kernel: as for `prompt_split`.
        prompt_kernel: as for `prompt_split`.
        num_permutations: B.
        seed: of the permutations, and of the choice of samples.

    Returns:
        Prompt to p-value; empty where some prompt is on one side alone, whose samples cannot be exchanged.

    Example:
        >>> prompts, names = torch.eye(3).repeat(8, 1), [0, 1, 2] * 8
        >>> x = torch.linspace(0, 1, 24)[:, None]
        >>> other = x + 5 * prompts[:, :1]  # another answer to the first prompt
        >>> found = prompt_p_values((x, prompts), (other, prompts), names, names)
        >>> [prompt for prompt, p in found.items() if p <= 0.05]
        [0]
    """
    check_at_least("num_permutations", num_permutations, 1)
    kernel, *sides = joint_rows(test, reference, output_kernel, prompt_kernel)
    rows, names, n, splits = _tested(sides, prompts, reference_prompts, num_permutations, seed)
    if set(names[:n]) != set(names[n:]):
        return {}
    members: dict[Hashable, list[int]] = {}
    for index, name in enumerate(names):
        members.setdefault(name, []).append(index)
    distances = []
    for indices in members.values():
        of_test, some = splits[indices], rows[indices]
        count = of_test[:, 0].sum()
        weights = torch.where(of_test, 1 / count, -1 / (len(indices) - count)).double()
        with full_precision():
            gram = kernel.gram(some, some).double()
        distances.append((weights * (gram @ weights)).sum(0))
    p_values = familywise_p_values(standardized(torch.stack(distances)))
    return dict(zip(members, p_values.tolist(), strict=True))


def _tested(
    sides: Sequence[Tensor],
    prompts: Sequence[Hashable],
    reference_prompts: Sequence[Hashable],
    num_permutations: int,
    seed: int,
) -> tuple[Tensor, list[Hashable], int, Tensor]:
    """Return rows, prompts and number of test samples of at most `TESTED` samples, and their splits [N, 1 + B].

    The first split is the observed one, true for the test side.
    """
    rows, n = torch.cat(list(sides)).detach(), len(prompts)
    names = [*prompts, *reference_prompts]
    kept = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:TESTED].sort().values
    rows, n = rows[kept.to(rows.device)], int((kept < n).sum())
    named = [names[i] for i in kept.tolist()]
    splits = permuted_sides(named[:n], named[n:], num_permutations, seed)
    return rows, named, n, torch.cat([torch.arange(len(rows))[None] < n, splits]).T.to(rows.device)
