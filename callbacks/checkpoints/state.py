# SPDX-License-Identifier: Apache-2.0
"""How far a sweep is, in a file of its folder, so that the next one goes on from there."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import torch

from genmonitor._io import atomic_write
from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.evaluation.evaluator import SettingsChangedError, check_same_settings, reading_state
from genmonitor.report.run import read_run

FILE = "sweep.pt"


class SweepState:
    """The moments that were evaluated, and the monitors as they were after the last.

    Args:
        folder: where monitors write.
        monitors: whose state it is.

    Attributes:
        moments: see `Checkpoint.moment`.

    Raises:
        ValueError: if the folder has the evaluations of a training, or of a sweep with other settings.
    """

    def __init__(self, folder: Path, monitors: Sequence[GenerativeMonitor]) -> None:
        self._path, self._monitors = folder / FILE, monitors
        self.moments: list[int] = []
        if self._path.is_file():
            self._load()
        elif taken := {run.prefix for run in read_run(folder).monitors} & {monitor.prefix for monitor in monitors}:
            raise ValueError(
                f"Expected a folder without evaluations, but {folder} has those that a training's monitor wrote under "
                f"{', '.join(sorted(taken))}. Give --out FOLDER, another one."
            )

    @property
    def last(self) -> int:
        """The last moment that was evaluated, -1 before the first."""
        return max(self.moments, default=-1)

    def save(self, moment: int) -> None:
        """Take note that a moment is over."""
        self.moments.append(moment)
        monitors = {monitor.state_key: monitor.state_dict() for monitor in self._monitors}
        content = io.BytesIO()
        torch.save({"moments": self.moments, "monitors": monitors}, content)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, content.getvalue())

    def _load(self) -> None:
        remedy = f"Give --out FOLDER, another one, or remove {self._path} and what is beside it to begin anew."
        try:
            saved = torch.load(self._path, map_location="cpu", weights_only=True)
            states, moments = saved["monitors"], list(saved["moments"])
        except Exception as error:
            raise ValueError(f"Could not read how far the sweep is: {error}. {remedy}") from error
        mine = {monitor.state_key: monitor for monitor in self._monitors}
        if mine.keys() != states.keys():
            raise ValueError(
                f"Expected the monitors of the sweep so far, {', '.join(states)}, but got others. {remedy}"
            )
        for name, monitor in mine.items():
            try:
                with reading_state(f"{name} in {self._path}"):
                    check_same_settings(monitor.sampler.settings(), states[name]["sampler"])
                    check_same_settings(monitor.evaluator.comparable_settings(), states[name]["evaluator"]["settings"])
            except SettingsChangedError as error:
                raise ValueError(f"The sweep so far had another {', '.join(error.names)}. {remedy}") from error
            monitor.load_state_dict(states[name])
        self.moments = moments
