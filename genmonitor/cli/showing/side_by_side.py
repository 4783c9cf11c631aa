# SPDX-License-Identifier: Apache-2.0
"""What two models do differently, as tables and figures with the outputs of both beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from genmonitor.cli.reading.encoding import value_range
from genmonitor.cli.reading.outputs import Outputs, cut
from genmonitor.cli.reading.prompts import PromptRows
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.figures import (
    DRAWN_MODES,
    DisagreementEvaluation,
    DisagreementFigures,
    most_of,
)
from genmonitor.evaluation.prompts.modes import Disagreement, Mode, thumbnail
from genmonitor.plotting.disagreement import ModePrompts, PromptSides, mode_prompts
from genmonitor.plotting.style import Drawing

LISTED, NAMED = 20, 3
LEAST = 0.005
"""A prompt with a smaller share is not listed."""


def titles(sets: Sequence[Outputs]) -> list[str]:
    """Name two sets as briefly as tells them apart."""
    names = [x.title for x in sets]
    return names if names[0] != names[1] else [x.where for x in sets]


def mode_rows(found: Disagreement, sets: Sequence[Outputs], prompts: PromptRows | None) -> list[dict[str, Any]]:
    """Return the modes of either sign, each with its prompts and the outputs of both sides that show it."""
    names, rows = titles(sets), []
    for owner, modes in zip(names, (found.top, found.bottom), strict=True):
        for mode in modes:
            row: dict[str, Any] = {"eigenvalue": f"{mode.eigenvalue:+.4f}", "only in": owner}
            if prompts is not None:
                row["prompts"] = [cut(prompt, 40) for prompt, _ in most_of(mode.prompts)]
            for name, side, chosen in zip(names, sets, (mode.samples, mode.reference_samples), strict=True):
                row[name] = [side.shown(number) for number in chosen[:NAMED]]
            rows.append(row)
    return rows


def prompt_rows(found: Disagreement, sets: Sequence[Outputs], prompts: PromptRows) -> list[dict[str, Any]]:
    """Return the prompts that differ most, with the first output of either side."""
    first = len(sets[0])
    sides = [
        (name, side, of) for name, side, of in zip(titles(sets), sets, _firsts(prompts.values, first), strict=True)
    ]
    listed = [(prompt, share) for prompt, share in found.changed[:LISTED] if share >= LEAST]
    return [
        {"share": f"{100 * share:.0f} %", "prompt": cut(prompt, 60)}
        | {name: side.shown(of[prompt]) if prompt in of else "" for name, side, of in sides}
        for prompt, share in listed
    ]


def _firsts(prompts: Sequence[Any], first: int) -> list[dict[Any, int]]:
    """Map each prompt to the first row that has it, on either side."""
    sides = (prompts[:first], prompts[first:])
    return [{prompt: row for row, prompt in reversed(list(enumerate(side)))} for side in sides]


def figures_of(found: DisagreementEvaluation, sets: Sequence[Outputs], prompts: Prompts | None) -> dict[str, Drawing]:
    """Draw the images of both sides: of the modes, and of the prompts that differ most; nothing of what is no image."""
    images = [x.images for x in sets]
    if images[0] is None or images[1] is None:
        return {}
    shown, (name, against) = value_range(sets), titles(sets)
    if prompts is None:
        rows = _drawn_modes(found.found, (images[0], images[1]))
        return {"modes": partial(mode_prompts, rows, shown, against, name)} if rows else {}
    current = replace(found.current, shown=thumbnail(images[0][found.current.shown_indices.cpu()]))
    of_others = found.reference.shown_indices.cpu() - len(images[0])
    reference = replace(found.reference, shown=thumbnail(images[1][of_others]))
    changed = [(prompt, share) for prompt, share in found.found.changed if share >= LEAST]
    figures = DisagreementFigures(
        replace(found.found, changed=changed), current, reference, prompts, shown, against, name
    )
    return {"modes": figures.modes()} | ({"prompts": figures.changed()} if changed else {})


def _drawn_modes(found: Disagreement, images: tuple[Tensor, Tensor]) -> list[ModePrompts]:
    """Return the largest modes of either sign with the images of both sides that show them."""

    def sides(mode: Mode) -> PromptSides:
        chosen = (mode.samples, mode.reference_samples)
        return PromptSides(
            "", mode.eigenvalue, *(thumbnail(x[list(rows)]) for x, rows in zip(images, chosen, strict=True))
        )

    signs = {"top": found.top[:DRAWN_MODES], "bottom": found.bottom[:DRAWN_MODES]}
    return [
        ModePrompts(f"{sign} {rank}", mode.eigenvalue, [sides(mode)])
        for sign, modes in signs.items()
        for rank, mode in enumerate(modes, start=1)
    ]
