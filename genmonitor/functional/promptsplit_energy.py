# SPDX-License-Identifier: Apache-2.0
"""The disagreement of two models over prompts as one number that can guide a sampler, and its permutation test."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_min_samples, check_pairs, check_positive
from genmonitor.functional.joint_spectrum import joint_rows
from genmonitor.functional.permutation import NUM_PERMUTATIONS, familywise_p_values, standardized
from genmonitor.kernels import Kernel
from genmonitor.kernels.product import PairKernel, check_pair_kernels
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.precision import full_precision

TESTED = 10_000
"""Largest number of tested samples of both sides together, chosen at random, since the cost is quadratic."""


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

    ‖Λ‖² = mean k(i, i')² - 2 eta mean k(i, j)² + eta² mean k(j, j')² over test pairs i and reference pairs j. Here k is
    the product of both kernels. Differentiable in all four inputs. Gram matrices are computed a block of rows at a
    time, and again for the gradient.

    Args:
        outputs: Outputs of the test side [N, D], N at least 2.
        prompts: Embedded prompts [N, E], row i of output i.
        reference_outputs: Outputs of the reference side [N', D], N' at least 2.
        reference_prompts: Embedded prompts of the reference side [N', E].
        output_kernel: Kernel of outputs; None for a Gaussian. A gamma that is not given comes from `reference_outputs`;
            in a loop, give one.
        prompt_kernel: Kernel of prompts; None for a Gaussian. A gamma that is not given comes from `reference_prompts`.
        eta: Weight of the reference side, positive.

    Returns:
        A float64 scalar, non-negative up to rounding; 0 for equal sets at eta = 1.

    Raises:
        TypeError: If an input is not a tensor of real numbers.
        ValueError: If lengths or dimensions differ, values are not finite, a side has fewer than 2 samples, or `eta`
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
    outputs: Tensor, prompts: Tensor, *, output_kernel: Kernel | None = None, prompt_kernel: Kernel | None = None
) -> Tensor:
    """Mean squared joint kernel, mean k(i, i')², of outputs and prompts: the inverse number of distinct pairs (RKE).

    It is small if outputs are diverse. Minimize it together with `prompt_split_energy` to keep a guided sampler from
    repeating the same output. Differentiable in both inputs.

    Args:
        outputs: Outputs [N, D], N at least 2.
        prompts: Embedded prompts [N, E], row i of output i.
        output_kernel: Kernel of outputs; None for a Gaussian. A gamma that is not given comes from `outputs`; in a
            loop, give one.
        prompt_kernel: Kernel of prompts; None for a Gaussian. A gamma that is not given comes from `prompts`.

    Returns:
        A float64 scalar from 1/N (all pairs orthogonal) to 1 (all alike).

    Raises:
        TypeError: If an input is not a tensor of real numbers.
        ValueError: If lengths differ, values are not finite, or samples are fewer than 2.

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
    """Average the squared kernel over all pairs of rows; for one set only the upper triangle is computed."""
    from torch.utils.checkpoint import checkpoint  # older versions of torch load sympy for it

    same = a is b

    def block_sum(rows: Tensor, columns: Tensor) -> Tensor:
        with full_precision():
            squares = kernel.gram(rows, columns).square()
        total = squares.sum(dtype=torch.float64)
        return 2 * total - squares[:, : len(rows)].sum(dtype=torch.float64) if same else total

    total = a.new_zeros((), dtype=torch.float64)
    for start, stop in row_blocks(len(a), 8 * a.element_size(), columns=None if same else len(b)):
        columns = b[start:] if same else b
        total = total + checkpoint(block_sum, a[start:stop], columns, use_reentrant=False, preserve_rng_state=False)
    return total / (len(a) * len(b))


def permuted_sides(prompts: Sequence[Hashable], reference_prompts: Sequence[Hashable], count: int, seed: int) -> Tensor:
    """Draw a random side for each sample, as if both sides came from one model.

    Sides are exchanged among the samples of a prompt, so that each side keeps its prompts. If some prompt is on one
    side alone, they are exchanged among all pairs of output and prompt.

    Args:
        prompts: Prompt of each of N test samples.
        reference_prompts: Prompt of each of N' reference samples.
        count: Number S of draws.
        seed: Seed of the draws.

    Returns:
        Sides, bool [S, N + N'] on the CPU, true for the test side, the test samples first.

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


def disagreement_p_values(
    test: tuple[Tensor, Tensor],
    reference: tuple[Tensor, Tensor],
    prompts: Sequence[Hashable],
    reference_prompts: Sequence[Hashable],
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    *,
    num_permutations: int = NUM_PERMUTATIONS,
    seed: int = 0,
) -> tuple[float, dict[Hashable, float]]:
    """P-values that both sides answer their prompts alike, for all prompts and for each, by `permuted_sides`.

    The statistic of all prompts is the largest of several squared distances, each in standard deviations over the
    permutations. These are the distance of the means of the joint features, and that of their covariances,
    PromptSplit's ‖Λ‖² with eta = 1 (`prompt_split_energy`). For a kernel of distances there are also the distances of
    the means by wider kernels. The statistic of a prompt is the squared MMD of its samples of both sides. Prompts share
    one level: a prompt's p-value is the share of the permutations in which the largest statistic of all prompts is as
    large. At most 10,000 samples are tested, chosen at random.

    Args:
        test: Outputs [N, D] and embedded prompts [N, E], N at least 2.
        reference: Outputs [N', D] and embedded prompts [N', E], N' at least 2.
        prompts: Prompt of each test sample.
        reference_prompts: Prompt of each reference sample.
        output_kernel: Same as in `prompt_split`.
        prompt_kernel: Same as in `prompt_split`.
        num_permutations: Number B of permutations.
        seed: Seed of the permutations, and of the choice of samples.

    Returns:
        A multiple of 1 / (B + 1), up to 1, and such a p-value by prompt, which is 1 for a prompt with one sample a
        side. P-values by prompt are empty if some prompt is on one side alone, whose samples cannot be exchanged.

    Example:
        >>> prompts, names = torch.eye(3).repeat(8, 1), [0, 1, 2] * 8
        >>> x = torch.linspace(0, 1, 24)[:, None]
        >>> other = x + 5 * prompts[:, :1]  # another answer to the first prompt
        >>> p, by_prompt = disagreement_p_values((x, prompts), (other, prompts), names, names)
        >>> p, [prompt for prompt, p in by_prompt.items() if p <= 0.05]
        (0.001, [0])
    """
    check_at_least("num_permutations", num_permutations, 1)
    kernel, *sides = joint_rows(test, reference, output_kernel, prompt_kernel)
    rows = torch.cat(sides).detach()
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:TESTED].sort().values
    rows, n = rows[chosen.to(rows.device)], int((chosen < len(prompts)).sum())
    names = [*prompts, *reference_prompts]
    names = [names[i] for i in chosen.tolist()]
    drawn = permuted_sides(names[:n], names[n:], num_permutations, seed)
    splits = torch.cat([torch.arange(len(rows))[None] < n, drawn]).T.to(rows.device)
    p = float(familywise_p_values(standardized(_distances(kernel, rows, splits)).amax(0, keepdim=True)))
    if set(names[:n]) != set(names[n:]):
        return p, {}
    members: dict[Hashable, list[int]] = {}
    for index, name in enumerate(names):
        members.setdefault(name, []).append(index)
    distances = []
    for indices in members.values():
        weights = _side_weights(splits[indices])
        with full_precision():
            gram = kernel.gram(rows[indices], rows[indices]).double()
        distances.append((weights * (gram @ weights)).sum(0))
    p_values = familywise_p_values(standardized(torch.stack(distances)))
    return p, dict(zip(members, p_values.tolist(), strict=True))


def _distances(kernel: PairKernel, rows: Tensor, splits: Tensor) -> Tensor:
    """Return the squared distances of the sides of each split [K, S] by K powers of the kernel."""
    weights = _side_weights(splits)
    # powers of a kernel of distances are wider kernels, for larger distances, and the narrower covariance
    wide = kernel.output_kernel.shift_invariant and kernel.prompt_kernel.shift_invariant
    powers = (1 / 16, 1 / 4, 1, 2) if wide else (1, 2)
    out = weights.new_zeros(len(powers), weights.shape[1])
    with full_precision():
        for start, stop in row_blocks(len(rows), 16):
            gram = kernel.gram(rows[start:stop], rows[start:]).double()
            for distance, power in zip(out, powers, strict=True):
                values = gram.pow(power)
                values[:, : stop - start] /= 2  # counted by its own rows and by its own columns
                distance += (weights[start:stop] * (values @ weights[start:])).sum(0)
    return out


def _side_weights(splits: Tensor) -> Tensor:
    """Return 1/N for the test side and -1/N' for the other side of each split [N + N', S], float64."""
    n = splits[:, 0].sum()
    return torch.where(splits, 1 / n, -1 / (len(splits) - n)).double()
