# SPDX-License-Identifier: Apache-2.0
"""What a monitor says in words: in the terminal, and in the report at the evaluation at which it is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genmonitor._formatting import as_sentence

WHOLE_RUN: Mapping[str, float | None] = {"epoch": None, "step": None}


class Notes:
    """The notes of a run, and the ways to say something.

    Args:
        name: of the monitor, for messages.
        warn: says what the user should know, on rank zero only.
        inform: says what is nothing to be warned of, on rank zero only.

    Attributes:
        items: the notes so far, each with its epoch, step and text; epoch and step are None for the whole run.
    """

    def __init__(self, name: str, warn: Callable[[str], Any], inform: Callable[[str], Any]) -> None:
        self.items: list[dict[str, Any]] = []
        self._name, self._warn, self._inform = name, warn, inform
        self._moment: Mapping[str, float | None] = WHOLE_RUN

    @property
    def step(self) -> int:
        """Return the step of what is said now, 0 for the whole run."""
        return int(self._moment["step"] or 0)

    def set_moment(self, epoch: float, step: int) -> None:
        """Say of which evaluation notes are from now on."""
        self._moment = {"epoch": epoch, "step": step}

    def set_whole_run(self) -> None:
        """Say that notes are of the whole run from now on."""
        self._moment = WHOLE_RUN

    def add(self, text: str) -> None:
        """Warn, and say it in the report too."""
        self.warn(text)
        self.record(as_sentence(text))

    def record(self, text: str) -> None:
        """Say it in the report alone."""
        note = {**self._moment, "text": text}
        if note not in self.items:  # a second fit says the same of its run
            self.items.append(note)

    def warn(self, text: str) -> None:
        """Say what the user should know, in the terminal alone."""
        self._warn(f"{self._name}: {text if text.endswith('.') else f'{text}.'}")

    def inform(self, text: str) -> None:
        """Say it in the terminal, where it is nothing to be warned of."""
        self._inform(f"{self._name}: {text}")

    def reset(self) -> None:
        """Begin a new run."""
        self.items = []

    def forget_evaluations(self) -> None:
        """Drop the notes that are of an evaluation."""
        self.items = [note for note in self.items if note["epoch"] is None]

    def state_dict(self) -> dict[str, Any]:
        """Return the notes that are of an evaluation: those of the whole run are made anew."""
        return {"notes": [dict(note) for note in self.items if note["epoch"] is not None]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.items = [dict(note) for note in state["notes"]]
