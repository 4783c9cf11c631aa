# SPDX-License-Identifier: Apache-2.0
"""Blocks of an image that are far worse than the rest, or the same in all generated images, whatever else is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.functional.discrepancy_map import largest_piece
from genmonitor.functional.permutation import RARE
from genmonitor.linalg.whitening import slices_of


@dataclass(frozen=True, eq=False)
class Block:
    """A block that stands out.

    Attributes:
        mask: Boolean mask [H, W] of its pixels.
        p: Smallest p-value of the map in it.
        spread: Standard deviation among generated images, divided by that among real ones.
        constant: True if it is nearly the same in all generated images.
    """

    mask: Tensor
    p: float
    spread: float
    constant: bool


def block_that_stands_out(drawn: Mapping[str, Tensor], fake: Tensor, real: Tensor) -> Block | None:
    """Return the block where generated images vary far less than elsewhere, or are far worse; None without one.

    Samples that vary little everywhere have no such block, and neither have pixels that hardly vary in real images.

    Args:
        drawn: Result of `discrepancy_map`.
        fake: Generated images [N, C, H, W].
        real: Real images [M, C, H, W].
    """
    of_fake, of_real = (x.var(0).mean(0).cpu() for x in (fake, real))
    spread = (of_fake / of_real.clamp_min(torch.finfo(of_real.dtype).tiny)).sqrt()
    # pixels that vary at least a third as much as those that vary most, and spreads far below the usual one
    varied = of_real >= 0.33**2 * of_real.max()
    still = varied & (spread <= 0.4) & (spread <= 0.5 * spread[varied].median())
    sizes, p_map = drawn["map"].cpu(), drawn["p_map"].cpu()
    # multiples of the usual size of the difference
    worse = [(sizes >= times * sizes.median()) & (p_map <= RARE) for times in (3, 2)]
    for number, pixels in enumerate([still, *worse]):
        mask = largest_piece(pixels) if pixels.any() else pixels
        count = int(mask.sum())
        # a block is compact and of medium size, unlike the places where a figure was moved or is missing
        if 0.03 * mask.numel() <= count <= 0.3 * mask.numel() and count >= 0.75 * mask[slices_of(mask)].numel():
            ratio = float((of_fake[mask].mean() / of_real[mask].mean()).sqrt())
            return Block(mask, float(p_map[mask].min()), ratio, number == 0)
    return None
