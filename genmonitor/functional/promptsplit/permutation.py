# SPDX-License-Identifier: Apache-2.0
"""Permutation test of a disagreement: whether two sets of outputs differ by more than two sets of one model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.functional.promptsplit.joint_spectrum import joint_rows
from genmonitor.functional.two_sample_test import familywise_p_values, standardized
from genmonitor.kernels import Kernel
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.precision import full_precision

PERMUTATIONS = 199
WIDER = (1 / 16, 1 / 4)
"""Powers of a kernel of distances that are wider ones, which see what lies farther apart."""
TESTED = 10_000
"""Samples of both sides together that are tested, chosen at random: the cost grows with their square."""


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
    num_permutations: int = PERMUTATIONS,
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
        [1.0, 0.005]
    """
    check_at_least("num_permutations", num_permutations, 1)
    kernel, *sides = joint_rows(test, reference, output_kernel, prompt_kernel)
    rows, n = torch.cat(sides).detach(), len(prompts)
    names = [*prompts, *reference_prompts]
    kept = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:TESTED].sort().values
    rows, n = rows[kept.to(rows.device)], int((kept < n).sum())
    named = [names[i] for i in kept.tolist()]
    splits = permuted_sides(named[:n], named[n:], num_permutations, seed)
    splits = torch.cat([torch.arange(len(rows))[None] < n, splits]).T.to(rows.device)
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
