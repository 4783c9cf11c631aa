# SPDX-License-Identifier: Apache-2.0
"""Figures as PNG files, drawn once for all who take them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genmonitor.plotting.style import Drawing


@dataclass(frozen=True, eq=False)
class RenderedFigure:
    """The PNG file that a matplotlib figure gives."""

    png: bytes

    @classmethod
    def of(cls, given: Figure | Drawing) -> RenderedFigure:
        """Render a figure, or what a function draws, at its own resolution."""
        figure, buffer = given() if callable(given) else given, io.BytesIO()
        figure.savefig(buffer, format="png", dpi=figure.dpi)
        return cls(buffer.getvalue())
