# SPDX-License-Identifier: Apache-2.0
"""Figures as PNG files, drawn once for all who take them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class RenderedFigure:
    """A matplotlib figure and the PNG file that it gives, for whoever takes either."""

    figure: Figure
    png: bytes

    @classmethod
    def of(cls, figure: Figure) -> RenderedFigure:
        """Render a figure at its own resolution."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=figure.dpi)
        return cls(figure, buffer.getvalue())
