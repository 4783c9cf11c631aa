# SPDX-License-Identifier: Apache-2.0
"""What a check of the disagreement says in words, and which of its values share a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genmonitor.callbacks.disagreement_modes import Disagreement, Ranked

AGAINST = {"data": "real images", "start": "the start of training", "previous": "the previous check"}
SAID, LISTED = 3, 10
"""Prompts that a line names, and the table."""
LEAST = 0.005
"""A smaller share is not named."""

ABOUT = {
    "total": "how much the model has that the reference lacks, over all prompts; it grows with the number of modes",
    "top_…": "the largest modes of outputs and prompts that the model has and the reference lacks",
    "bottom_…": "the largest that the reference has and the model lacks, below zero",
    "sampling_seconds": "what drawing the samples of a check took",
    "metric_seconds": "what measuring them took",
    "images_seen": "training images so far",
}


def names(k: int) -> dict[str, list[str]]:
    """Name the values of the modes of either sign."""
    return {sign: [f"{sign}_{rank}" for rank in range(1, k + 1)] for sign in ("top", "bottom")}


def values(found: Disagreement, k: int) -> dict[str, float]:
    """Return what is logged, 0 where there are fewer than k modes of a sign."""
    out = {"total": found.total}
    for sign, modes in (("top", found.top), ("bottom", found.bottom)):
        eigenvalues = [mode.eigenvalue for mode in modes] + [0.0] * (k - len(modes))
        out |= dict(zip(names(k)[sign], eigenvalues, strict=True))
    return out


def charts(k: int, reference: str) -> dict[str, list[str]]:
    """Return which values belong in one chart, by its title."""
    against = AGAINST[reference]
    return {
        f"Disagreement with {against}": ["total"],
        f"Modes of it: above zero only the model, below only {against}": [*names(k)["top"], *names(k)["bottom"]],
        "Seconds per check": ["sampling_seconds", "metric_seconds"],
    }


def line(check: Mapping[str, float], changed: Ranked, reference: str) -> str:
    """Say one check in a line."""
    most = [f"{_quoted(prompt)} ({100 * share:.0f} %)" for prompt, share in changed[:SAID] if share >= LEAST]
    where = f"; most of it at {', '.join(most)}" if most else ""
    return f"epoch {check['epoch']:g}: disagreement with {AGAINST[reference]}: total {check['total']:.3g}{where}"


def table(history: Sequence[Mapping[str, float]], changed: Ranked, k: int, reference: str) -> str:
    """Say the last check value by value, when each was furthest from zero, and the prompts that differ most."""
    last, rows = history[-1], []
    for name in ("total", *names(k)["top"], *names(k)["bottom"]):
        furthest = max(history, key=lambda check: abs(check[name]))
        rows.append(f"{name:<12}{last[name]:>10.4f}{furthest[name]:>14.4f} at epoch {furthest['epoch']:g}")
    prompts = [f"{100 * share:>4.0f} %  {_quoted(prompt)}" for prompt, share in changed[:LISTED] if share >= LEAST]
    title = f"Where the model differs from {AGAINST[reference]}, epoch {last['epoch']:g}"
    head = f"{'':<12}{'last':>10}{'furthest':>14}"
    return "\n".join(["", title, head, *rows, *(["share  prompt", *prompts] if prompts else []), ""])


def _quoted(prompt: object) -> str:
    # repr, since what a prompt holds must not move a terminal's cursor
    text = str(prompt)
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
