# SPDX-License-Identifier: Apache-2.0
"""The sum of squared products of sites' levels, each pair of levels only as precisely as its weight demands."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.precision import fast_products, rounded_at_random

Pairs = list[tuple[int, int]]
FLOAT32_ERROR = 5e-6
"""Largest relative error of a sum of squared products in float32."""


def level_pairs(spectrum: Tensor, tolerance: float) -> Pairs:
    """List the pairs of levels to multiply: those left out add up to less than the tolerance for any two sites.

    There are two candidates, and the shorter list is returned. One leaves out the weakest pairs, each of which adds at
    most the product of its two levels' weights. The other leaves out all pairs with a level beyond the first r: of the
    Gram matrices S + W of two sites, with |S + W| = 1, the products that involve W add at most 2 |W| + |W|².

    Args:
        spectrum: of each site [d, R], in descending order.
        tolerance: what may be missing from an entry.
    """
    r = spectrum.shape[1]
    weight = _weights(spectrum).flatten()
    order = weight.argsort()
    kept = order[weight[order].cumsum(0) > tolerance].tolist()
    beyond = spectrum.square().flip(1).cumsum(1).flip(1).sqrt().amax(0)
    first = max(1, int((beyond * (2 + beyond) > tolerance).sum()))
    if first**2 < len(kept) or not kept:
        return [(k, other) for k in range(first) for other in range(first)]
    return sorted((index // r, index % r) for index in kept)


def sum_of_squares(levels: Tensor, spectrum: Tensor, pairs: Pairs, tolerance: float) -> Tensor:
    """Sum the squared products over pairs of levels for all pairs of sites, multiplying the upper triangle only.

    Args:
        levels: [R, d, N] float64.
        spectrum: squared norms of the levels [d, R].
        pairs: of levels, both (k, l) and (l, k).
        tolerance: five standard deviations of what random rounding adds to an entry; all other rounding adds less than
            twice as much.

    Returns:
        [d, d], float64.
    """
    d = levels.shape[1]
    heavy, middle, weak = by_precision(levels, spectrum, pairs, tolerance)
    doubles = {level: levels[level] for level in _used(heavy)}
    singles = {level: levels[level].float() for level in _used(middle + weak)}
    rounded = {level: rounded_at_random(singles[level], seed=level) for level in _used(weak)}
    out = levels.new_empty(d, d)
    for start, stop in row_blocks(d, 4 * levels.element_size()):
        block = levels.new_zeros(stop - start, d - start)
        _add_squares(block, doubles, heavy, start, stop)
        total = block.new_zeros(block.shape, dtype=torch.float32)
        _add_squares(total, singles, middle, start, stop)
        with fast_products():
            _add_squares(total, rounded, weak, start, stop)
        out[start:stop, start:] = block.add_(total)
        out[stop:, start:stop] = block[:, stop - start :].T
        square = out[start:stop, start:stop]  # rounding differs between the two sides of the diagonal
        square.copy_(square.triu() + square.triu(1).T)
    return out


def by_precision(levels: Tensor, spectrum: Tensor, pairs: Pairs, tolerance: float) -> tuple[Pairs, Pairs, Pairs]:
    """Divide pairs into those for float64, for float32, and for factors rounded at random to bfloat16.

    A rounded number is off by a random 2⁻⁸ of itself at most, so a product ⟨a, b⟩ is off by e = 2⁻⁸ √2 |a| |b| c, where
    c is the largest fraction that one entry has of the norm of the less concentrated factor. Its square is off by
    2 ⟨a, b⟩ e, at most 2 e |a| |b|, independently for each pair: the weakest pairs are rounded as long as five standard
    deviations of the sum stay below the tolerance.
    """
    weights = _weights(spectrum)
    lowest, highest = torch.aminmax(levels, dim=2)  # four times as fast as a maximum norm
    highest = torch.maximum(-lowest, highest)
    concentration = (highest / spectrum.T.sqrt().clamp_min(torch.finfo(spectrum.dtype).tiny)).amax(1).clamp_max(1)
    less = torch.minimum(concentration[:, None], concentration)
    deviations = 2 * 2**-8 * math.sqrt(2) * less * weights
    heavy: Pairs = []
    middle: Pairs = []
    weak: Pairs = []
    variance = 0.0
    for k, other in sorted(pairs, key=lambda pair: float(weights[pair])):
        variance += float(deviations[k, other]) ** 2
        if 5 * math.sqrt(variance) <= tolerance:
            weak.append((k, other))
        else:
            (heavy if FLOAT32_ERROR * weights[k, other] > 2 * tolerance else middle).append((k, other))
    return heavy, middle, weak


def _weights(spectrum: Tensor) -> Tensor:
    """Return the largest contribution of each pair of levels to an entry [R, R]."""
    largest = spectrum.amax(0)
    return largest[:, None] * largest


def _used(pairs: Pairs) -> set[int]:
    return {level for pair in pairs for level in pair}


def _add_squares(total: Tensor, factors: dict[int, Tensor], pairs: Pairs, start: int, stop: int) -> None:
    for k, other in pairs:
        product = factors[k][start:stop] @ factors[other][start:].T
        total.addcmul_(product, product)
