# SPDX-License-Identifier: Apache-2.0
"""Progress of a sweep, in a file of its folder, and its new checkpoints."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from genmonitor._io import atomic_write
from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.integration.checkpoints import Checkpoint, find_files, in_order, look_at
from genmonitor.evaluation.evaluator import SettingsChangedError, check_same_settings, reading_state
from genmonitor.report.run import read_run


class SweepState:
    """Evaluated moments, and the state of the monitors after the last one.

    Args:
        folder: Folder that monitors write to.
        monitors: Monitors of the sweep.

    Attributes:
        moments: Evaluated moments, see `Checkpoint.moment`.

    Raises:
        ValueError: If the folder holds the evaluations of a training, or of a sweep with other settings.
    """

    def __init__(self, folder: Path, monitors: Sequence[GenerativeMonitor]) -> None:
        self._path, self._monitors = folder / "sweep.pt", monitors
        self.moments: list[int] = []
        if self._path.is_file():
            self._load()
            return
        taken = {run.prefix for run in read_run(folder).monitors} & {monitor.prefix for monitor in monitors}
        if taken:
            raise ValueError(
                f"Expected a folder without evaluations, but {folder} has those that a training's monitor wrote under "
                f"{', '.join(sorted(taken))}. Give another folder with --out."
            )

    @property
    def last(self) -> int:
        """Last moment that was evaluated, -1 before the first."""
        return max(self.moments, default=-1)

    def save(self, moment: int, writes: bool = True) -> None:
        """Record that a moment is evaluated, also in the file if this process writes it."""
        self.moments.append(moment)
        if not writes:
            return
        monitors = {monitor.state_key: monitor.state_dict() for monitor in self._monitors}
        content = io.BytesIO()
        torch.save({"moments": self.moments, "monitors": monitors}, content)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, content.getvalue())

    def _load(self) -> None:
        remedy = f"Give another folder with --out, or remove {self._path} and the files next to it to start over."
        try:
            saved = torch.load(self._path, map_location="cpu", weights_only=True)
            states, moments = saved["monitors"], list(saved["moments"])
        except Exception as error:
            raise ValueError(f"Could not read the sweep's progress: {error}. {remedy}") from error
        mine = {monitor.state_key: monitor for monitor in self._monitors}
        if mine.keys() != states.keys():
            raise ValueError(
                f"Expected the same monitors as in the sweep so far, {', '.join(states)}, but got others. {remedy}"
            )
        for name, monitor in mine.items():
            try:
                with reading_state(f"{name} in {self._path}"):
                    check_same_settings(monitor.sampler.settings(), states[name]["sampler"])
                    check_same_settings(monitor.evaluator.comparable_settings(), states[name]["evaluator"]["settings"])
            except SettingsChangedError as error:
                raise ValueError(f"The sweep so far used a different {', '.join(error.names)}. {remedy}") from error
            monitor.load_state_dict(states[name])
        self.moments = moments


def new_checkpoints(places: Sequence[Path], state: SweepState, skip: Callable[[Path, str], None]) -> list[Checkpoint]:
    """Return the checkpoints that a sweep has not evaluated, in the order of the training.

    Args:
        places: Files, and folders to search with their subfolders.
        state: State with the moments that were evaluated.
        skip: Function of a file and the reason why it cannot be evaluated.
    """
    found = []
    for path in find_files(places):
        try:
            found.append(look_at(path))
        except (OSError, ValueError) as error:
            skip(path, str(error))
    new = [checkpoint for checkpoint in in_order(found) if checkpoint.moment not in state.moments]
    for checkpoint in new:
        if checkpoint.moment < state.last:
            skip(checkpoint.path, "it is from before the last one that was evaluated, or was skipped then")
    return [checkpoint for checkpoint in new if checkpoint.moment > state.last]
