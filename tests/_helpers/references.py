# SPDX-License-Identifier: Apache-2.0
"""Slow and obvious twins in NumPy, written from the formulas: one line per line of the paper, no attention to cost.

Samples are float64 arrays (n, d); images (n, c, h, w).
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn

Array = NDArray[np.float64]


def distances(x: Array, y: Array, kind: str = "gaussian") -> Array:
    """‖x - y‖² for the Gaussian kernel, ‖x - y‖₁ for the Laplacian."""
    difference = x[:, None] - y[None]
    return (difference**2 if kind == "gaussian" else abs(difference)).sum(-1)


def gram(x: Array, y: Array, gamma: float, kind: str = "gaussian") -> Array:
    return np.exp(-gamma * distances(x, y, kind))


def median_gamma(x: Array, kind: str = "gaussian") -> float:
    pairs = [distances(a[None], b[None], kind)[0, 0] for a, b in combinations(x, 2)]
    return float(1 / np.median(pairs))


def flat(images: Array) -> Array:
    return images.reshape(len(images), -1)


def sites(images: Array, patch: int = 1) -> list[Array]:
    """The values of each site (n, c · patch²), in reading order."""
    h, w = images.shape[2:]
    corners = [(row, column) for row in range(0, h, patch) for column in range(0, w, patch)]
    return [flat(images[:, :, row : row + patch, column : column + patch]) for row, column in corners]


def hsic(k: Array, m: Array) -> float:
    """tr(K H L H) / n² with H = I - 11ᵀ/n."""
    n = len(k)
    h = np.eye(n) - np.ones((n, n)) / n
    return float(np.trace(k @ h @ m @ h)) / n**2


def cka(x: Array, y: Array, gamma: float, kind: str = "gaussian") -> float:
    """0 where one of them is constant."""
    if (x == x[0]).all() or (y == y[0]).all():
        return 0.0
    k, m = gram(x, x, gamma, kind), gram(y, y, gamma, kind)
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def pixel_cka(images: Array, gamma: float, patch: int = 1, kind: str = "gaussian") -> Array:
    values = sites(images, patch)
    return np.array([[cka(a, b, gamma, kind) for b in values] for a in values])


def mini_batch_cka(images: Array, gamma: float, m: int) -> Array:
    """The mean over whole mini-batches in which both sites vary."""
    batches = [images[start : start + m] for start in range(0, len(images) - m + 1, m)]
    each = np.array([pixel_cka(batch, gamma) for batch in batches])
    varies = np.array([matrix.diagonal() > 0 for matrix in each])
    count = (varies[:, :, None] & varies[:, None]).sum(0)
    return each.sum(0) / np.maximum(count, 1)


def squared_norm(x: Array, gamma: float, kind: str, unbiased: bool) -> float:
    k, n = gram(x, x, gamma, kind), len(x)
    if unbiased:
        return float(k[~np.eye(n, dtype=bool)].mean())
    return float(k.mean())


def cms(
    fake: Array,
    real: Array,
    gamma: float,
    kind: str = "gaussian",
    block: int | None = None,
    unbiased: bool = False,
) -> float:
    """⟨μ_X, μ_Y⟩ / (‖μ_X‖ ‖μ_Y‖), averaged over all pairs of blocks."""
    values = [
        gram(x, y, gamma, kind).mean()
        / np.sqrt(squared_norm(x, gamma, kind, unbiased) * squared_norm(y, gamma, kind, unbiased))
        for x, y in block_pairs(fake, real, block)
    ]
    return float(np.mean(values))


def mmd(
    fake: Array,
    real: Array,
    gamma: float,
    kind: str = "gaussian",
    block: int | None = None,
    unbiased: bool = True,
) -> float:
    """mean k(x, x') + mean k(y, y') - 2 mean k(x, y), averaged over all pairs of blocks."""
    values = [
        squared_norm(x, gamma, kind, unbiased)
        + squared_norm(y, gamma, kind, unbiased)
        - 2 * gram(x, y, gamma, kind).mean()
        for x, y in block_pairs(fake, real, block)
    ]
    return float(np.mean(values))


def mmd_second_order(xx: Array, xz: Array) -> float:
    """What a jackknife of MMD² counts too often; kernels centered entry by entry, Székely and Rizzo's U-centering."""
    n, m = xz.shape
    xx = xx - np.diag(np.diag(xx))
    rows, total = xx.sum(1), xx.sum()
    within, across = 0.0, 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                within += (xx[i, j] - rows[i] / (n - 2) - rows[j] / (n - 2) + total / ((n - 1) * (n - 2))) ** 2
        for k in range(m):
            across += (xz[i, k] - xz[i].mean() - xz[:, k].mean() + xz.mean()) ** 2
    within, across = within / (n * (n - 3)), across / ((n - 1) * (m - 1))
    return 2 * within / ((n - 1) * (n - 2)) + 4 * across / (n * m)


