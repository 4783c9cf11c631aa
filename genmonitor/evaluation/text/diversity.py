# SPDX-License-Identifier: Apache-2.0
"""What an evaluation of the diversity says in words, and which of its values share a chart."""

from __future__ import annotations

from collections.abc import Sequence

from genmonitor.evaluation.prompts.changes import Change
from genmonitor.evaluation.results import Alert, History, Record, when
from genmonitor.evaluation.text.prompts import NAMED, named, others, quoted
from genmonitor.evaluation.verdicts import format_p
from genmonitor.functional.w1kp import PromptVariability

SCORES = (
    "vendi",
    "rke",
    "scendi",
    "scendi_prompt",
    "prompt_share",
    "conditional_vendi",
    "information_vendi",
    "w1kp",
    "precision",
    "recall",
    "density",
    "coverage",
)
"""Values that have a curve, where they are measured."""
OF_REAL = ("real_vendi", "real_rke")

NAMES = {
    "vendi": "modes (Vendi)",
    "rke": "modes (RKE)",
    "scendi": "the model's own (Scendi)",
    "scendi_prompt": "from the prompts (Scendi)",
    "prompt_share": "share of the prompts",
    "conditional_vendi": "modes of a prompt (Vendi)",
    "information_vendi": "times more by prompts (Vendi)",
    "w1kp": "likeness within a prompt (W1KP)",
    "precision": "precision",
    "recall": "recall",
    "density": "density",
    "coverage": "coverage",
}

ABOUT = {
    "vendi": "effective number of modes among the images; it grows with their number",
    "rke": "the same with rare modes counting less; it hardly grows with their number",
    "scendi": "the variety that the model adds by itself, at least 1",
    "scendi_prompt": "the variety of what the prompts explain, at least 1",
    "prompt_share": "share of the variety that the prompts explain, in [0, 1]",
    "conditional_vendi": "effective number of modes among the images of one prompt, at least 1",
    "information_vendi": "by what factor the prompts multiply that to give the modes (Vendi) of all images, at least 1",
    "w1kp": "how alike the images of one prompt are, in [0, 1]: higher is less varied",
    "precision": "share of generated images near real ones, in [0, 1]",
    "recall": "share of real images near generated ones, in [0, 1]",
    "density": "how densely real images lie around generated ones, around 1 at best",
    "coverage": "share of real images with a generated one near, in [0, 1]",
    "real_…": "what as many real images get, constant over the run",
    "sampling_seconds": "seconds spent drawing the samples of an evaluation",
    "metric_seconds": "seconds spent measuring them",
    "images_seen": "training images so far",
}

HIGHER_IS_BETTER = {"precision": True, "recall": True, "coverage": True}
DETAILS = ("real_…", "information_vendi", "images_seen")


def charts(n: int, prompted: bool, paired: bool, calibrated: bool) -> dict[str, list[str]]:
    """Return which values belong in one chart, by a title that says of how many samples they are.

    Args:
        n: samples.
        prompted: whether there are prompts.
        paired: whether Conditional-Vendi is measured.
        calibrated: whether W1KP is measured.
    """
    alike = {"Likeness of the images of one prompt (W1KP)": ["w1kp"]} if calibrated else {}
    modes = {f"Modes of {n} images (Vendi grows with n)": ["vendi", "real_vendi", "rke", "real_rke"]}
    given_prompts = ["conditional_vendi", "information_vendi"] if paired else []
    by_source = {
        f"Variety of {n} images by its source": ["scendi", "scendi_prompt", *given_prompts],
        "Share of the variety that prompts explain": ["prompt_share"],
    }
    return (
        alike
        | modes
        | (by_source if prompted else {})
        | {
            "Likeness to real images": ["precision", "recall", "density", "coverage"],
            "Seconds per evaluation": ["sampling_seconds", "metric_seconds"],
        }
    )


