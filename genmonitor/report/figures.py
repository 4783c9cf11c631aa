# SPDX-License-Identifier: Apache-2.0
"""Figures as PNG files, drawn once for all who take them."""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
        buffer = io.BytesIO()
        with _ctrl_c_held():
            figure = given() if callable(given) else given
            figure.savefig(buffer, format="png", dpi=figure.dpi)
        return cls(buffer.getvalue())


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Hold Ctrl-C back for a moment: matplotlib's C++ code makes a ValueError of a KeyboardInterrupt, or drops it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():  # nobody can put it back
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)
