# SPDX-License-Identifier: Apache-2.0
"""Cut-offs between levels of similarity, fitted to people's judgments of pairs of images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FittedCutoffs:
    """Cut-offs that tell people's levels apart best, and how well they do so on pairs that they were not fitted to.

    Attributes:
        cutoffs: where levels 1, 2, … begin, rising; -inf or inf where no value speaks for what lies below or above.
        accuracy: share of the pairs, those fitted to, whose level they name.
        fold_accuracies: the same of each fold, by cut-offs fitted to the others.
    """

    cutoffs: tuple[float, ...]
    accuracy: float
    fold_accuracies: tuple[float, ...]

    @property
    def cross_validated(self) -> float:
        """The mean accuracy of the folds."""
        return float(torch.tensor(self.fold_accuracies).double().mean())

    @property
    def deviation(self) -> float:
        """The standard deviation of the folds' accuracies."""
        return float(torch.tensor(self.fold_accuracies).double().std())


def fit_cutoffs(similarity: Tensor, levels: Tensor, *, folds: int = 5, seed: int = 0) -> FittedCutoffs:
    """Fit the cut-offs by which similarities name most people's levels right, and cross-validate them.

    The fit is exact: of all cut-offs, by dynamic programming over the sorted similarities. Each lies midway between
    two values. Folds hold each level in equal parts.

    Args:
        similarity: of each pair of images [N], rising as pairs are more alike: `1 - calibration(d)` of the squared
            distances d between their features, or any other measure, such as `-d`.
        levels: what people called each pair [N], whole numbers from 0 (not alike) to the highest level.
        folds: of the cross-validation, from 2 to N.
        seed: of the draw of the folds.

    Raises:
        ValueError: if shapes differ, values are not finite, `folds` is no number from 2 to N, or a level between 0 and
            the highest never occurs.

    References:
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482, whose cut-offs are 0.2, 0.4 and 0.85.

    Example:
        >>> similarity = torch.tensor([0.1, 0.2, 0.3, 0.5, 0.75, 0.9], dtype=torch.float64)
        >>> found = fit_cutoffs(similarity, torch.tensor([0, 0, 1, 1, 2, 2]), folds=2)
        >>> found.cutoffs, found.accuracy
        ((0.25, 0.625), 1.0)
    """
    values, labels = similarity.detach().double(), levels.long()
    if values.ndim != 1 or values.shape != labels.shape or not bool(values.isfinite().all()):
        raise ValueError(
            f"Expected `similarity` and `levels` of one shape [N] and finite, but got {list(values.shape)} and "
            f"{list(labels.shape)}, {int(values.isfinite().sum())} of them finite."
        )
    if not 2 <= folds <= len(values):
        raise ValueError(f"Expected `folds` from 2 to the number of pairs, {len(values)}, but got {folds}.")
    missing = sorted(set(range(max(2, int(labels.max()) + 1))) - set(labels.tolist()))
    if missing or labels.min() < 0:
        raise ValueError(
            f"Expected `levels` to hold every level from 0 to the highest, two at least, but got "
            f"{sorted(set(labels.tolist()))}. Number those that occur 0, 1, …."
        )
    count = int(labels.max()) + 1
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    fold = torch.empty_like(order)
    fold[order[labels[order].argsort(stable=True)]] = torch.arange(len(order), device=order.device) % folds
    held_out = [
        _accuracy(_best(values[fold != k], labels[fold != k], count), values[fold == k], labels[fold == k])
        for k in range(folds)
    ]
    cutoffs = _best(values, labels, count)
    return FittedCutoffs(tuple(cutoffs.tolist()), _accuracy(cutoffs, values, labels), tuple(held_out))


def _best(values: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return the cut-offs [count - 1] that name most labels [N] right."""
    steps, place = values.unique(return_inverse=True)  # equal values cannot be told apart
    found = torch.zeros(count, len(steps) + 1, dtype=torch.long, device=values.device)
    found.index_put_((labels, place + 1), torch.ones_like(labels), accumulate=True)
    below = found.cumsum(1)  # pairs of each level among the lowest 0, 1, … values
    right = below[0]
    starts: list[Tensor] = []
    for level in range(1, count):
        gained = (right - below[level]).cummax(0)  # where this level had best begin, if it ends here or later
        right = below[level] + gained.values
        starts.append(gained.indices)
    end, chosen = len(steps), []
    for start in reversed(starts):
        end = int(start[end])
        chosen.append(end)
    edges = torch.cat([steps.new_tensor([-torch.inf]), (steps[1:] + steps[:-1]) / 2, steps.new_tensor([torch.inf])])
    return edges[chosen[::-1]]


def _accuracy(cutoffs: Tensor, values: Tensor, labels: Tensor) -> float:
    """Return the share of values that cut-offs give their label."""
    return float((torch.bucketize(values, cutoffs, right=True) == labels).double().mean())
