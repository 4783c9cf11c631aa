# SPDX-License-Identifier: Apache-2.0
"""Notes of a monitor: messages in the terminal, kept for the report with their evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genmonitor._formatting import as_sentence

WHOLE_RUN: Mapping[str, float | None] = {"epoch": None, "step": None}


class Notes:
    """Notes of a run.

    Args:
        name: of the monitor, for messages.
        warn: warns the user, on rank zero only.
        inform: prints other messages, on rank zero only.

    Attributes:
        items: the notes so far, each with its epoch, step and text; epoch and step are None for the whole run.
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

    def add(self, text: str) -> None:
        """Warn, and record it for the report."""
        self.warn(text)
        self.record(as_sentence(text))

    def record(self, text: str) -> None:
        """Record a note for the report alone."""
        note = {**self._moment, "text": text}
        if note not in self.items:  # a second fit repeats those of its run
            self.items.append(note)

    def warn(self, text: str) -> None:
        """Warn in the terminal alone."""
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
        """Return the notes of evaluations: those of the whole run are made from scratch."""
        return {"notes": [dict(note) for note in self.items if note["epoch"] is not None]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.items = [dict(note) for note in state["notes"]]
