# SPDX-License-Identifier: Apache-2.0
"""Place of a fault in an area of the map or around it, where real images with it are closest to generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Statistics, Values, pixel_views
from genmonitor.functional.diagnosis.fit import CHANCE, Faults, PutFault, Side, put_faults, ranked, usable
from genmonitor.functional.diagnosis.images import Images, side_to_fit
from genmonitor.functional.diagnosis.kinds import FaultModel, Kind, Models
from genmonitor.functional.diagnosis.kinds.variety import Misfit
from genmonitor.functional.discrepancy_map import KEPT, grown, largest_piece, within
from genmonitor.functional.permutation import LEVEL
from genmonitor.linalg.whitening import FLOOR, REACH, Whitening, slices_of

SEARCHED = 112
"""Number of images a side for the search of the place."""


def located(images: Images, mask: Tensor, p_map: Tensor, models: Models) -> tuple[Tensor, list[FaultModel]]:
    """Return the place of the fault that explains most within an area of the map or around it.

    The place is where real images with the fault are closest to generated ones, compared with their surroundings.
    Candidates are the pixels for which this holds one by one, and the area of the map. Their sides are moved as long as
    that brings images closer. The fault may also be around the area, since constant pixels next to a fault stand out
    more than the fault. A part of another image shows only at its edge.

    Args:
        images: Images of both sides.
        mask: Mask of the area, bool [H, W], which may be a pixel or two larger than the fault, or only its edge.
        p_map: P-values of the map [H, W].
        models: Fault models to try.

    Returns:
        The area, and the models worth trying there.
    """
    fake, real = images.halves[0]
    significant = (p_map <= LEVEL) | grown(mask, 1)
    everywhere = [x for x in models if not getattr(x, "of_parts", False)]
    found: list[tuple[Faults, list[Tensor]]] = []
    likely = list(models)
    for area in unlike([within(mask)[-1], grown(mask, REACH) & significant]):
        views: list[Values] = [*pixel_views(real, area), Statistics.of(real, area, around=False)]
        side = side_to_fit(images, area, views).first(SEARCHED)
        singles = ranked(side, usable(everywhere, side, fake))
        share = 1 - singles[0][0] / max(side.left(()), CHANCE) if singles else 0.0
        if share >= 0.2:  # a fault that explains less does not define the place
            found.append((singles[0][1], [mask, *_by_pixel(images, mask, significant, singles[0][1])]))
        if share >= 0.6:  # enough to try no other area
            # the first eight are tried again once the place is refined
            unlikely = {faults[0].model.name for _, faults in singles[8:]}
            unlikely -= {faults[0].model.name for _, faults in singles[:8]}
            # if the area is a part of the fault's edge, other kinds come closer than those that move the mean
            likely = [x for x in models if x.name not in unlikely or getattr(x, "moves_mean", False)]
            break
    moved = (PutFault(_ShiftOfMeans(fake, real, mask), 1.0),)
    found.append((moved, [mask, *_by_pixel(images, mask, significant, moved)]))
    boxes = [x for area in (mask, grown(mask, 1) & significant) for x in within(box(area))]
    # the place of a misfit is found as if 80 % of the images had it
    found.append(((PutFault(Misfit(), 0.8),), unlike([mask, *boxes])))
    region = grown(significant, REACH)
    around = side_to_fit(images, region, pixel_views(real, region)).first(SEARCHED)
    left, area = best_placed(around, found)
    return area if left < around.left(()) else mask, likely


class _ShiftOfMeans(Kind):
    """A shift of each channel by its shift at most pixels of a mask [H, W], not all of which need be wrong.

    If real images hardly vary, only the exact place and shift bring them closer.
    """

    name = "shift of means"

    def __init__(self, fake: Tensor, real: Tensor, mask: Tensor) -> None:
        self.shift = (fake[:, :, mask].mean(0) - real[:, :, mask].mean(0)).median(1).values.view(-1, 1, 1)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return images + strength * self.shift


def best_placed(side: Side, candidates: Sequence[tuple[Faults, Sequence[Tensor]]]) -> tuple[float, Tensor]:
    """Return the area in which one of the faults brings real images closest, and the remaining distance.

    Rectangles and borders are tried too, since faults have these shapes more often than those found pixel by pixel.
    Then the sides of the two best areas are moved as long as that brings images closer.

    Args:
        side: Half of the images to fit on.
        candidates: Faults with areas to begin with.
    """
    placed = []
    for faults, areas in candidates:
        at = _Place(side, faults)
        placed.append((at.best([*areas, *unlike([x for area in areas for x in _plain(area)])]), at))
    return min((at.moved(*found) for found, at in sorted(placed, key=lambda x: x[0][0])[:2]), key=lambda x: x[0])


class _Place:
    """Faults that are applied to whole images once and then put into different areas."""

    def __init__(self, side: Side, faults: Faults) -> None:
        self.side, self.known = side, dict[bytes, float]()
        self.faulty = replace(side, area=torch.ones_like(side.area)).put(faults)

    def best(self, areas: Sequence[Tensor]) -> tuple[float, Tensor]:
        keys, real = [area.numpy().tobytes() for area in areas], self.side.real
        new = {key: area for key, area in zip(keys, areas, strict=True) if key not in self.known}
        put = (torch.where(area.to(real.device), self.faulty, real) for area in new.values())
        self.known |= zip(new, self.side.left_by(put), strict=True)
        return min(zip(map(self.known.__getitem__, keys), areas, strict=True), key=lambda x: x[0])

    def moved(self, left: float, area: Tensor) -> tuple[float, Tensor]:
        # sides are moved by a pixel at most 8 times
        for _ in range(8):
            after, moved = self.best([area, *unlike(_moved(area))])
            if after >= left:
                break
            left, area = after, moved
        return left, area


def _moved(area: Tensor) -> list[Tensor]:
    """Return the areas with one side moved out or in by a pixel."""
    padded = F.pad(area[None].float(), (1, 1, 1, 1), "replicate")[0].bool()
    height, width = area.shape
    beside = [padded[y : y + height, x : x + width] for y, x in ((0, 1), (2, 1), (1, 0), (1, 2))]
    return [area | x for x in beside] + [area & x for x in beside]


def _plain(area: Tensor) -> list[Tensor]:
    """Return the bounding rectangle of an area or, if it reaches all sides of the image, borders of some widths."""
    rectangle = box(area)
    if not bool(rectangle.all()):
        return [rectangle]
    borders = []
    for width in (1, 2, 3, 4):
        borders.append(rectangle.clone())
        borders[-1][width:-width, width:-width] = False
    return borders


def box(mask: Tensor) -> Tensor:
    """Return the bounding rectangle of a mask [H, W]."""
    out = torch.zeros_like(mask)
    out[slices_of(mask)] = True
    return out


def unlike(masks: Sequence[Tensor]) -> list[Tensor]:
    """Return masks [H, W] without repetitions, empty masks and the whole image."""
    out: list[Tensor] = []
    for mask in masks:
        if bool(mask.any()) and not bool(mask.all()) and not any(torch.equal(mask, x) for x in out):
            out.append(mask)
    return out


def _by_pixel(images: Images, mask: Tensor, significant: Tensor, faults: Faults) -> list[Tensor]:
    """Return the significant pixels at which generated images are closer to real ones with faults than without.

    Each pixel is compared by the means of its characteristic functions, in both views.
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
    gain = gain.cpu()
    found = (F.avg_pool2d(gain[None], 3, 1, 1)[0] > 0) & significant
    here = torch.where(significant, gain, gain.clamp_max(0))  # beyond may be another area
    return [best_rectangle(here), *([largest_piece(found)] if found.sum() >= KEPT * mask.sum() else [])]


def best_rectangle(gain: Tensor) -> Tensor:
    """Return the rectangle whose sum of a matrix [H, W] is largest, as a mask."""
    sums = F.pad(gain.double(), (1, 0, 1, 0)).cumsum(0).cumsum(1)
    best, found = -torch.inf, (slice(0), slice(0))
    for top in range(len(gain)):  # all rectangles at once would not fit in memory
        strips = sums[top + 1 :] - sums[top]
        before, left = strips[:, :-1].cummin(1)
        of_strips = strips[:, 1:] - before
        if float(of_strips.max()) > best:
            row, right = divmod(int(of_strips.argmax()), gain.shape[1])
            best = float(of_strips.max())
            found = slice(top, top + row + 1), slice(int(left[row, right]), right + 1)
    out = torch.zeros(gain.shape, dtype=torch.bool)
    out[found] = True
    return out


def _characteristic(x: Tensor) -> Tensor:
    """Return the mean of cosine and sine over images [N, C, H, W]: [2, C, H, W]."""
    return torch.stack([x.cos().mean(0), x.sin().mean(0)])
