# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints there are to evaluate, also while a training goes on to write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from genmonitor.callbacks.checkpoints.files import Checkpoint, find_files, in_order, look_at
from genmonitor.callbacks.checkpoints.state import SweepState

POLL_SECONDS = 1.0
STILL_WRITTEN = 10.0
"""Seconds after its last change for which a file that cannot be read may still be being written."""


class CheckpointFinder:
    """Finds the checkpoints that are new.

    Args:
        places: files, and folders to look for files in and below.
        state: says what was evaluated already.
        skip: takes a file and why it cannot be evaluated.
    """

    def __init__(self, places: Sequence[Path], state: SweepState, skip: Callable[[Path, str], None]) -> None:
        self._places, self._state, self._skip = places, state, skip
        self._seen: dict[Path, tuple[int, int]] = {}

    def new(self, patient: bool = False) -> list[Checkpoint]:
        """Return the checkpoints that were not there, or others, at the last call, in the order of the training.

        Args:
            patient: whether to leave a file that cannot be read for a later call where it may be being written.
        """
        found = []
        for path in find_files(self._places):
            try:
                stat = path.stat()
                version = stat.st_mtime_ns, stat.st_size
                if self._seen.get(path) == version:
                    continue
                found.append(look_at(path))
            except (OSError, ValueError) as error:
                if patient and (not path.exists() or time.time() - stat.st_mtime < STILL_WRITTEN):
                    continue
                self._skip(path, str(error))
            self._seen[path] = version
        return [checkpoint for checkpoint in in_order(found) if self._is_next(checkpoint)]

    def wait(self, stopped: Callable[[], bool], idle: float | None) -> list[Checkpoint]:
        """Return new checkpoints as soon as there are some; none where it stopped, or there was none for so long.

        Args:
            stopped: says whether to wait no longer.
            idle: minutes; None for ever.
        """
        start = time.monotonic()
        while not stopped():
            if found := self.new(patient=True):
                return found
            if idle is not None and time.monotonic() - start >= 60 * idle:
                return []
            time.sleep(POLL_SECONDS)
        return []

    def _is_next(self, checkpoint: Checkpoint) -> bool:
        late = checkpoint.moment < self._state.last and checkpoint.moment not in self._state.moments
        if late:
            self._skip(checkpoint.path, "it is from before the last one that was evaluated, or was skipped then")
        return checkpoint.moment > self._state.last
