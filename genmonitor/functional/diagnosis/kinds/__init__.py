# SPDX-License-Identifier: Apache-2.0
"""Kinds of faults: one class each, by family. A new one is a class, and its place in `FAULT_MODELS`."""

from __future__ import annotations

from genmonitor._formatting import significant
from genmonitor.functional.diagnosis.kinds.base import FaultModel, Kind, Models
from genmonitor.functional.diagnosis.kinds.detail import Blurred, Compressed, Noisy, Periodic, Pixelated, Sharpened
from genmonitor.functional.diagnosis.kinds.shape import Mirrored, Rotated, Shifted, Thicker, Zoomed
from genmonitor.functional.diagnosis.kinds.tone import (
    Brighter,
    ChannelsSwapped,
    Clipped,
    Color,
    Desaturated,
    Gamma,
    Hue,
    Posterized,
    Stronger,
)
from genmonitor.functional.diagnosis.kinds.variety import Blank, Copies, LessVaried, Misfit, Modes

FAULT_MODELS: tuple[Kind, ...] = (
    Mirrored(),
    Rotated(),
    Zoomed(),
    Shifted(),
    Shifted(down=True),
    Thicker(),
    LessVaried(),
    Blurred(),
    Sharpened(),
    Pixelated(),
    Stronger(),
    Stronger(middle=0.0),
    Stronger(middle=0.5),
    Brighter(),
    Color(),
    Gamma(),
    Desaturated(),
    Hue(),
    ChannelsSwapped(),
    Periodic(2),
    Periodic(4),
    Periodic(8),
    Blank(),
    Noisy(),
    Clipped(),
    Clipped(both_ends=True),
    Posterized(),
    Compressed(),
    Misfit(),
)
"""Kinds of faults, in the order in which they are put into an image."""

# the last two change no image
_CLASSES: list[type[Kind]] = [*dict.fromkeys(type(x) for x in FAULT_MODELS), Modes, Copies]

KINDS: dict[str, type[Kind]] = {kind.name: kind for x in _CLASSES for kind in (x, x.opposite) if kind is not None}
"""Kinds of the package by name."""


def in_words(name: str, strength: float, unit: str) -> str:
    """Say a kind with its strength in a few words; of a user's own kinds, name, strength and unit.

    Example:
        >>> in_words("blurred", 0.82, "px (σ)"), in_words("color", -0.1, "of the range in red")
        ('blurred, σ 0.82 px', 'red − 0.1 of the range')
        >>> in_words("vignette", 0.3, "of the range")
        'vignette 0.3 of the range'
    """
    if name in KINDS:
        return KINDS[name].said(strength, unit)
    return f"{name} {significant(strength).replace('-', '−')} {unit}"


__all__ = ["FAULT_MODELS", "KINDS", "FaultModel", "Kind", "Models", "in_words"]