def block_pairs(fake: Array, real: Array, block: int | None) -> list[tuple[Array, Array]]:
    if block is None:
        return [(fake, real)]
    cut_fake, cut_real = (np.split(side, len(side) // block) for side in (fake, real))
    return [(x, y) for x in cut_fake for y in cut_real]


def region(images: Array, labels: NDArray[np.int64], label: int) -> Array:
    """The pixels of one label, all channels (n, d)."""
    return flat(images[:, :, labels == label])


def split_statistics(x: Array, splits: NDArray[np.bool_], regions: list[NDArray[np.int64]], widths: tuple) -> Array:
    """Spec page 6: t = wᵀ K w of each split, standardized over the splits, its largest over the widths."""
    out = []
    for columns in [np.arange(x.shape[1]), *regions]:
        squares = distances(x[:, columns], x[:, columns])
        mean = squares.sum() / (len(x) * (len(x) - 1))
        by_width = []
        for b in widths:
            k = np.exp(-b / mean * squares)
            np.fill_diagonal(k, 0)
            weights = [np.where(split, 1 / split.sum(), -1 / (~split).sum()) for split in splits]
            t = np.array([w @ k @ w for w in weights])
            by_width.append((t - t.mean()) / t.std())
        out.append(np.max(by_width, axis=0))
    return np.array(out)


def whitened(pool: Array, images: Array) -> Array:
    """Spec page 7: cosine coefficients over deviation plus 2 % of the largest, as a filter cut off at 3 pixels."""
    channels = np.moveaxis(pool - pool.mean(0), 1, -1).reshape(-1, pool.shape[1])
    axes = np.linalg.eigh(channels.T @ channels)[1].T
    turn = lambda x, a: np.einsum("kc,nchw->nkhw", a, x)  # noqa: E731
    deviation = dctn(turn(pool - pool.mean(0), axes), axes=(2, 3), norm="ortho").std(0, ddof=1)
    gain = 1 / (deviation + 0.02 * deviation.max())
    size = images.shape[2:]
    reach = min(3, size[0] - 1, size[1] - 1)
    rotated = np.pad(turn(images, axes), ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="reflect")
    out = np.zeros_like(images)
    for channel, g in enumerate(gain):
        kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
        for y, x in np.ndindex(kernel.shape):  # the inverse Fourier transform of the even extension, term by term
            for u, v in np.ndindex(2 * size[0], 2 * size[1]):
                of = g[min(u, 2 * size[0] - u, size[0] - 1), min(v, 2 * size[1] - v, size[1] - 1)]
                angle = np.pi * (u * (y - reach) / size[0] + v * (x - reach) / size[1])
                kernel[y, x] += of * np.cos(angle) / (4 * size[0] * size[1])
        taper = np.hanning(2 * reach + 3)[1:-1]
        window = np.outer(taper, taper)
        kernel *= window
        kernel += (g[0, 0] - kernel.sum()) * window / window.sum()
        for y, x in np.ndindex(kernel.shape):
            out[:, channel] += kernel[y, x] * rotated[:, channel, y : y + size[0], x : x + size[1]]
    return turn(out, axes.T)


def texture_statistics(x: Array, splits: NDArray[np.bool_], labels: NDArray[np.int64], widths: tuple) -> Array:
    """`split_statistics` of whitened images, and of each region with all other pixels at their mean."""
    out = [split_statistics(flat(whitened(x, x - x.mean(0))), splits, [], widths)[0]]
    for label in np.unique(labels):
        part = whitened(x, (x - x.mean(0)) * (labels == label))[:, :, labels == label]
        out.append(split_statistics(flat(part), splits, [], widths)[0])
    return np.array(out)


def familywise_p_values(statistics: Array) -> list[float]:
    """Share of the splits in which any region lies as far out as this one in the first split."""
    largest = statistics.max(0)
    return [float(np.mean(largest >= region[0] - 1e-9)) for region in statistics]


def discrepancy_map(x: Array, splits: NDArray[np.bool_], sides: tuple, cell: int = 1) -> dict[str, Array]:
    """Spec page 7's map: characteristic functions of each pixel and view, a window at a time; `cell` pixels as one."""
    h, w = x.shape[2:]
    rows, columns = -(-h // cell), -(-w // cell)
    views = []
    for images in (x, whitened(x, x)):
        u = images - images.mean(0)
        u = u / (images.std(0) + 0.02 * images.std(0).max())
        d = np.zeros((len(splits), rows, columns))
        for t in (0.5, 1):
            of_normal = (1 - np.exp(-(t**2))) ** 2 / 2, (1 - np.exp(-2 * t**2)) / 2
            for wave, variance in ((np.cos(t * u), of_normal[0]), (np.sin(t * u), of_normal[1])):
                for i in range(rows):
                    for j in range(columns):
                        f = wave[:, :, i * cell : (i + 1) * cell, j * cell : (j + 1) * cell].mean((2, 3))
                        gaps = np.array([f[split].mean(0) - f[~split].mean(0) for split in splits])
                        d[:, i, j] += (gaps**2 / (f.var(0) + 0.02 * variance / cell**2)).sum(1)
        views.append(d)
    windows = lambda side: [  # noqa: E731
        (slice(i, i + min(side, rows)), slice(j, j + min(side, columns)))
        for i in range(rows - min(side, rows) + 1)
        for j in range(columns - min(side, columns) + 1)
    ]
    sizes = []
    for side in (1, 1, 3):
        for d in views:
            total, count = np.zeros((2, rows, columns))
            for place in windows(side):
                t = d[(slice(None), *place)].sum((1, 2))
                total[place] += (t[0] - t[1:].mean()) / max(t[1:].std(ddof=1), 0.1 * t[1:].mean())
                count[place] += 1
            sizes.append(np.log1p(np.maximum(total / count, 0)))
    tested = [(place, d[(slice(None), *place)].sum((1, 2))) for d in views for side in sides for place in windows(side)]
    tested = [(place, (t - t.mean()) / t.std()) for place, t in tested]
    largest = np.max([t for _, t in tested], axis=0)
    p_map = np.ones((rows, columns))
    for place, t in tested:
        p_map[place] = np.minimum(p_map[place], np.mean(largest >= t[0] - 1e-4))
    in_pixels = lambda cells: cells.repeat(cell, 0).repeat(cell, 1)[:h, :w]  # noqa: E731
    return {"map": in_pixels(np.expm1(np.mean(sizes, 0))), "p_map": in_pixels(p_map)}
