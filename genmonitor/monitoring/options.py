# SPDX-License-Identifier: Apache-2.0
"""Options of all monitors, those that affect no value, and what a failed evaluation means for the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

import torch

from genmonitor._validation import check_one_of
from genmonitor.images.image_set import ImageKey

OnError = Literal["warn", "raise"]
Log = Literal["main", "all"]

MAX_FAILURES = 3


class EvaluationOptions(TypedDict, total=False):
    """Options that every monitor takes by keyword, in a Trainer or in a loop of your own.

    Args:
        image_key: Where the images are in a batch: None, the default, to look for them, else a key, an index or a
            callable.
        evaluate_on: "cpu" for metrics and encoders on the CPU, where training leaves no memory on its device; samples
            are moved there. None, the default, for the device that trains, or the CPU where that is MPS, which has no
            float64.
        on_alert: Function called on rank zero with the text of each alert.
        on_error: "warn", the default, skips an evaluation that fails, and switches the monitor off after 3 in a row;
            "raise" lets it stop the run. A wrong configuration always raises, before the first training step of a
            Trainer, at the first evaluation or in `fit` of a `LoopMonitor`.
        verbose: Print what was found at the start, a line per evaluation and, with a Trainer, at the end a table and
            where the report is; True by default. Warnings and alerts are given in any case.
        log: "main", the default, gives loggers the main values, 20 at most; "all" each. The page, history.csv and
            `trainer.callback_metrics` have each in any case.
    """

    image_key: ImageKey
    evaluate_on: str | torch.device | None
    on_alert: Callable[[str], Any] | None
    on_error: OnError
    verbose: bool
    log: Log


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a keyword argument that is not known, naming the nearest one.

    Raises:
        TypeError: If there is one.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1)
            advice = f"Did you mean {near[0]}=?" if near else f"It takes {', '.join(names)}."
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}. {advice}")


class FailurePolicy:
    """Counts failures in a row, and says when to stop trying.

    Args:
        on_error: "warn" skips an evaluation that fails, and switches the monitor off after 3 in a row; "raise" lets it
            stop the run.
    """

    def __init__(self, on_error: OnError = "warn") -> None:
        self.raises = check_one_of("on_error", on_error, ("warn", "raise")) == "raise"
        self.count = 0
        self.not_finite = False

    @property
    def switched_off(self) -> bool:
        """Whether so many evaluations failed in a row that no other is tried."""
        return self.count >= MAX_FAILURES

    def failed(self) -> bool:
        """Take note of a failure; return whether it is the one that switches the monitor off."""
        self.count += 1
        return self.count == MAX_FAILURES

    def found_not_finite(self) -> bool:
        """Take note of NaN or infinite samples; return whether the samples before had none.

        That is a finding about the generator, which may recover: no reason to stop looking.
        """
        first, self.not_finite = not self.not_finite, True
        return first

    def try_again(self) -> None:
        """Begin another fit, in which a monitor that was switched off tries again."""
        if self.switched_off:
            self.count = 0

    def reset(self) -> None:
        """Forget failures, after a success and in a new run."""
        self.count, self.not_finite = 0, False

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python only."""
        return {"failures": self.count, "not_finite": self.not_finite}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.count, self.not_finite = state["failures"], state["not_finite"]
