# SPDX-License-Identifier: Apache-2.0
"""A kind of fault: a change of real images with a strength in units that a person knows, and its words for readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

PART = (0.0, 1.0)
"""Bounds of a strength that is a part of something."""
RANGE = (-1.0, 1.0)
"""Bounds of a strength that is added to values."""


@runtime_checkable
class FaultModel(Protocol):
    """A fault as a change of real images: what `genmonitor.diagnose(fault_models=...)` takes.

    Attributes:
        name: Such as "vignette".
        unit: Unit of the strength, in words: "of the range", "px".
        strengths: To try first, none of them 0; between and a little beyond them the strength is then fitted.
    """

    @property
    def name(self) -> str:
        """What a finding calls it."""
        ...

    @property
    def unit(self) -> str:
        """Of the strength, in words."""
        ...

    @property
    def strengths(self) -> tuple[float, ...]:
        """Those to try first."""
        ...

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return images with the fault.

        Args:
            images: Real ones [N, C, H, W], scaled so that they fill [0, 1].
            strength: One of `strengths`, or one between.
            generator: For what is random, on the CPU.

        Returns:
            New images of the same shape; only the area that is diagnosed is looked at.
        """
        ...


Models = Sequence[FaultModel]


class Kind:
    """A kind of fault of the package. Adding one is a subclass, its place in `FAULT_MODELS`, and its picture.

    Attributes:
        name: Name of the fault with a strength above 0.
        unit: Unit of the strength, in words.
        strengths: To try first.
        words: With {s} for the strength, {percent} for it in percent, {left} for the rest of 100 %, {unit}, {sign},
            {channel} and {period}.
        change: How the fault is put into real images, where its strength is s.
        cause: The usual one, as its source has it; empty where none is known that a source bears out.
        source: Source of the cause.
        remedy: What to try.
        opposite: The kind with a strength below 0; None where strengths are positive.
        opposite_unit: Its unit, where that is another.
        whole: True if strengths are whole numbers.
        of_pixels: True if it means something only where neighboring values are neighboring pixels.
        bounds: Bounds of the strength.
        simplicity: The lowest is named of those that explain the same.
        moves_mean: True if it shows in the mean of an area, wherever its edge is.
        hides: True if another fault may show only beside it.
        changes_images: False if single images are right.
        of_parts: True if only a part of an image can have it.
        of_all: True if only a whole image can have it.
    """

    name: str = ""
    unit: str = ""
    strengths: tuple[float, ...] = ()
    words: ClassVar[str] = ""
    change: ClassVar[str] = ""
    cause: ClassVar[str] = ""
    source: ClassVar[str] = ""
    remedy: ClassVar[str] = ""
    opposite: ClassVar[type[Kind] | None] = None
    opposite_unit: str = ""
    whole: ClassVar[bool] = False
    of_pixels: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    simplicity: ClassVar[int] = 10
    moves_mean: ClassVar[bool] = False
    hides: ClassVar[bool] = False
    changes_images: ClassVar[bool] = True
    of_parts: ClassVar[bool] = False
    of_all: ClassVar[bool] = False

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """See `FaultModel.apply`."""
        return images

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Return the kind with what it takes from the images, such as a color's direction; None where they lack it.

        Args:
            fake: Generated images [N, C, H, W].
            real: Real ones [M, C, H, W].
            area: Boolean mask [H, W] of the pixels.
        """
        everywhere = bool(area.all())
        return None if (self.of_parts if everywhere else self.of_all) else self

    def named(self, strength: float) -> tuple[str, float, str]:
        """Return name, strength and unit for a reader: those of the opposite kind where the strength is below 0."""
        if strength >= 0 or self.opposite is None:
            return self.name, strength, self.unit
        return self.opposite.name, -strength, self.opposite_unit or self.unit

    @classmethod
    def said(cls, strength: float, unit: str) -> str:
        """Say the kind with its strength in a few words."""
        size = abs(strength)
        sizes = {"s": f"{size:.2g}", "percent": f"{100 * size:.0f}", "left": f"{100 * (1 - size):.0f}"}
        names = {"channel": unit.rpartition(" in ")[2], "period": unit.rpartition(", ")[2]}
        return cls.words.format(unit=unit, sign="−" if strength < 0 else "+", **sizes, **names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.unit!r})"


def both_ways(*strengths: float) -> tuple[float, ...]:
    """Return the strengths and their negatives."""
    return tuple(sign * strength for strength in strengths for sign in (1, -1))


def random_choice(images: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return the indices of a random share of the images."""
    return torch.randperm(len(images), generator=generator)[: round(share * len(images))].to(images.device)
