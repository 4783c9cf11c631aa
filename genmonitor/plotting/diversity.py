# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor's figures: the spectrum and the samples at the ends of each mode.

Variety that the prompts explain is blue, what the model alone adds orange, both together black, in every figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from genmonitor.plotting.style import (
    INK,
    Array,
    add_axes,
    add_picture,
    add_text,
    cluster_color,
    new_figure,
    open_axes,
    printable,
    to_array,
    to_tiles,
)

PROMPTS, MODEL = cluster_color(1), cluster_color(4)
SHOWN = 40  # eigenvalues


def spectrum(outputs: Array, prompt_driven: Array, model_driven: Array, n: int) -> Figure:
    """Spectrum of the variety over modes: of all images, of what the prompts explain, of what the model adds.

    Args:
        outputs: eigenvalues of the outputs' covariance, in any order; they sum to 1.
        prompt_driven: those of the part that the prompts explain.
        model_driven: those of the rest.
        n: samples that they are of.
    """
    parts = {
        ("all images", "Vendi", INK): outputs,
        ("explained by the prompts", "Scendi", PROMPTS): prompt_driven,
        ("the model's own", "Scendi", MODEL): model_driven,
    }
    share = 100 * to_array(prompt_driven).sum()
    title = f"Prompts explain {share:.0f} % of the variety, the model adds {100 - share:.0f} % by itself"
    return _spectra(parts, title, n)


def pca_spectrum(centered: Array, n: int) -> Figure:
    """Spectrum of the variety over modes, of a generator without prompts.

    Args:
        centered: eigenvalues of the covariance of centered features, in any order.
        n: samples that they are of.
    """
    shares = to_array(centered) / max(float(to_array(centered).sum()), 1e-12)
    title = f"The largest of {n} images' modes has {100 * shares.max():.0f} % of the variety"
    return _spectra({("around the mean", "Vendi", MODEL): shares}, title, n)


def _spectra(parts: Mapping[tuple[str, str, str], Array], title: str, n: int) -> Figure:
    """Draw eigenvalues by name, score and color; the first part says how many are shown."""
    spectra = {look: np.sort(np.maximum(to_array(values), 0))[::-1] for look, values in parts.items()}
    total = next(iter(spectra.values()))
    figure = new_figure(900, 480, title, f"Eigenvalues of the covariance of {n} samples")
    ax = add_axes(figure, 92, 56, 786, 350)
    last = int(np.clip(np.searchsorted(total.cumsum(), 0.998) + 1, 8, SHOWN))
    for (name, score, color), values in spectra.items():
        shown = 100 * values[:last]
        shown = shown[shown > 1e-3]
        label = f"{name}, {100 * values.sum():.0f} %: {score} {np.exp(_entropy(values)):.3g}"
        ax.plot(np.arange(1, len(shown) + 1), shown, ".-", color=color, linewidth=2, markersize=10, label=label)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    ax.set_xlim(0.5, last + 0.5)
    ax.set_xlabel("mode, the largest first", fontsize=11, color=INK)
    ax.set_ylabel("share of all variety", fontsize=11, color=INK)
    open_axes(ax)
    ax.legend(loc="upper right", fontsize=11, frameon=False, labelcolor=INK)
    return figure


def _entropy(values: NDArray[Any]) -> float:
    positive = values[values > 1e-12]
    return float((positive * np.log(positive.sum() / positive)).sum())


def mode_samples(
    shares: Sequence[float],
    images: Array,
    prompts: Sequence[Sequence[str]] | None,
    value_range: tuple[float, float] = (0.0, 1.0),
) -> Figure:
    """The samples at both ends of each mode that the model alone adds: what varies along it is what differs.

    Args:
        shares: each mode's share of the model's own variety.
        images: (modes, 2k, c, H, W), k samples from one end and k from the other.
        prompts: 2k texts for each mode; shown as they are, cut where they are long. None for samples without prompts.
        value_range: what to show as black and as white.
    """
    images = to_array(images)
    rows, columns = images.shape[:2]
    tiles = to_tiles(images.reshape(-1, *images.shape[2:]), value_range)
    height, width, gap, text, middle, side = *tiles.shape[1:3], 8, 17, 34, 96
    xs = [side + c * (width + gap) + (middle if c >= columns // 2 else 0) for c in range(columns)]
    removed, by_itself = ("", "") if prompts is None else ("Prompts removed. ", " by itself")
    note = f"{removed}Each row: the samples at the two ends of one mode."
    size = (max(xs[-1] + width + 18, 520), rows * (height + gap + text) + 92)
    figure = new_figure(*size, f"What the model varies{by_itself}", note)
    for c, head in ((0, "one end"), (columns // 2, "the other end")):
        add_text(figure, xs[c], 84, head)
    for row in range(rows):
        top = 92 + row * (height + gap + text)
        add_text(figure, 18, top + height / 2, f"mode {row + 1}\n{100 * shares[row]:.0f} %", MODEL, va="center")
        for c in range(columns):
            add_picture(figure, xs[c], top, tiles[row * columns + c])
            if prompts is not None:
                prompt = printable(prompts[row][c], int(width / 5.6))
                add_text(figure, xs[c] + width / 2, top + height + 3, prompt, fontsize=9, ha="center", va="top")
    return figure


def least_varied(
    rows: Sequence[tuple[str, float, str, Array]], value_range: tuple[float, float] = (0.0, 1.0)
) -> Figure:
    """The prompts whose images are most alike: each with its W1KP, its closest pair and some other images.

    Args:
        rows: prompt, W1KP, a remark, and images (k, c, H, W), the two most similar ones first; at least one row, the
            least varied first.
        value_range: what to show as black and as white.
    """
    tiles = [to_tiles(to_array(images), value_range) for *_, images in rows]
    height, width = tiles[0].shape[1:3]
    words, head, gap, between, middle = 300, 88, 14, 6, 24
    most = max(map(len, tiles))
    xs = [18 + words + column * (width + between) + (middle if column > 1 else 0) for column in range(most)]
    size = (max(xs[-1] + width + 18, 560), head + len(rows) * (height + gap) + 6)
    note = "W1KP: 1 where all images of a prompt are alike, 0 where they differ as much as any."
    figure = new_figure(*size, "The least varied prompts", note)
    for x, above in zip(xs[::2], ("closest pair", "others"), strict=False):
        add_text(figure, x, 78, above)
    for row, ((prompt, w1kp, remark, _), some) in enumerate(zip(rows, tiles, strict=True)):
        top = head + row * (height + gap)
        text = f"{fill(printable(prompt, 66), 34)}\n{w1kp:.2f}  {remark}"
        add_text(figure, 18, top + height / 2, text, va="center")
        for x, tile in zip(xs, some, strict=False):
            add_picture(figure, x, top, tile)
    return figure
