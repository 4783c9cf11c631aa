# SPDX-License-Identifier: Apache-2.0
"""Discrepancy map: shows where generated images differ from real ones, and its connected areas, the largest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor._place_names import MOST, is_ring
from genmonitor._validation import check_at_least, check_images, check_min_samples, check_tensor
from genmonitor.functional.permutation import LEVEL, MIN_SAMPLES, NUM_PERMUTATIONS, TIE, Blocks, check_permutations
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import in_cache
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.whitening import FLOOR, Whitening

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIDES = (4, 8, 16)
FREQUENCIES = (0.5, 1.0)
"""Frequencies of the characteristic functions at each pixel, in units of its inverse deviation: one and its double."""
UNRESOLVED = 1e-6
"""Part of the largest mean below which a spread is rounding, since all splits of a single sample agree."""
KEPT = 0.25
"""Smallest part of an area that is left without its edge."""
_NEIGHBORS = np.ones((3, 3), dtype=bool)


def discrepancy_map(
    fake: Tensor, real: Tensor, *, sides: Sequence[int] = SIDES, num_permutations: int = NUM_PERMUTATIONS, seed: int = 0
) -> dict[str, Tensor]:
    """Size of the difference between generated and real images at each pixel, with p-values at one level for all.

    At each pixel the empirical characteristic functions of both sides are compared at two frequencies, for the images
    (structure) and for the whitened images (texture, see `linalg.whitening`). Their squared difference, in units of its
    variance, is an MMD² with an additive kernel. Its sum over every window of some sides is standardized over random
    splits of the pooled samples. The largest over all windows, sides and views gives one level for the whole map
    (Westfall and Young). Real images in place of generated ones have some pixel with p <= 0.05 in at most 5 % of the
    evaluations. That holds at any seed, if both sides are exchangeable under the hypothesis, as in `two_sample_test`.

    The map shows the size of the difference: the number of standard deviations by which a pixel's discrepancy exceeds
    its mean under no difference. Mean and standard deviation come from the splits without the observed one, so that the
    map does not saturate. The size is the geometric mean over both views and windows of 1 (twice) and 3 pixels. The
    peak is therefore where pixels themselves differ; edges around them, visible only as texture, count less.

    Args:
        fake: Images [N, C, H, W]; N at least 8.
        real: Images [M, C, H, W]; M at least 8, and need not be N.
        sides: Sides of the windows, in pixels. Larger images are divided into at most 48 cells a side, whose
            characteristic functions are means over their pixels; sides then count cells.
        num_permutations: Number B of random splits, at least 19. The smallest p-value is 1 / (B + 1).
        seed: Seed of the splits, which also depend on the samples, as in `two_sample_test`.

    Returns:
        A dictionary of float64 tensors on the samples' device. `map` [H, W] is at least 0, where chance gives about 1.
        `p_map` [H, W] in [1 / (B + 1), 1] is the smallest p-value of the windows that contain each pixel, and `p` the
        smallest of all. Images that all agree have a map of 0 and p = 1.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, images are fewer than 8, or an argument is out of range.

    References:
        Westfall and Young, "Resampling-Based Multiple Testing", 1993.
        Chwialkowski et al., "Fast Two-Sample Testing with Analytic Representations of Probability Measures", NeurIPS
        2015, arXiv 1506.04725.

    Example:
        >>> images = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> fake, real = images.split(32)
        >>> fake[..., :3, 5:] += 0.5  # upper right
        >>> found = discrepancy_map(fake, real)
        >>> float(found["p"]), int(found["map"].argmax()) % 8 >= 5
        (0.001, True)
    """
    check_map_arguments(sides, num_permutations, seed)
    real = check_images("real", real)
    fake = check_images("fake", fake, tuple(real.shape[1:]))
    check_min_samples("fake", fake, MIN_SAMPLES)
    check_min_samples("real", real, MIN_SAMPLES)
    dtype = torch.promote_types(fake.dtype, real.dtype)
    fake, real = fake.to(dtype), real.to(dtype)
    blocks = Blocks.of(fake, real, num_permutations, seed)
    images = blocks.take(fake, real)
    if images.numel() * 8 <= chunking.MEMORY_BUDGET:
        images = images.double()  # whitened to the last digit, the same for every dtype that holds them
    images -= images[0].clone()  # so that constant values are exactly zero
    with full_precision():
        # pixels that hardly vary have no texture of their own, only that of their surroundings
        deviation = images.std(0).amax(0)
        texture = Whitening.of(images)(images).mul_(deviation > FLOOR * deviation.max())
        views = [cell_discrepancies(view, blocks) for view in (images, texture)]
    found = {"map": size_of_difference(views), "p_map": smallest_p_values(views, sides)}
    height, width = real.shape[2:]
    cell = _cell(height, width)
    out = {name: x.repeat_interleave(cell, 0).repeat_interleave(cell, 1)[:height, :width] for name, x in found.items()}
    return out | {"p": out["p_map"].min()}


def check_map_arguments(sides: Sequence[int], num_permutations: int, seed: int) -> None:
    """Refuse arguments that are invalid for any images."""
    if isinstance(sides, str) or not isinstance(sides, Sequence) or not sides:
        raise ValueError(f"Expected `sides` as one or more whole numbers above 0, but got {sides!r}.")
    for side in sides:
        check_at_least("sides", side, 1)
    check_permutations(num_permutations, seed)


def cell_discrepancies(images: Tensor, blocks: Blocks) -> Tensor:
    """Return the discrepancy of the sides of each split in each cell of the image.

    Args:
        images: Images [N, C, H, W], block after block, as `blocks.take` returns them.
        blocks: Blocks with their splits.

    Returns:
        Sums [1 + S, rows, columns] over channels and characteristic functions of the squared difference of their means,
        in units of their variance, float64.
    """
    cell = _cell(*images.shape[2:])
    mean = torch.zeros(images.shape[1:], dtype=torch.float64, device=images.device)
    for some in _parts(images, 1):
        mean += images[some].sum(0, dtype=torch.float64) / len(images)
    squares = torch.zeros_like(mean)
    for some in _parts(images, 1):
        squares += (images[some].double() - mean).square().sum(0)
    deviation = (squares / len(images)).sqrt()
    scale = 1 / (deviation + FLOOR * deviation.max())
    scale = scale.nan_to_num(posinf=0.0)  # images that are all the same
    rows = [slice(start, start + cell) for start in range(0, images.shape[2], cell)]
    found = [_row_of_cells(images[:, :, row], mean[:, row], scale[:, row], blocks, cell) for row in rows]
    return torch.stack(found, 1)


def _row_of_cells(images: Tensor, mean: Tensor, scale: Tensor, blocks: Blocks, cell: int) -> Tensor:
    """Return the discrepancies [1 + S, columns] of a row of cells of all images [N, C, h, W]."""
    means, square = [], mean.new_zeros(())
    for some in _parts(images, blocks.size):
        waves = _waves((images[some].double() - mean) * scale, cell)
        means.append(blocks.means(waves))
        square = square + waves.square().sum(0) / len(images)
    of_block = torch.cat(means)
    mean = of_block.mean(0)
    variance = square - mean.square() + FLOOR * _variances(mean) / cell**2
    units = (of_block / variance.sqrt()).flatten(1)
    differences = blocks.weights(units.device).T @ units
    return differences.square_().unflatten(1, mean.shape).sum((1, 2))


def size_of_difference(views: Sequence[Tensor]) -> Tensor:
    """Return the excess of the observed split over the others in each cell, in standard deviations of these.

    Args:
        views: Discrepancies [S, rows, columns] of each view, the observed split first.

    Returns:
        Sizes [rows, columns], at least 0: the geometric mean of one plus the size, over views and windows.
    """
    sizes = []
    # sides of the windows of the drawn map, in cells: small, so that the peak is inside a fault; one cell counts twice
    for side, view in product((1, 1, 3), views):
        sums = window_sums(view, side)
        mean = sums[1:].mean(0)
        # where few samples leave a constant, a discrepancy hardly varies: count at least a tenth of its mean
        spread = torch.maximum(sums[1:].std(0), 0.1 * mean).clamp_min(UNRESOLVED * float(mean.max()))
        sizes.append(_mean_of_windows((sums[0] - mean) / spread.where(spread > 0, math.inf), side, view.shape[1:]))
    return torch.stack(sizes).clamp_min(0).log1p().mean(0).expm1()


def smallest_p_values(views: Sequence[Tensor], sides: Sequence[int]) -> Tensor:
    """Return the smallest p-value of the windows that contain each cell, at one level for all views and windows.

    Args:
        views: Discrepancies [S, rows, columns] of each view, the observed split first.
        sides: Sides of the windows, in cells.
    """
    shape = views[0].shape[1:]
    windows = [(side, standardized(window_sums(view, side))) for side, view in product(sides, views)]
    largest = torch.stack([statistics.flatten(1).amax(1) for _, statistics in windows]).amax(0).sort().values
    out = largest.new_ones(shape)
    for side, statistics in windows:
        below = torch.searchsorted(largest, statistics[0].contiguous() - TIE)
        p_values = (len(largest) - below).double() / len(largest)
        rows, columns = _clipped(side, shape)
        padded = F.pad(p_values, (columns - 1, columns - 1, rows - 1, rows - 1), value=1.0)
        out = torch.minimum(out, -F.max_pool2d(-padded[None], (rows, columns), stride=1)[0])
    return out


def window_sums(x: Tensor, side: int) -> Tensor:
    """Sum over every square window in the last two dimensions, clipped to them if they are smaller.

    Example:
        >>> window_sums(torch.tensor([[[1, 2, 3]]]), 2)
        tensor([[[3, 5]]])
    """
    for dim, length in zip((-2, -1), _clipped(side, x.shape[-2:]), strict=True):
        sums = F.pad(x.transpose(dim, -1).cumsum(-1), (1, 0))
        x = (sums[..., length:] - sums[..., :-length]).transpose(dim, -1)
    return x


def standardized(sums: Tensor) -> Tensor:
    """Subtract the mean over the splits and divide by their standard deviation; -inf where all splits are equal."""
    mean, spread = sums.mean(0), sums.std(0, correction=0)
    return ((sums - mean) / spread).masked_fill(spread <= UNRESOLVED * mean.max(), -math.inf)


def _parts(images: Tensor, size: int) -> Iterator[slice]:
    """Cut images into parts that are whole blocks."""
    blocks = in_cache(len(images) // size, 8 * size * images[0].numel())
    return (slice(size * some.start, size * some.stop) for some in blocks)


def _waves(x: Tensor, cell: int) -> Tensor:
    """Return cosine and sine of standardized pixels at each frequency, averaged over cells: [N, waves, C, columns]."""
    cosine, sine = torch.cos(FREQUENCIES[0] * x), torch.sin(FREQUENCIES[0] * x)
    # cosines minus 1, so that a constant pixel has waves of exactly 0
    waves = torch.stack([cosine - 1, sine, -2 * sine.square(), 2 * sine * cosine], 1)
    if cell == 1:
        return waves[..., 0, :]
    return F.avg_pool2d(waves.flatten(0, 1), (waves.shape[3], cell), ceil_mode=True).view(*waves.shape[:3], -1)


def _variances(like: Tensor) -> Tensor:
    """Return the variances of the waves of a standard normal variable [waves, 1, 1]."""
    out = [v / 2 for f in FREQUENCIES for v in ((1 - math.exp(-(f**2))) ** 2, 1 - math.exp(-2 * f**2))]
    return like.new_tensor(out)[:, None, None]


def _mean_of_windows(x: Tensor, side: int, shape: torch.Size) -> Tensor:
    """Return the mean of `x` over the windows that contain each cell."""
    rows, columns = _clipped(side, shape)
    padded = F.pad(torch.stack([x, torch.ones_like(x)]), (columns - 1, columns - 1, rows - 1, rows - 1))
    total, count = F.avg_pool2d(padded, (rows, columns), stride=1)
    return total / count


def _clipped(side: int, shape: Sequence[int]) -> tuple[int, int]:
    return min(side, shape[0]), min(side, shape[1])


def _cell(height: int, width: int) -> int:
    # larger images have 48 cells along a side at most
    return -(-max(height, width) // 48)


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
    # 0.5 is the logarithm of one plus the map without a difference
    standing_out = evidence >= (evidence.max() + min(0.5, evidence.max())) / 2
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
    # an area with less than 15 % of the first one's difference is its fringe, or chance
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
    for _ in range(2):  # pixels by which an area of the map may be too large
        smaller = grown(out[-1], -1)
        if float(smaller.sum()) < max(12, KEPT * float(mask.sum())):
            break
        out.append(smaller)
    return out


def grown(mask: Tensor, pixels: int) -> Tensor:
    """Return a mask [H, W] grown by a number of pixels, or shrunk if the number is negative."""
    if pixels < 0:
        return ~grown(~mask, -pixels)
    return F.max_pool2d(mask[None].float(), 2 * pixels + 1, 1, pixels)[0] > 0
