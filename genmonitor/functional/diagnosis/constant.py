# SPDX-License-Identifier: Apache-2.0
"""Places that are nearly the same in all generated images, though real images vary there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.functional.discrepancy_map import largest_piece, slices_of


@dataclass(frozen=True, eq=False)
class Constant:
    """A place that is nearly the same in all generated images.

    Attributes:
        mask: Boolean mask [H, W] of its pixels.
        spread: Standard deviation among generated images, divided by that among real ones.
    """

    mask: Tensor
    spread: float


def constant_place(fake: Tensor, real: Tensor) -> Constant | None:
    """Return the largest block where generated images [N, C, H, W] vary far less than elsewhere; None without one.

    Samples that vary little everywhere have no such block, and neither have pixels that hardly vary in real images.

    Example:
        >>> fake, real = torch.rand(2, 50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> fake[:, :, :4, :4] = 0.5
        >>> int(constant_place(fake, real).mask.sum())
        16
    """
    of_fake, of_real = (x.var(0).mean(0) for x in (fake, real))
    spread = (of_fake / of_real.clamp_min(torch.finfo(of_real.dtype).tiny)).sqrt()
    # pixels that vary at least a third as much as those that vary most, and spreads far below the usual one
    varied = of_real >= 0.33**2 * of_real.max()
    still = varied & (spread <= 0.4) & (spread <= 0.5 * spread[varied].median())
    if not still.any():
        return None
    mask = largest_piece(still.cpu())
    filled = float(mask[slices_of(mask)].double().mean())
    # a block of twelve pixels or more, and not what figures that are moved or missing leave empty
    if filled < 0.75 or not 12 <= int(mask.sum()) <= 0.3 * mask.numel():
        return None
    inside = mask.to(of_real.device)
    return Constant(mask, float((of_fake[inside].mean() / of_real[inside].mean()).sqrt()))