def message(record: Record, n: int, lost: Sequence[Change] = (), by_prompt: bool = True, kind: str = "images") -> str:
    """Return one line about an evaluation.

    Args:
        record: of the evaluation.
        n: samples.
        lost: the prompts that have lost their variety, the surest first.
        by_prompt: whether each is judged by itself, not all samples together.
        kind: what the samples are called.
    """
    real = f" (real {kind}: {record['real_vendi']:.3g})" if "real_vendi" in record else ""
    modes = f"{_without_variety(lost, by_prompt)}{record['vendi']:.3g} modes in {n} {kind}{real}"
    if "scendi" not in record:
        return f"{modes}{when(record)}"
    return (
        f"{modes}; the prompts explain {100 * record['prompt_share']:.0f} % of "
        f"the variety; the model's own: Scendi {record['scendi']:.3g}{when(record)}"
    )


def _without_variety(lost: Sequence[Change], by_prompt: bool) -> str:
    """Return how a message begins: with the prompts that have lost their variety, if any."""
    if not lost:
        return ""
    if len(lost) == 1:
        return f"{named(lost[0], by_prompt)} {'has lost its' if by_prompt else 'have lost their'} variety; "
    names = ", ".join(quoted(change.prompt) for change in lost[:NAMED])
    more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    return f"prompts {names}{more} have lost their variety; "


def lost_variety(prefix: str, lost: Sequence[Change], record: Record, by_prompt: bool) -> list[Alert]:
    """Return an alert about the prompts that lost their variety, none where none has.

    Args:
        prefix: of the evaluator.
        lost: the prompts, the surest first.
        record: of this evaluation.
        by_prompt: whether each is judged by itself, not all samples together.
    """
    if not lost:
        return []
    first = lost[0]
    found = f"{named(first, by_prompt)} lost {'its' if by_prompt else 'their'} variety"
    its, of_its = ("its", "its") if by_prompt else ("the", "their")
    text = (
        f"{found}: at epoch {record['epoch']:g} and the evaluation before, {its} samples have {_kept(first)} of the "
        f"spread that they had at epoch {first.epoch:g}, {of_its} best ({format_p(first.p)}){others(lost, _kept)}."
    )
    return [Alert(f"{prefix}: {found}", text)]


def _kept(change: Change) -> str:
    return f"{round(max(0.0, 100 * change.now / change.best), 1):.2g} %"


def table(
    history: History, n: int, alike: Sequence[PromptVariability], note: str = "", lost: Sequence[Change] = ()
) -> str:
    """Return the last evaluation value by value, the highest so far, what real images get, and the alike prompts.

    Args:
        history: one or more records.
        n: samples.
        alike: the least varied prompts, the least first; may be empty.
        note: a last line.
        lost: the prompts that have lost their variety, the surest first.
    """
    last, rows = history[-1], []
    for name, title in NAMES.items():
        if name in last:
            most = max((record for record in history if name in record), key=lambda record: record[name])
            real = f"{last[f'real_{name}']:.3f}" if f"real_{name}" in last else ""
            rows.append(f"{title:<32}{last[name]:>9.3f}{most[name]:>12.3f} at epoch {most['epoch']:<6g}{real:>12}")
    # repr, since what a prompt holds must not move a terminal's cursor
    least = [f"{row.w1kp:>6.2f} {row.level:<6} {str(row.prompt)[:60]!r}" for row in alike]
    least = ["The least varied prompts, by W1KP and level of likeness", *least] if least else []
    gone = [f"{_kept(change):>6} {quoted(change.prompt)}, best at epoch {change.epoch:g}" for change in lost]
    gone = ["Prompts that lost their variety, by what is left of their spread", *gone] if gone else []
    head = f"{'':<32}{'last':>9}{'highest':>12}{'':>16}{'real images':>13}"
    title = f"What the generator varies, epoch {last['epoch']:g}, {n} images"
    return "\n".join(["", title, head, *rows, *gone, *least, *filter(None, [note]), ""])
