# SPDX-License-Identifier: Apache-2.0
"""What an evaluation of the disagreement says in words, and which of its values share a chart."""

from __future__ import annotations

from collections.abc import Sequence

from genmonitor.evaluation.prompts.changes import Change
from genmonitor.evaluation.prompts.modes import Disagreement, Ranked
from genmonitor.evaluation.results import Alert, History, Record, when
from genmonitor.evaluation.text.prompts import named, others, quoted
from genmonitor.evaluation.verdicts import format_p

AGAINST = {"data": "real images", "start": "the start of training", "previous": "the previous evaluation"}
SAID, LISTED = 3, 10
"""Prompts that a line names, and the table."""
LEAST = 0.005
"""A smaller part is not named."""

_OWNERS = {"top": "the model", "bottom": "the reference"}
_ORDINALS = {"2": "nd", "3": "rd"}

ABOUT = {
    "total": "how much the model has that the reference lacks, over all prompts; it grows with the number of modes",
    "total_error": "the total's standard error, where it is an estimate",
    "top_…": "the largest modes of outputs and prompts that the model has and the reference lacks",
    "bottom_…": "the largest that the reference has and the model lacks, below zero",
    "sampling_seconds": "seconds spent drawing the samples of an evaluation",
    "metric_seconds": "seconds spent measuring them",
    "images_seen": "training images so far",
}

DETAILS = ("total_error", "images_seen")


def mode_names(k: int) -> dict[str, list[str]]:
    """Name the values of the modes of either sign."""
    return {sign: [f"{sign}_{rank}" for rank in range(1, k + 1)] for sign in ("top", "bottom")}


def spoken(name: str) -> str:
    """Return the name of a value as people read it.

    Example:
        >>> spoken("top_1"), spoken("bottom_2"), spoken("total_error")
        ('largest mode of the model alone', '2nd largest mode of the reference alone', 'total error')
    """
    sign, _, rank = name.partition("_")
    if sign not in _OWNERS or not rank.isdigit():
        return name.replace("_", " ")
    nth = "" if rank == "1" else f"{rank}{_ORDINALS.get(rank, 'th')} "
    return f"{nth}largest mode of {_OWNERS[sign]} alone"


def values(found: Disagreement, k: int) -> dict[str, float]:
    """Return what is logged, 0 where there are fewer than k modes of a sign."""
    out = {"total": found.total} | ({"total_error": found.total_error} if found.total_error else {})
    for sign, modes in (("top", found.top), ("bottom", found.bottom)):
        eigenvalues = [mode.eigenvalue for mode in modes] + [0.0] * (k - len(modes))
        out |= dict(zip(mode_names(k)[sign], eigenvalues, strict=True))
    return out


def charts(k: int, reference: str) -> dict[str, list[str]]:
    """Return which values belong in one chart, by its title."""
    against, by_sign = AGAINST[reference], mode_names(k)
    return {
        f"Disagreement with {against}": ["total"],
        f"Modes of it: above zero only the model, below only {against}": [*by_sign["top"], *by_sign["bottom"]],
        "Seconds per evaluation": ["sampling_seconds", "metric_seconds"],
    }


def message(record: Record, changed: Ranked, against: str, of: str = "") -> str:
    """Return one line about an evaluation.

    Args:
        record: its values.
        changed: the prompts that differ most.
        against: what the reference is called.
        of: what the model is called, where that says more than that it is the model.
    """
    most = [f"{quoted(prompt)} ({100 * part:.0f} %)" for prompt, part in changed[:SAID] if part >= LEAST]
    where = f", most of it at {', '.join(most)}" if most else ""
    total = f"{max(0.0, record['total']):.3g}"
    error = f" ± {record['total_error']:.1g}" if record.get("total_error") else ""
    return f"Disagreement {f'of {of} ' if of else ''}with {against}: total {total}{error}{where}{when(record)}"


def moved_away(prefix: str, moved: Sequence[Change], record: Record, by_prompt: bool) -> list[Alert]:
    """Return an alert about the prompts that moved away from the data, none where none has.

    Args:
        prefix: of the evaluator.
        moved: the prompts, the surest first.
        record: of this evaluation.
        by_prompt: whether each is judged by itself, not all samples together.
    """
    if not moved:
        return []
    first = moved[0]
    found = f"{named(first, by_prompt)} moved away from the data"
    text = (
        f"{found}: at epoch {record['epoch']:g} and the evaluation before, {'its' if by_prompt else 'the'} samples are "
        f"farther from real images than at epoch {first.epoch:g}, {'its' if by_prompt else 'their'} best (squared MMD "
        f"{_mmd(first)}, then {max(0.0, first.best):.2g}; {format_p(first.p)}){others(moved, _mmd)}."
    )
    return [Alert(f"{prefix}: {found}", text)]


def _mmd(change: Change) -> str:
    return f"{change.now:.2g}"


def table(history: History, changed: Ranked, k: int, reference: str, note: str = "") -> str:
    """Return the last evaluation value by value, when each was furthest from zero, and the prompts that differ most."""
    last, rows = history[-1], []
    for name in ("total", *mode_names(k)["top"], *mode_names(k)["bottom"]):
        furthest = max(history, key=lambda record: abs(record[name]))
        rows.append(f"{name:<12}{last[name]:>10.4f}{furthest[name]:>14.4f} at epoch {furthest['epoch']:g}")
    prompts = [f"{100 * part:>4.0f} %  {quoted(prompt)}" for prompt, part in changed[:LISTED] if part >= LEAST]
    listed = ["part  prompt", *prompts] if prompts else []
    title = f"Where the model differs from {AGAINST[reference]}, epoch {last['epoch']:g}"
    head = f"{'':<12}{'last':>10}{'furthest':>14}"
    return "\n".join(["", title, head, *rows, *listed, *filter(None, [note]), ""])
