# SPDX-License-Identifier: Apache-2.0
"""The user's settings of matplotlib, taken to the process that draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import matplotlib
from matplotlib.font_manager import fontManager

T = TypeVar("T")

_FAMILIES = ("family", "serif", "sans-serif", "cursive", "fantasy", "monospace")


class Settings(NamedTuple):
    """What figures look like beyond what their functions say."""

    parameters: Any
    """matplotlib's by name, but for the backend, which stays each process's own."""
    fonts: list[str]
    """Files of the fonts that the parameters name: the user may have added them."""

    @classmethod
    def current(cls) -> Settings:
        """Return those of this process."""
        # by name: to read the backend would choose one
        parameters: Any = {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}
        named = {name for family in _FAMILIES for name in parameters[f"font.{family}"]}
        return cls(parameters, sorted({font.fname for font in fontManager.ttflist if font.name in named}))

    def call(self, work: Callable[[], T]) -> T:
        """Call a function under these settings."""
        known = {font.fname for font in fontManager.ttflist}
        for path in self.fonts:
            if path not in known:
                fontManager.addfont(path)
        with matplotlib.rc_context(self.parameters):
            return work()
