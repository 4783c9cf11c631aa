# SPDX-License-Identifier: Apache-2.0
"""Where a monitor's values, figures, manifest and report go. What fails here costs the run nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from genmonitor.callbacks import descriptions, loggers
from genmonitor.callbacks.framework import tell, warn
from genmonitor.callbacks.manifest import circumstances, write_about, write_json, write_manifest
from genmonitor.callbacks.sampled import Sampled
from genmonitor.report import write_report

WHOLE_RUN: Mapping[str, float | None] = {"epoch": None, "step": None}


class Shown(Sampled):
    """Part of `GenerativeMonitor`: shows what was measured."""

    prefix = "monitor"
    figures_to_keep: tuple[str, ...] = ("samples",)
    about: Mapping[str, str] = {}
    """What each value says, by its name; a name that ends in … stands for all that begin so."""
    every_n_train_steps: int | None
    image_key: Any
    real_images: Any
    on_error: str
    history: list[dict[str, float]]
    _folder: Path
    _page: Path | None = None
    _notes: list[dict[str, Any]]
    """What the report says beside the curves: of a check, with its epoch and step, or of the whole run."""
    _now: Mapping[str, float | None] = WHOLE_RUN

    # what a subclass says

    def charts(self) -> Mapping[str, Sequence[str]]:
        """Return which values share a chart, by its title. Rank zero calls it, once prepared."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what is needed to measure the same again, for the manifest."""
        return {}

    def only_in_code(self) -> list[str]:
        """Name the arguments given that no manifest can hold: `genmonitor replay` needs them from the user's code."""
        given = {"sample_fn": self.sample_fn, "real_images": self.real_images}
        given |= {"image_key": self.image_key if callable(self.image_key) else None}
        return [name for name, value in given.items() if value is not None]

    # where it shows

    def note(self, text: str) -> None:
        """Warn, and say it in the report too, at the check at which it is said."""
        warn(text)
        self.keep_note(text)

    def keep_note(self, text: str) -> None:
        """Say it in the report, at the check at which it is said."""
        rest = text.removeprefix(f"{type(self).__name__}: ")  # which the heading over it says
        note = {**self._now, "text": text if rest == text else f"{rest[0].upper()}{rest[1:]}"}
        if note not in self._notes:  # a second fit says the same of its run
            self._notes.append(note)

    def start_anew(self) -> None:
        """Forget the curves and what was said of their checks."""
        self.history = []
        self._notes = [note for note in self._notes if note["epoch"] is None]

    def _report(self) -> None:
        notes = self._folder / f"{self.prefix}_notes.json"
        if self._notes:
            write_json(notes, self._notes)
        else:
            notes.unlink(missing_ok=True)
        if self.history:
            self._page = write_report(self._folder)

    def _log(self, trainer: Any, pl_module: Any, values: dict[str, float], step: int) -> None:
        named = {f"{self.prefix}/{name}": float(value) for name, value in values.items()}
        by_steps = self.every_n_train_steps is not None
        # not to the loggers: there one that refuses a value would end the run, and values that do not fall on a
        # multiple of log_every_n_steps would be lost
        pl_module.log_dict(named, on_step=by_steps, on_epoch=not by_steps, logger=False, batch_size=1, sync_dist=True)
        if trainer.is_global_zero:
            loggers.log_scalars(trainer.loggers, named | {"epoch": trainer.current_epoch}, step)

    def _show(self, part: Callable[[], Any]) -> None:
        """Put figures, the manifest or words where a person looks; what fails here is told and nothing more."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part()
        except Exception as error:
            if self.on_error == "raise":
                raise
            warn(f"{type(self).__name__}: could not show this check.\n{trace(error)}")

    def _draw(self, trainer: Any, draw_figures: Callable[[], dict[str, Figure]]) -> None:
        step = int(self.history[-1]["step"]) if self.history else 0
        for name, figure in draw_figures().items():
            epoch = trainer.current_epoch if name in self.figures_to_keep else None
            loggers.log_figures(trainer.loggers, {f"{self.prefix}/{name}": figure}, step, self._folder, epoch)

    def _lay_out(self, trainer: Any) -> None:
        charts = self.charts()
        keys = {title: [f"{self.prefix}/{name}" for name in names] for title, names in charts.items()}
        descriptions.log_layout(trainer.loggers, self.prefix, keys)
        descriptions.log_about(trainer.loggers, self.prefix, self.about)
        write_about(self._folder / f"{self.prefix}_about.json", charts, self.about)
        for name in loggers.without_figures(trainer.loggers):
            tell(f"{name} takes no figures: {type(self).__name__} leaves them, and report.html, in {self._folder}.")

    def _write(self, trainer: Any, pl_module: Any, used: str) -> None:
        path = self._folder / f"{self.prefix}_check_{len(self.history):05d}.json"
        folder = {"folder": str(self._folder.resolve())}
        write_manifest(path, self._manifest(used) | circumstances(trainer, pl_module) | folder)

    def _manifest(self, used: str) -> dict[str, Any]:
        return {
            "monitor": type(self).__name__,
            "check": self.history[-1],
            "weights": used,
            "seed": self.seed,
            "n_samples": self.n_samples,
            "sample_batch_size": self.sample_batch_size,
            "drawn": self._ranges,
            "prompts": None if self.prompts is None else self.prompts.values,
            "image_key": None if callable(self.image_key) else self.image_key,
            "only_in_code": self.only_in_code(),
            **self.facts(),
        }


def trace(error: Exception) -> str:
    """Return an error with where it comes from."""
    return "".join(traceback.format_exception(error))
