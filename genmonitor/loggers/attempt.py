# SPDX-License-Identifier: Apache-2.0
"""What must not stop training, and says so where it fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any


class Attempt:
    """Does something and, if it fails, says what went wrong: once for each kind of failure.

    Args:
        warn: says it.
        raise_errors: let failures stop training after all, for tests.

    Example:
        >>> attempt = Attempt(print)
        >>> for _ in range(2):
        ...     attempt(lambda: open("no/such/file"))
        part of an evaluation could not be shown or written. FileNotFoundError: [Errno 2] No such file or directory...
    """

    def __init__(self, warn: Callable[[str], Any], raise_errors: bool = False) -> None:
        self._warn, self._raise_errors = warn, raise_errors
        self._said: set[str] = set()

    def __call__(self, part: Callable[[], Any]) -> None:
        """Do it."""
        try:
            part()
        except Exception as error:
            if self._raise_errors:
                raise
            said = f"{type(error).__name__}: {error}" if isinstance(error, OSError) else traceback.format_exc()
            kind = f"{type(error).__name__} {getattr(error, 'errno', said)}"
            if kind not in self._said:
                self._said.add(kind)
                self._warn(f"part of an evaluation could not be shown or written. {said}")

    def start(self) -> None:
        """Say again in a new fit what was said in the last."""
        self._said.clear()
