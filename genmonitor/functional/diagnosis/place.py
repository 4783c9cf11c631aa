# SPDX-License-Identifier: Apache-2.0
"""Where in an area of the map, or around it, a fault is: where real images with it are closest to generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.areas import KEPT, grown, largest_piece, within
from genmonitor.functional.diagnosis.distance import Distance
from genmonitor.functional.diagnosis.fault_models import MISFIT, FaultModel, Measured
from genmonitor.functional.diagnosis.fit import CHANCE, Faults, PutFault, Side, fit, put_faults, usable
from genmonitor.functional.diagnosis.images import Images, side_to_fit
from genmonitor.functional.two_sample_test import LEVEL
from genmonitor.linalg.whitening import FLOOR, REACH, Whitening

SEARCHED = 112
"""Images a side that say where the fault is."""
LEAST_SHARE, ENOUGH = 0.2, 0.6
"""Share that a fault must explain to say where it is, and from which no other area is looked at."""
MOVES = 8
"""Times that a side of an area may move by a pixel."""
BORDERS = (1, 2, 3, 4)
"""Pixels that borders are wide."""


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
    found: list[tuple[Faults, list[Tensor]]] = []
    for area in unlike([within(mask)[-1], grown(mask, REACH) & significant]):
        side = side_to_fit(images, area, around=False).first(SEARCHED)
        faults = next(fit(side, usable(models, side, fake, [], skip_failing)), ())
        share = 1 - side.left(faults) / max(side.left(()), CHANCE)
        if share >= LEAST_SHARE:
            found.append((faults, [mask, *_by_pixel(images, mask, significant, faults)]))
        if share >= ENOUGH:
            break
    found.append(((PutFault(MISFIT, 0.8),), unlike([mask, *within(box(mask)), *within(box(grown(mask, 1) & significant))])))
    region = grown(significant, REACH)
    around = side_to_fit(images, region)
    around = replace(around, distance=Distance(around.distance.views[:2]))
    around = Side.of(around.distance, images.halves[0][1], fake, region, images.range, images.seed).first(SEARCHED)
    moved = [moved_to_fit(around, areas, faults) for faults, areas in found]
    left, area = min(moved, key=lambda x: x[0])
    return area if left < around.left(()) else mask


def moved_to_fit(side: Side, areas: Sequence[Tensor], faults: Faults) -> tuple[float, Tensor]:
    """Return the area in which faults bring real images closest, with its sides moved while that brings them closer.

    Rectangles and borders are tried too: faults are such more often than what is left of them pixel by pixel.
    """
    everywhere = side.put_into(torch.ones_like(areas[0])).put(faults)
    known: dict[bytes, float] = {}

    def left(area: Tensor) -> float:
        key = area.numpy().tobytes()
        if key not in known:
            known[key] = side.left_by(torch.where(area.to(side.real.device), everywhere, side.real))
        return known[key]

    def best(some: Sequence[Tensor]) -> tuple[float, Tensor]:
        return min(((left(area), area) for area in some), key=lambda x: x[0])

    least, area = best([*areas, *unlike([x for area in areas for x in _plain(area)])])
    for _ in range(MOVES):
        after, moved = best([area, *unlike(_moved(area))])
        if after >= least:
            break
        least, area = after, moved
    return least, area


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


def _by_pixel(images: Images, mask: Tensor, significant: Tensor, faults: Faults) -> list[Tensor]:
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
    return [best_rectangle(gain.cpu()), *([largest_piece(found)] if found.sum() >= KEPT * mask.sum() else [])]


def best_rectangle(gain: Tensor) -> Tensor:
    """Return the rectangle whose sum of a matrix [H, W] is largest, as a mask."""
    sums = F.pad(gain.double(), (1, 0, 1, 0)).cumsum(0).cumsum(1)
    height, width = gain.shape
    rows, columns = torch.combinations(torch.arange(height + 1), 2), torch.combinations(torch.arange(width + 1), 2)
    strips = sums[rows[:, 1]] - sums[rows[:, 0]]
    inside = strips[:, columns[:, 1]] - strips[:, columns[:, 0]]
    row, column = divmod(int(inside.argmax()), len(columns))
    out = torch.zeros(height, width, dtype=torch.bool)
    out[rows[row, 0] : rows[row, 1], columns[column, 0] : columns[column, 1]] = True
    return out


def _characteristic(x: Tensor) -> Tensor:
    """Return the mean of cosine and sine over images [N, C, H, W]: [2, C, H, W]."""
    return torch.stack([x.cos().mean(0), x.sin().mean(0)])
