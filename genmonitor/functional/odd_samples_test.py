# SPDX-License-Identifier: Apache-2.0
"""Tests for generated samples unlike every real one, and for real samples unlike every generated one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_bool
from genmonitor.functional.data_copying_test import count_test, lower_than_held_out
from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.permutation import MIN_SAMPLES, random_splits
from genmonitor.linalg.chunking import in_cache
from genmonitor.linalg.distances import squared_distances
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.whitening import Whitening

TILES = 4
"""Number of tiles along a side of the image; windows are two tiles high and wide."""


class OddSamples(NamedTuple):
    """Result of `odd_samples_test`.

    Attributes:
        p_value: P-value (float64 scalar) that there are no more odd samples than among held-out ones.
        share: Share (float64 scalar in [0, 1]) of the samples that are odd, minus that of held-out ones.
        scores: Score of each sample, float64 [N]: the lower, the odder.
        odd: Indices of samples odder than 99 % of the held-out ones, the oddest first, int64 [K]. They include about 1
            % of the samples that are not odd.
        lowest: Score of the oddest held-out sample, float64 scalar.
        window: Window in which each sample is oddest, int64 [N], an index into `windows`.
        windows: Boolean masks [W, h, w] of the windows, the whole image last; [1, 1, 1] for features.
    """

    p_value: Tensor
    share: Tensor
    scores: Tensor
    odd: Tensor
    lowest: Tensor
    window: Tensor
    windows: Tensor


def odd_samples_test(fake: Tensor, held_out: Tensor, real: Tensor, *, aligned: bool = True) -> OddSamples:
    """Test for generated samples that are unlike every real one, and find them and the place.

    A real sample's ball reaches to its third neighbor. The realism of a sample is the radius of a ball divided by the
    sample's distance from its center, the largest over real samples (Kynkäänniemi et al.). The paper leaves out the
    larger half of the balls; with all of them odd samples stand out more. For images, realism is measured in pixels and
    in whitened pixels, in the whole image and in nine overlapping windows of half its side.

    The median and the 5 % quantile over generated and held-out samples bring all windows to one scale, and a sample's
    score is its lowest realism. A sample is odd if it scores lower than 99 % of the held-out samples. The p-value is
    the exact probability of that many odd samples if generated and held-out samples are exchangeable, for any number of
    samples.

    Args:
        fake: Images [N, C, H, W] or features [N, D], N at least 8.
        held_out: Real samples [M, ...] other than `real`, M at least 8.
        real: Real samples [K, ...] to compare with, K at least 8.
        aligned: True to compare windows at the same place too, False to compare whole images alone.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, or a side has fewer than 8 samples.

    References:
        Kynkäänniemi et al., "Improved Precision and Recall Metric for Assessing Generative Models", arXiv 1904.06991.

    Example:
        >>> draw = torch.rand(500, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> fake, held_out, real = draw[:100].clone(), draw[100:300], draw[300:]
        >>> fake[7, :, :4, :4] = 1.0
        >>> found = odd_samples_test(fake, held_out, real)
        >>> found.odd[0], found.windows[found.window[7]].nonzero().amax(0)  # in the upper left
        (tensor(7), tensor([3, 3]))
    """
    check_bool("aligned", aligned)
    real, held_out, fake = check_sides({"real": real, "held_out": held_out, "fake": fake}, None, MIN_SAMPLES)
    size = (real.shape[2], real.shape[3]) if real.ndim == 4 else (1, 1)
    windows = _windows(*size) if aligned and min(size) >= TILES else torch.ones(1, *size, dtype=torch.bool)
    both = torch.cat([fake.to(real.device), held_out.to(real.device)])
    with full_precision():
        found = torch.stack([_realism(x, y, windows) for x, y in _views(both, real)])
    # quantile of the realism in a window that is one unit below its median
    middle, low = found.quantile(torch.tensor([0.5, 0.05]).to(found), dim=2)[..., None]
    below = (found - middle).cpu()
    # a unit is at least a twentieth of a distance, so that traces are not odd where real samples hardly vary
    scores, view = (below / (middle - low).cpu().clamp_min(0.05)).amin(1).min(0)
    n = len(fake)
    odd = lower_than_held_out(scores[:n], scores[n:])
    parts = count_test(len(odd), n, len(held_out))
    where = _where(below[view, :, torch.arange(len(both))][:n])
    return OddSamples(*parts, scores[:n], odd, scores[n:].amin(), where, windows)


class Uncovered(NamedTuple):
    """Result of `uncovered_test`.

    Attributes:
        p_value: P-value (float64 scalar) that generated samples cover no fewer real ones than held-out ones do.
        share: Share (float64 scalar in [0, 1]) of the real samples that held-out ones cover and generated ones do not.
        uncovered: Indices of real samples unlike every generated one, the farthest first, int64 [K].
    """

    p_value: Tensor
    share: Tensor
    uncovered: Tensor


def uncovered_test(fake: Tensor, held_out: Tensor, real: Tensor, *, seed: int = 0) -> Uncovered:
    """Test if generated samples leave more real samples uncovered than held-out real ones do.

    A real sample is covered if a generated one lies in the ball around it that reaches to its fifth real neighbor
    (coverage, Naeem et al.). For images this must hold in both pixels and whitened pixels. Balls are around real
    samples, so that noise, whose own balls would hold everything, covers nothing. Equal numbers of generated and
    held-out samples are used, and the p-value comes from 999 random exchanges between them.

    Args:
        fake: Images [N, C, H, W] or features [N, D], N at least 8.
        held_out: Real samples [M, ...] other than `real`, M at least 8.
        real: Real samples [K, ...] to be covered, K at least 8.
        seed: Seed of the exchanges.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, or a side has fewer than 8 samples.

    References:
        Naeem et al., "Reliable Fidelity and Diversity Metrics for Generative Models", ICML 2020, arXiv 2002.09797.

    Example:
        >>> draw = torch.rand(400, 3, generator=torch.Generator().manual_seed(0))
        >>> found = uncovered_test(0.5 * draw[:100], draw[100:200], draw[200:])  # an eighth of the cube
        >>> found.share > 0.5, found.p_value <= 0.001
        (tensor(True), tensor(True))
    """
    real, held_out, fake = check_sides({"real": real, "held_out": held_out, "fake": fake}, None, MIN_SAMPLES)
    n = min(len(fake), len(held_out))
    both = torch.cat([x.to(real.device)[torch.arange(n) * len(x) // n] for x in (fake, held_out)])
    # generated and held-out samples are exchanged at random 999 times
    splits = random_splits(2 * n, n, 999, seed)
    sides = torch.cat([splits, ~splits[:1]]).to(both)
    covered = torch.ones(len(real), len(sides), dtype=torch.bool, device=real.device)
    farthest = real.new_zeros(len(real))
    for x, y in _views(both, real):
        among = squared_distances(y.flatten(1), y.flatten(1)).fill_diagonal_(torch.inf)
        # a sample covers a real one if it is no farther than the fifth nearest real one, as in Naeem et al.
        radius = among.topk(min(5, len(y) - 1), largest=False).values[:, -1]
        distances = squared_distances(y.flatten(1), x.flatten(1))
        inside = (distances <= radius[:, None]).to(both)
        covered &= inside @ sides.T > 0
        nearest = distances[:, :n].amin(1) / radius.clamp_min(torch.finfo(x.dtype).tiny)
        farthest = torch.maximum(farthest, nearest)
    shares = (~covered).double().mean(0).cpu()
    beyond = (shares[0] - shares[-1]).clamp_min(0) / (1 - shares[-1]).clamp_min(1e-12)
    order = farthest.argsort(descending=True).cpu()
    p_value = (shares[:-1] >= shares[0]).double().mean()
    return Uncovered(p_value, beyond.clamp_max(1), order[~covered[:, 0].cpu()[order]])


def _where(below: Tensor) -> Tensor:
    """Return the window in which a sample is oddest [N], from its deviation below the median in each [N, W]."""
    last = below.shape[1] - 1
    lowest, window = below.min(1)
    # a window is named if its realism is below that of the whole image by a factor of exp(0.2) or more
    return window.where(lowest < below[:, last] - 0.2, last)


def _windows(height: int, width: int) -> Tensor:
    """Return nine overlapping windows of half the side of an image, then the whole, bool [W, H, W]."""
    rows, columns = ([-(-i * size // TILES) for i in range(TILES + 1)] for size in (height, width))
    windows = torch.zeros((TILES - 1) ** 2 + 1, height, width, dtype=torch.bool)
    for window, (i, j) in zip(windows, product(range(TILES - 1), repeat=2), strict=False):
        window[rows[i] : rows[i + 2], columns[j] : columns[j + 2]] = True
    windows[-1] = True
    return windows


def _views(samples: Tensor, real: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield samples and real ones as [N, C, H, W], as they are and, for images, whitened."""
    yield (samples, real) if real.ndim == 4 else (samples[:, :, None, None], real[:, :, None, None])
    if real.ndim == 4 and min(real.shape[2:]) >= TILES:
        whitening = Whitening.of(real)
        yield whitening(samples), whitening(real)


def _realism(x: Tensor, real: Tensor, windows: Tensor) -> Tensor:
    """Return the logarithm of the realism of x [N, C, H, W] in each window, [W, N]."""
    # differences below a step of 8 bits are not odd; this exceeds the float32 rounding of squares and products
    step = (float(real.max() - real.min()) / 255) ** 2 / 6 * real.shape[1]
    mean, tiny = real.mean(0), torch.finfo(x.dtype).tiny
    x, real = x - mean, real - mean
    least = (step * windows.sum((1, 2)).to(x)).clamp_min(tiny)[:, None]
    among = _distances(real, real, windows)
    among.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    # a ball around a real sample reaches to its third neighbor, as in Kynkäänniemi et al.
    radii = (among.topk(min(3, len(real) - 1), largest=False).values[..., -1] + least)[:, None]
    blocks = in_cache(len(x), x.element_size() * len(windows) * len(real))
    out = [(radii / (_distances(x[rows], real, windows) + least[..., None])).amax(2) for rows in blocks]
    return torch.cat(out, 1).log() / 2


def _distances(x: Tensor, y: Tensor, windows: Tensor) -> Tensor:
    """Return the squared distances of images in each window [W, N, M], the sums of those in the parts of windows."""
    parts, part_of = windows.flatten(1).unique(dim=1, return_inverse=True)
    of_parts = []
    for part in range(parts.shape[1]):
        here = (part_of == part).to(x.device)
        some, others = (images.flatten(2)[:, :, here].flatten(1) for images in (x, y))
        of_parts.append(squared_distances(some, others).flatten())
    return (parts.to(x) @ torch.stack(of_parts)).view(len(windows), len(x), len(y))
