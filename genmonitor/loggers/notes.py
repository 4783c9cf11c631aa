# SPDX-License-Identifier: Apache-2.0
"""Messages of a monitor: notes for terminal and report, and errors that must not stop a run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from genmonitor._formatting import as_sentence

WHOLE_RUN: Mapping[str, float | None] = {"epoch": None, "step": None}


class Notes:
    """Notes of a run.

    Args:
        name: Name of the monitor, for messages.
        warn: Function that warns the user, on rank zero only.
        inform: Function that prints other messages, on rank zero only.

    Attributes:
        items: Notes so far, each with epoch, step, text and, for an alert, its subject. Epoch and step are None for the
            whole run.
    """

    def __init__(self, name: str, warn: Callable[[str], Any], inform: Callable[[str], Any]) -> None:
        self.items: list[dict[str, Any]] = []
        self._name, self._warn, self._inform = name, warn, inform
        self._moment: Mapping[str, float | None] = WHOLE_RUN

    @property
    def step(self) -> int:
        """Step of new notes, 0 for the whole run."""
        return int(self._moment["step"] or 0)

    def set_moment(self, epoch: float, step: int) -> None:
        """Attach further notes to an evaluation."""
        self._moment = {"epoch": epoch, "step": step}

    def set_whole_run(self) -> None:
        """Attach further notes to the whole run."""
        self._moment = WHOLE_RUN

    def add(self, text: str, alert: str | None = None, since: float | None = None) -> None:
        """Warn, and record the note for the report; `alert` is the subject of an alert, `since` its first epoch."""
        self.warn(text)
        self.record(as_sentence(text), alert, since)

    def add_once(self, text: str) -> None:
        """Warn and record the note, unless this was done before in this run."""
        if all(note["text"] != as_sentence(text) for note in self.items):
            self.add(text)

    def record(self, text: str, alert: str | None = None, since: float | None = None) -> None:
        """Record a note only for the report."""
        note = {**self._moment, "text": text, "alert": alert, "since": since}
        if note not in self.items:  # a second fit repeats those of its run
            self.items.append(note)

    def warn(self, text: str) -> None:
        """Warn only in the terminal."""
        self._warn(f"{self._name}: {text if text.endswith('.') else f'{text}.'}")

    def inform(self, text: str) -> None:
        """Print a message that is no warning."""
        self._inform(f"{self._name}: {text}")

    def reset(self) -> None:
        """Begin a new run."""
        self.items = []

    def forget_evaluations(self) -> None:
        """Drop the notes of evaluations."""
        self.items = [note for note in self.items if note["epoch"] is None]

    def state_dict(self) -> dict[str, Any]:
        """Return the notes of evaluations, since those of the whole run are made anew."""
        return {"notes": [dict(note) for note in self.items if note["epoch"] is not None]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.items = [dict(note) for note in state["notes"]]


class Attempt:
    """Runs functions without letting their errors propagate: warns of each kind once.

    Args:
        warn: Function called with the text of a warning.
        raise_errors: True to let errors propagate, for tests.

    Example:
        >>> attempt = Attempt(print)
        >>> for _ in range(2):
        ...     attempt(lambda: open("no/such/file"))
        part of an evaluation could not be shown or written. FileNotFoundError: [Errno 2] No such file or directory...
    """

    def __init__(self, warn: Callable[[str], Any], raise_errors: bool = False) -> None:
        self.warn, self._raise_errors = warn, raise_errors
        self._seen: set[str] = set()

    def __call__(self, part: Callable[[], Any]) -> None:
        """Run a function."""
        try:
            part()
        except Exception as error:
            if self._raise_errors:
                raise
            text = f"{type(error).__name__}: {error}" if isinstance(error, OSError) else traceback.format_exc()
            kind = f"{type(error).__name__} {getattr(error, 'errno', text)}"
            if kind not in self._seen:
                self._seen.add(kind)
                self.warn(f"part of an evaluation could not be shown or written. {text}")

    def start(self) -> None:
        """Begin a new fit, in which each kind of error gives a warning again."""
        self._seen.clear()
