# SPDX-License-Identifier: Apache-2.0
"""Areas of a discrepancy map: connected pieces that differ, the largest difference first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor._places import MOST, is_ring
from genmonitor._validation import check_tensor
from genmonitor.functional.permutation import LEVEL

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHANCE = 0.5
"""Logarithm of one plus the map without a difference."""
EDGE, LEAST, KEPT = 2, 12, 0.25
"""Pixels by which an area of the map may be too large, and the fewest pixels and smallest part of it without them."""
_NEIGHBORS = np.ones((3, 3), dtype=bool)


def significant_areas(found: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the areas of the image in which generated images differ from real ones by more than chance.

    A window that touches a fault is significant, and so are pixels around the fault. An area therefore holds only the
    significant pixels whose logarithmic size lies in the upper half between chance and the peak. These are cut into
    connected pieces. Pieces around the border are one area. An area that holds most of the image becomes the whole
    image, as at the start of a training.

    Args:
        found: Result of `discrepancy_map`: `map` and `p_map`, both [H, W].

    Returns:
        Masks, bool [H, W] on the map's device, the largest sum of the map first; empty if nothing differs.

    Raises:
        TypeError: If `map` or `p_map` is not a tensor.
        ValueError: If they are not of one shape [H, W].

    Example:
        >>> sizes = torch.zeros(8, 8)
        >>> sizes[:3, 5:] = 20.0
        >>> (area,) = significant_areas({"map": sizes, "p_map": torch.full((8, 8), 0.005)})
        >>> torch.equal(area, sizes > 0)
        True
    """
    sizes, p_values = check_tensor("map", found["map"]), check_tensor("p_map", found["p_map"])
    if sizes.ndim != 2 or sizes.shape != p_values.shape:
        raise ValueError(
            f"Expected `map` and `p_map` of one shape [H, W], but got {list(sizes.shape)} and {list(p_values.shape)}. "
            "Pass what `discrepancy_map` returned."
        )
    evidence = (sizes.double().log1p() * (p_values <= LEVEL)).cpu().numpy()
    if not evidence.any():
        return []
    standing_out = evidence >= (evidence.max() + min(CHANCE, evidence.max())) / 2
    weight = sizes.double().cpu().numpy()
    return [torch.from_numpy(area).to(sizes.device) for area in _pieces(_closed(standing_out), weight)]


def _closed(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Fill gaps of a pixel or two."""
    from scipy.ndimage import binary_closing

    return np.asarray(binary_closing(np.pad(mask, 2, mode="edge"), _NEIGHBORS)[2:-2, 2:-2])


def _pieces(mask: NDArray[np.bool_], weight: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Cut a mask into its connected pieces, the heaviest first, without comparatively light ones."""
    from scipy.ndimage import label

    if mask.mean() >= MOST:
        return [np.ones_like(mask)]
    if is_ring(mask):
        return [mask]
    numbered, _ = label(mask, structure=_NEIGHBORS)
    weights = np.bincount(numbered.ravel(), weight.ravel())[1:]
    order = np.argsort(-weights, kind="stable")
    # smallest difference of another area relative to the first; smaller ones are its fringe, or chance
    return [numbered == index + 1 for index in order if weights[index] >= 0.15 * weights[order[0]]]


def largest_piece(mask: Tensor) -> Tensor:
    """Return the largest connected piece of a mask [H, W], with gaps and all but large holes filled.

    Example:
        >>> mask = torch.zeros(3, 9, dtype=torch.bool)
        >>> mask[:, 0], mask[:, 5:] = True, True
        >>> largest_piece(mask).sum()
        tensor(12)
    """
    from scipy.ndimage import binary_fill_holes

    piece = _pieces(_closed(mask.cpu().numpy()), np.ones(mask.shape))[0]
    filled = binary_fill_holes(piece)
    return torch.from_numpy(filled if filled.sum() <= 2 * piece.sum() else piece).to(mask.device)


def within(mask: Tensor) -> list[Tensor]:
    """Return an area and its successive erosions by one pixel, while enough of it is left.

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


def slices_of(mask: Tensor) -> tuple[slice, slice]:
    """Return the rows and columns of the smallest rectangle that holds a mask [H, W]."""
    rows, columns = (slice(int(x.min()), int(x.max()) + 1) for x in mask.nonzero(as_tuple=True))
    return rows, columns


def grown(mask: Tensor, pixels: int) -> Tensor:
    """Return a mask [H, W] grown by a number of pixels, or shrunk if the number is negative."""
    if pixels < 0:
        return ~grown(~mask, -pixels)
    return F.max_pool2d(mask[None].float(), 2 * pixels + 1, 1, pixels)[0] > 0
