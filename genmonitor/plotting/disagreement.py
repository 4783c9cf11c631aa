# SPDX-License-Identifier: Apache-2.0
"""DisagreementMonitor's figures: the prompts of each mode and the prompts that differ most.

In every figure, modes that the model has and the reference lacks are orange, the reverse blue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from genmonitor.plotting.style import (
    FAINT,
    Array,
    add_picture,
    add_text,
    cluster_color,
    new_figure,
    printable,
    to_array,
    to_tiles,
)

MODEL, REFERENCE = cluster_color(4), cluster_color(1)


@dataclass(frozen=True)
class PromptSides:
    """A prompt with some of its samples of both sides.

    Attributes:
        prompt: Prompt, shortened if it is long.
        value: Share of the disagreement, or mean score on a mode.
        current: Samples of the model [k, c, H, W].
        reference: Samples of the reference [k', c, H, W].
    """

    prompt: str
    value: float
    current: Array
    reference: Array


@dataclass(frozen=True)
class ModePrompts:
    """A mode with its main prompts.

    Attributes:
        name: Name: "top 1", "bottom 1", or "similar" for a common mode.
        eigenvalue: Eigenvalue, positive if the model has the mode and the reference lacks it, negative for the reverse.
        prompts: Prompts, the one with the highest score first.
    """

    name: str
    eigenvalue: float
    prompts: Sequence[PromptSides]


def mode_prompts(
    modes: Sequence[ModePrompts], value_range: tuple[float, float], against: str, model: str = "the model"
) -> Figure:
    """Draw one row per mode: its main prompts, with samples of the model and of the reference.

    Args:
        modes: Modes, at least one, each with at least one prompt.
        value_range: Values to show as black and as white.
        against: Name of the reference.
        model: Name of the model.
    """
    groups = [[_pair(sides, value_range) for sides in mode.prompts] for mode in modes]
    height, widths = _sizes(pair for group in groups for pair in group)
    side, gap, head, text = 110, 40, 102, 34
    between = 18  # pixels between the two sides of a prompt
    cell = max(sum(widths) + between, 130) + gap
    size = (max(side + max(map(len, groups)) * cell, 640), head + len(modes) * (height + text))
    note = f"Prompts by their mean score. Orange: {model}. Blue: {against}."
    figure = new_figure(*size, "Which prompts each mode is about", note)
    for row, (mode, group) in enumerate(zip(modes, groups, strict=True)):
        top = head + row * (height + text)
        color = FAINT if mode.name == "similar" else MODEL if mode.eigenvalue > 0 else REFERENCE
        label = f"{mode.name}\n{round(mode.eigenvalue, 4) + 0.0:+.4f}"  # never -0.0000
        add_text(figure, 18, top + height / 2, label, color, va="center")
        for column, (sides, pair) in enumerate(zip(mode.prompts, group, strict=True)):
            x = side + column * cell
            _draw_pair(figure, pair, (x, x + widths[0] + between), top)
            words = f"{sides.value:.2f}  {printable(sides.prompt, int((cell - gap) / 7.6) - 6)}"
            add_text(figure, x, top + height + 5, words, fontsize=9, va="top")
    return figure


def strip(images: Array, value_range: tuple[float, float]) -> NDArray[Any]:
    """Return images [k, c, H, W] side by side as one RGB picture, uint8 (h, w, 3), white without images."""
    array = to_array(images)
    if not len(array):
        array = np.full((1, *array.shape[1:]), value_range[1])
    tiles = to_tiles(array, value_range)
    gap = 6  # pixels between tiles
    joined = np.concatenate([np.pad(tile, ((0, 0), (0, gap), (0, 0)), constant_values=1) for tile in tiles], axis=1)
    return np.round(255 * joined[:, :-gap]).astype(np.uint8)


def _pair(sides: PromptSides, value_range: tuple[float, float]) -> tuple[NDArray[Any], NDArray[Any]]:
    return strip(sides.current, value_range), strip(sides.reference, value_range)


def _sizes(pairs: Any) -> tuple[int, tuple[int, int]]:
    """Return the height of a row, and the width of the widest picture of each side."""
    shapes = [(left.shape, right.shape) for left, right in pairs]
    return shapes[0][0][0], (max(left[1] for left, _ in shapes), max(right[1] for _, right in shapes))


def _draw_pair(figure: Figure, pair: tuple[NDArray[Any], NDArray[Any]], xs: tuple[float, float], top: float) -> None:
    """Draw both pictures at positions in pixels from the upper left corner, with lines in the colors of the sides."""
    for picture, x, color in zip(pair, xs, (MODEL, REFERENCE), strict=True):
        ax = add_picture(figure, x, top, picture)
        ax.spines[:].set_visible(False)
        ax.spines["top"].set(visible=True, color=color, linewidth=3)
