# SPDX-License-Identifier: Apache-2.0
"""A kind of fault: a change of real images, with a strength in familiar units and words for readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from genmonitor._formatting import significant

PART = (0.0, 1.0)
"""Bounds of a strength that is a part of something."""
RANGE = (-1.0, 1.0)
"""Bounds of a strength that is added to values."""
PER_PIXEL = "is the loss a squared error per pixel? Then a perceptual or adversarial loss beside it"
"""Advice for images without detail."""


@runtime_checkable
class FaultModel(Protocol):
    """A fault as a change of real images, for `genmonitor.diagnose(fault_models=...)`.

    Attributes:
        name: Name, such as "vignette".
        unit: Unit of the strength, in words: "of the range", "px".
        strengths: Strengths to try first, none of them 0. The strength is then fitted between and a little beyond them.
    """

    @property
    def name(self) -> str:
        """Name in findings."""
        ...

    @property
    def unit(self) -> str:
        """Unit of the strength, in words."""
        ...

    @property
    def strengths(self) -> tuple[float, ...]:
        """Strengths to try first."""
        ...

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return images with the fault.

        Args:
            images: Real images [N, C, H, W], scaled so that they fill [0, 1].
            strength: One of `strengths`, or a value between.
            generator: Random generator, on the CPU.

        Returns:
            New images of the same shape; only the diagnosed area is used.
        """
        ...


Models = Sequence[FaultModel]


class Kind:
    """A kind of fault of the package. To add one, write a subclass, an entry in `FAULT_MODELS`, and a picture.

    Attributes:
        name: Name of the fault with a strength above 0.
        unit: Unit of the strength, in words.
        strengths: Strengths to try first.
        words: Text with {s} for the strength, {percent} for the strength in percent, {left} for the rest of 100 %,
            {unit} and {period}.
        change: Formula that puts the fault into real images, where its strength is s.
        cause: Usual cause according to the source; empty if no source supports one.
        source: Source of the cause.
        remedy: Advice against the cause.
        opposite: Kind with a strength below 0; None if it is the same, or strengths are positive.
        opposite_unit: Unit of a strength below 0, if it differs.
        whole: True if strengths are integers.
        of_pixels: True if the kind needs neighboring values to be neighboring pixels.
        bounds: Bounds of the strength.
        simplicity: Rank; of kinds that explain the same, the lowest is named.
        moves_mean: True if it shows in the mean of an area, even with an inexact edge.
        hides: True if another fault may show only together with it.
        changes_images: False if single images are correct.
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
        """Return the kind with values measured from the images, such as a color's direction; None if not applicable.

        Args:
            fake: Generated images [N, C, H, W].
            real: Real images [M, C, H, W].
            area: Boolean mask [H, W] of the pixels.
        """
        everywhere = bool(area.all())
        return None if (self.of_parts if everywhere else self.of_all) else self

    def named(self, strength: float) -> tuple[str, float, str]:
        """Return name, strength and unit for a reader, of the opposite kind if the strength is below 0."""
        if strength >= 0 or not (self.opposite or self.opposite_unit):
            return self.name, strength, self.unit
        return (self.opposite or self).name, -strength, self.opposite_unit or self.unit

    @classmethod
    def said(cls, strength: float, unit: str) -> str:
        """Return a short text of the kind with its strength."""
        size = abs(strength)
        sizes = {"s": significant(size), "percent": f"{100 * size:.0f}", "left": f"{100 * (1 - size):.0f}"}
        return cls.words.format(unit=unit, period=unit.rpartition(", ")[2], **sizes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.unit!r})"


def both_ways(*strengths: float) -> tuple[float, ...]:
    """Return the strengths and their negatives."""
    return tuple(sign * strength for strength in strengths for sign in (1, -1))


def random_choice(images: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return the indices of a random share of the images."""
    return torch.randperm(len(images), generator=generator)[: round(share * len(images))].to(images.device)
