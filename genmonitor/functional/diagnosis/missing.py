# SPDX-License-Identifier: Apache-2.0
"""Kinds of real images of which there are next to no samples, and what these real images have in common."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.diagnosis.images import SAMPLES, Images
from genmonitor.functional.diagnosis.readings import Said, differing, read, usable_readings
from genmonitor.functional.permutation import LEVEL, RARE
from genmonitor.linalg.clustering import cut_tree, merge_tree
from genmonitor.linalg.distances import squared_distances

SIDE, KINDS = 4, 12
"""Side of the thumbnails by which images are grouped, and number of groups."""


@dataclass(frozen=True, eq=False)
class Missing:
    """Kinds of real images of which there are next to no samples.

    Attributes:
        share: Part of the real images that are of these kinds.
        p: P-value that samples are of them as often as real images are, at one level for all kinds.
        readings: Readings in which these real images differ most from the other real ones.
        examples: Indices of some of these real images.
    """

    share: float
    p: float
    readings: tuple[Said, ...]
    examples: tuple[int, ...]


def missing_kinds(images: Images) -> Missing | None:
    """Find kinds of real images of which there are next to no samples; None if there are none.

    Thumbnails of real images are grouped on one half of them. On the other half, groups are counted, so that the test
    is exact: a thumbnail belongs to the group with the nearest mean.
    """
    from scipy.stats import hypergeom

    fitted, judged = (real for _, real in images.halves)
    small = _thumbnails(fitted)
    if len(small) < 8 * KINDS:
        return None
    group = cut_tree(merge_tree(small.cpu(), "ward"), KINDS).to(small.device)
    centers = torch.stack([small[group == number].mean(0) for number in range(1, KINDS + 1)])
    of_fake, of_real = (squared_distances(_thumbnails(x), centers).argmin(1).cpu() for x in (images.fake, judged))
    n, m = len(of_fake), len(of_real)
    fakes, reals = (torch.bincount(x, minlength=KINDS) for x in (of_fake, of_real))
    p = torch.from_numpy(hypergeom.cdf(fakes.numpy(), n + m, (fakes + reals).numpy(), n)) * KINDS
    # a kind has 5 % of the real images or more, and is missing if samples have at most a tenth of its share
    gone = (reals >= 0.05 * m) & (fakes / n <= 0.1 * reals / m) & (p <= RARE)
    if not gone.any():
        return None
    inside = gone[of_real]
    readings = usable_readings(images.readings, judged)
    values = read(readings, judged)
    common = differing(readings, values[inside], values[~inside], LEVEL / 5, images.seed) if not inside.all() else []
    at = images.chosen_real[len(fitted) :][inside][:SAMPLES]
    return Missing(float(inside.double().mean()), float(p[gone].min()), tuple(common), tuple(at.tolist()))


def _thumbnails(images: Tensor) -> Tensor:
    """Return the colors of 4×4 parts of images [N, C, H, W] as vectors."""
    return F.adaptive_avg_pool2d(images, SIDE).flatten(1)
