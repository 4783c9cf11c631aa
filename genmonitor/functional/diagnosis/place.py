# SPDX-License-Identifier: Apache-2.0
"""Where in an area of the map, or around it, a fault is: where real images with it are closest to generated ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.areas import largest_piece
from genmonitor.functional.diagnosis.fault_models import FaultModel, Measured
from genmonitor.functional.diagnosis.fit import CHANCE, Faults, Side, fit, put_faults, usable
from genmonitor.functional.diagnosis.images import Images, side_to_fit
from genmonitor.functional.two_sample_test import LEVEL
from genmonitor.linalg.whitening import FLOOR, REACH, Whitening

EDGE, LEAST, KEPT = 2, 12, 0.25
"""Pixels that an area of the map may be too large by, fewest pixels without them, and least part of the area."""
SEARCHED = 112
"""Images a side that say where the fault is."""
LEAST_SHARE, ENOUGH = 0.2, 0.6
"""Share that a fault must explain to say where it is, and from which no other area is looked at."""
MOVES = 8
"""Times that a side of an area may move by a pixel."""
BORDERS = (1, 2, 3, 4)
"""Pixels that borders are wide."""


def within(mask: Tensor) -> list[Tensor]:
    """Return an area, and the same without its outermost pixels, one after the other, while enough of it is left.

    Example:
        >>> square = torch.zeros(9, 9, dtype=torch.bool)
        >>> square[:, 2:] = True
        >>> [int(x.sum()) for x in within(square)]
        [63, 54, 45]
    """
    out = [mask]
    for _ in range(EDGE):
        smaller = grown(out[-1], -1)
        if float(smaller.sum()) < max(LEAST, KEPT * float(mask.sum())):
            break
        out.append(smaller)
    return out


def located(
    images: Images, mask: Tensor, p_map: Tensor, models: Sequence[FaultModel | Measured], skip_failing: bool
) -> Tensor:
    """Return where the fault is that explains most of what is within an area of the map, or around it.

    It is there where real images with it are closest to generated ones, seen with what is around: the area where that
    holds pixel by pixel, or the map's, moved at its sides while that brings them closer. Pixels beside a fault that are
    the same in all real images stand out more than it does, so the fault may be around the area.

    Args:
        images: of both sides.
        mask: of the area, bool [H, W]: larger than the fault by a pixel or two, or its edge alone.
        p_map: p-values of the map [H, W].
        models: to try.
        skip_failing: as for `diagnose_area`.
    """
    fake, _ = images.halves[0]
    significant = (p_map <= LEVEL) | grown(mask, 1)
    best: tuple[float, Faults] = LEAST_SHARE, ()
    for area in unlike([within(mask)[-1], grown(mask, REACH) & significant]):
        side = side_to_fit(images, area).first(SEARCHED)
        faults = next(fit(side, usable(models, side, fake, [], skip_failing)), ())
        share = 1 - side.left(faults) / max(side.left(()), CHANCE)
        best = max(best, (share, faults), key=lambda x: x[0])
        if best[0] >= ENOUGH:
            break
    if not best[1]:
        return mask
    around = side_to_fit(images, grown(significant, REACH)).first(SEARCHED)
    moved = moved_to_fit(around, [mask, _by_pixel(images, mask, significant, best[1])], best[1])
    return moved if around.put_into(moved).left(best[1]) < around.left(()) else mask


def moved_to_fit(side: Side, areas: Sequence[Tensor], faults: Faults) -> Tensor:
    """Return the area in which faults bring real images closest, with its sides moved while that brings them closer.

    Rectangles and borders are tried too: faults are such more often than what is left of them pixel by pixel.
    """

    def best(some: Sequence[Tensor]) -> tuple[float, Tensor]:
        return min(((side.put_into(area).left(faults), area) for area in some), key=lambda x: x[0])

    left, area = best([*areas, *unlike([x for area in areas for x in _plain(area)])])
    for _ in range(MOVES):
        after, moved = best([area, *unlike(_moved(area))])
        if after >= left:
            break
        left, area = after, moved
    return area


def _moved(area: Tensor) -> list[Tensor]:
    """Return an area with each of its sides moved out and in by a pixel."""
    padded = F.pad(area[None].float(), (1, 1, 1, 1), "replicate")[0].bool()
    height, width = area.shape
    beside = [padded[y : y + height, x : x + width] for y, x in ((0, 1), (2, 1), (1, 0), (1, 2))]
    return [area | x for x in beside] + [area & x for x in beside]


def _plain(area: Tensor) -> list[Tensor]:
    """Return the rectangle that holds an area; of one that reaches all sides of the image, borders of some widths."""
    rectangle = box(area)
    if not bool(rectangle.all()):
        return [rectangle]
    borders = [rectangle.clone() for _ in BORDERS]
    for width, border in zip(BORDERS, borders, strict=True):
        border[width:-width, width:-width] = False
    return borders


def grown(mask: Tensor, pixels: int) -> Tensor:
    """Return a mask [H, W] that is larger by so many pixels, or smaller by as many if they are negative."""
    if pixels < 0:
        return ~grown(~mask, -pixels)
    return F.max_pool2d(mask[None].float(), 2 * pixels + 1, 1, pixels)[0] > 0


def box(mask: Tensor) -> Tensor:
    """Return the smallest rectangle that holds a mask [H, W]."""
    out = torch.zeros_like(mask)
    rows, columns = (slice(int(x.min()), int(x.max()) + 1) for x in mask.nonzero(as_tuple=True))
    out[rows, columns] = True
    return out


def unlike(masks: Sequence[Tensor]) -> list[Tensor]:
    """Return masks [H, W] without repetitions, and without those of all of the image or nothing."""
    out: list[Tensor] = []
    for mask in masks:
        if bool(mask.any()) and not bool(mask.all()) and not any(torch.equal(mask, x) for x in out):
            out.append(mask)
    return out


def _by_pixel(images: Images, mask: Tensor, significant: Tensor, faults: Faults) -> Tensor:
    """Return where, of what is significant, generated images are closer to real ones with faults than without.

    Pixel by pixel, by the means of their characteristic functions, in both views.
    """
    fake, real = images.halves[0]
    everywhere = torch.ones_like(mask)
    faulty = put_faults(real, faults, everywhere.to(real.device), images.range, images.seed)
    gain = torch.zeros(mask.shape, dtype=real.dtype, device=real.device)
    whitening = Whitening.of(real)
    for view in (torch.Tensor.clone, whitening):
        values = [view(x) for x in (fake, real, faulty)]
        mean, deviation = values[1].mean(0), values[1].std(0)
        scale = 1 / (deviation + FLOOR * deviation.max()).clamp_min(torch.finfo(mean.dtype).tiny)
        of_fake, of_real, of_faulty = (_characteristic((x - mean) * scale) for x in values)
        gain += ((of_fake - of_real).square() - (of_fake - of_faulty).square()).sum((0, 1))
    found = (F.avg_pool2d(gain[None], 3, 1, 1)[0] > 0).cpu() & significant
    return largest_piece(found) if found.sum() >= KEPT * mask.sum() else mask


def _characteristic(x: Tensor) -> Tensor:
    """Return the mean of cosine and sine over images [N, C, H, W]: [2, C, H, W]."""
    return torch.stack([x.cos().mean(0), x.sin().mean(0)])
