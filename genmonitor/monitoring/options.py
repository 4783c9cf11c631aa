# SPDX-License-Identifier: Apache-2.0
"""Options of all monitors, those that affect no value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypedDict

import torch

from genmonitor.evaluation.data.images import ImageKey
from genmonitor.monitoring.failures import OnError


class EvaluationOptions(TypedDict, total=False):
    """Options that every monitor takes by keyword, in a Trainer or in a loop of your own.

    Args:
        image_key: where the images are in a batch: None, the default, to look for them, else a key, an index or a
            callable.
        evaluate_on: the device of metrics and encoders, such as "cpu" where training leaves no memory, or "cuda:1";
            samples are moved there. None, the default, for the device that trains, or the CPU where that is MPS, which
            has no float64.
        on_alert: called on rank zero with the text of each alert.
        on_error: "warn", the default, skips an evaluation that fails, and switches the monitor off after 3 in a row;
            "raise" lets it stop the run. A wrong configuration always raises, before the first training step of a
            Trainer, at the first evaluation or in `fit` of a `LoopMonitor`.
        verbose: print what was found at the start, a line per evaluation and, with a Trainer, at the end a table and
            where the report is; True by default. Warnings and alerts are given in any case.
    """

    image_key: ImageKey
    evaluate_on: str | torch.device | None
    on_alert: Callable[[str], Any] | None
    on_error: OnError
    verbose: bool


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a keyword argument that is not known, naming the nearest one.

    Raises:
        TypeError: if there is one.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1)
            advice = f"Did you mean {near[0]}=?" if near else f"It takes {', '.join(names)}."
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}. {advice}")
