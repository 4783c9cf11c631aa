# SPDX-License-Identifier: Apache-2.0
"""A reading: a statistic of single images that a person can name, and values that several readings share."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.shape import averaged

FIGURE = 0.2
"""Smallest difference of a pixel of the figure from the border, as a part of the range."""


class Look:
    """Images [N, C, H, W] on the scale of real images in [0, 1], with values that several readings share."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    @cached_property
    def gray(self) -> Tensor:
        """Mean of the channels [N, H, W]."""
        return self.images.mean(1)

    @cached_property
    def across(self) -> Tensor:
        """Step from each pixel to its right neighbor [N, H, W - 1]."""
        return self.gray.diff(dim=2)

    @cached_property
    def down(self) -> Tensor:
        """Step from each pixel to its lower neighbor [N, H - 1, W]."""
        return self.gray.diff(dim=1)

    @cached_property
    def steepness(self) -> Tensor:
        """Size of the step to the right and downwards [N, H - 1, W - 1]."""
        return (self.across[:, :-1].square() + self.down[:, :, :-1].square()).sqrt()

    @cached_property
    def sorted(self) -> Tensor:
        """The pixels of each image, the darkest first [N, H W]."""
        return self.gray.flatten(1).sort(1).values

    def quantile(self, part: float) -> Tensor:
        """Return the quantile of the brightness of each image [N]."""
        return self.sorted[:, round(part * (self.sorted.shape[1] - 1))]

    @cached_property
    def residual(self) -> Tensor:
        """Absolute difference of each pixel from the mean of 3×3 pixels [N, H, W]."""
        return (self.gray - averaged(self.gray[:, None])[:, 0]).abs()

    @cached_property
    def calm(self) -> Tensor:
        """Residual of the calmest pixels, the smallest first [N, K]."""
        around = averaged(self.residual[:, None])[:, 0].flatten(1)
        # the quarter of the pixels with the smallest steps around them shows the grain
        calmest = around.topk(max(1, round(0.25 * around.shape[1])), largest=False).indices
        return self.residual.flatten(1).gather(1, calmest)

    @property
    def on_background(self) -> bool:
        """True if most of the border is of about one color, in most images."""
        x = self.contrast_to_border / (self.images.max() - self.images.min()).clamp_min(1e-12)
        border = torch.cat([x[:, 0], x[:, -1], x[:, :, 0], x[:, :, -1]], 1)
        return bool((border < FIGURE / 2).float().mean(1).median() > 0.5)

    @cached_property
    def background(self) -> Tensor:
        """Usual color of the border [N, C]."""
        x = self.images
        return torch.cat([x[:, :, 0], x[:, :, -1], x[:, :, :, 0], x[:, :, :, -1]], 2).median(2).values

    @cached_property
    def contrast_to_border(self) -> Tensor:
        """Difference of each pixel from the usual color of the border, as a part of the range [N, H, W]."""
        return (self.images - self.background[:, :, None, None]).abs().amax(1)

    @cached_property
    def figure(self) -> Tensor:
        """Pixels that stand out from the usual color of the border, bool [N, H, W]."""
        return self.contrast_to_border > FIGURE

    @cached_property
    def mass(self) -> Tensor:
        """Pixels of the figure as weights of sum 1 [N, H, W]; uniform if nothing stands out."""
        weights = self.figure + 1e-6
        return weights / weights.sum((1, 2), keepdim=True)


class Reading:
    """A statistic of each image. To add one, write a subclass in the file of its family.

    Attributes:
        name: Name, such as "darkest pixels".
        signs: Words in the name for a value above 0 and for one below; empty if the value keeps its sign.
        unit: "%" for parts, which are given in percent, "px", or nothing.
        visible: Smallest difference that a person sees.
        family: "tone", "variety", "color", "detail", "pattern" or "shape"; at most two of a family are reported.
        least_side: Smallest side of images that it applies to, in pixels.
        needs_color: True if it does not apply to gray images.
        needs_place: True if it compares the same places of images.
        needs_background: True if it is of a figure before a plain background, which textures and landscapes lack.
        weight: Factor of its visibility, below 1 if a person does not see the statistic as such.
        only: "more" or "less" if only a larger or a smaller value is a fault, as of traces that should not be there.
        words: What a person calls a larger and a smaller value; empty where the name says it.
        resembles: Kinds of faults with the usual cause of a larger and of a smaller value; empty if there is none.
        of_set: True if it compares an image with the others of its set, and thus depends on their weights.
    """

    name: ClassVar[str] = ""
    signs: ClassVar[tuple[str, str]] = ("", "")
    unit: ClassVar[str] = ""
    visible: ClassVar[float] = 0.05
    family: ClassVar[str] = ""
    least_side: ClassVar[int] = 4
    needs_color: ClassVar[bool] = False
    needs_place: ClassVar[bool] = False
    needs_background: ClassVar[bool] = False
    weight: ClassVar[float] = 1.0
    only: ClassVar[str] = ""
    words: ClassVar[tuple[str, str]] = ("", "")
    resembles: ClassVar[tuple[str, str]] = ("", "")
    of_set: ClassVar[bool] = False

    def of(self, look: Look) -> Tensor:
        """Return the statistic of each image [N]."""
        raise TypeError(f"The reading {self.name!r} has no `of`: return a number for each image, [N].")

    def value(self, number: float) -> str:
        """Return a value as text."""
        if self.unit == "%":
            return f"{100 * number:.0f} %"
        digits = 0 if abs(number) >= 10 or float(number).is_integer() else 2
        return f"{round(number, digits) + 0.0:.{digits}f} {self.unit}".strip().replace("-", "−")

    def beside(self, number: float, other: float) -> tuple[str, str]:
        """Return the name with a value, and another value, in the words for their signs.

        Example:
            >>> from genmonitor.functional.diagnosis.readings.detail import Frame
            >>> Frame().beside(-0.07, 0.02), Frame().beside(-0.07, -0.02)
            (('outermost pixels darker by 0.07', 'brighter by 0.02'), ('outermost pixels darker by 0.07', '0.02'))
        """
        if not self.signs[0]:
            return f"{self.name} {self.value(number)}", self.value(other)
        values = [self.value(abs(x)) for x in (number, other)]
        below, other_below = number < 0 or (not number and other < 0), other < 0 or (not other and number < 0)
        named = f"{self.name.replace(self.signs[0], self.signs[below])} {values[0]}"
        return named, values[1] if below == other_below else f"{self.signs[other_below]} by {values[1]}"
