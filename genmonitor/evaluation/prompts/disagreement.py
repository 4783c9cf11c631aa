# SPDX-License-Identifier: Apache-2.0
"""Values, findings, figures and presenter of an evaluation of the disagreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from types import MappingProxyType

import torch
from torch import Tensor

from genmonitor._formatting import format_p
from genmonitor.evaluation.findings import ALERT_FACTOR, Area, Finding, differs
from genmonitor.evaluation.prompts.estimates import Change, Estimate, PromptGroups, PromptTracker, quoted
from genmonitor.evaluation.prompts.modes import Disagreement, Ranked, SampleSet
from genmonitor.evaluation.results import Evaluation, History, Presenter, Table
from genmonitor.evaluation.values import ValueSpec
from genmonitor.functional.mmd_influence import RealSide
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.plotting.disagreement import ModePrompts, PromptSides, changed_prompts, mode_prompts, strip
from genmonitor.plotting.style import Drawing

AGAINST = {"data": "real images", "start": "the start of training", "previous": "the previous evaluation"}
NAMED = 3
"""Prompts that a finding names."""
LEAST = 0.005
"""A prompt with a smaller part is neither named nor listed."""
DRAWN_MODES, PROMPTS_OF_MODE, SAMPLES_OF_MODE = 3, 3, 2
"""Modes of either sign in the figure, prompts of each, samples of each prompt and side."""
LEAST_SCORE = 0.1
"""A prompt is drawn for a mode if its mean score is at least this part of the highest."""
SAMPLES = 3
"""Samples of each prompt and side kept for pictures."""
LISTED = 10
"""Prompts in the table."""
_SIGNS = {"top": ("the model", "has and the reference lacks"), "bottom": ("the reference", "has and the model lacks")}
_ORDINALS = {1: "", 2: "2nd ", 3: "3rd "}


@dataclass(frozen=True, eq=False, repr=False)
class DisagreementEvaluation(Evaluation):
    """An evaluation of the disagreement.

    Attributes:
        found: the modes and their prompts.
        current: the model's samples.
        reference: those that they were compared with.
        distances: how far the samples of each prompt are from real images; {} against another reference.
    """

    found: Disagreement
    current: SampleSet
    reference: SampleSet
    distances: Mapping[str, Estimate] = field(default_factory=dict)


class DisagreementValues:
    """Keys of the values of a disagreement, and their declarations.

    Args:
        k: modes of either sign.
        reference: "data", "start" or "previous".

    Attributes:
        against: what the reference is called.
        modes: keys of the modes by sign, "top" and "bottom", the largest first.
        specs: all declarations.
    """

    def __init__(self, k: int, reference: str) -> None:
        self.against = against = AGAINST[reference]
        modes = {sign: [_mode(sign, rank, against) for rank in range(1, k + 1)] for sign in _SIGNS}
        self.modes = {sign: [spec.key for spec in specs] for sign, specs in modes.items()}
        self.specs = (
            ValueSpec(
                "total",
                "how much the model has that the reference lacks, over all prompts; it grows with the number of modes",
                chart=f"Disagreement with {against}",
                # with another model it may be either
                better="low" if reference == "data" else None,
            ),
            ValueSpec(
                "p",
                "p-value of the permutation test: the chance that two sets of one model would differ as much; 0.05 or "
                "less: they differ",
                "p-value",
                "p",
                chart=f"p-value: does it differ from {against}?",
                detail=True,
            ),
            ValueSpec(
                "baseline_total",
                "total that the same samples get with their sides drawn at random, as two sets of one model do",
                "total by chance",
                detail=True,
                baseline_of="total",
            ),
            *modes["top"],
            *modes["bottom"],
        )

    def measured(self, found: Disagreement) -> dict[str, float]:
        """Return total and modes by key, 0 where there are fewer modes of a sign."""
        chance = {"p": found.p, "baseline_total": median(x.total for x in found.by_chance)}
        out = {"total": found.total} | chance
        for sign, modes in (("top", found.top), ("bottom", found.bottom)):
            keys = self.modes[sign]
            out |= dict(zip(keys, [mode.eigenvalue for mode in modes] + [0.0] * (len(keys) - len(modes)), strict=True))
        return out


def _mode(sign: str, rank: int, against: str) -> ValueSpec:
    owner, has = _SIGNS[sign]
    return ValueSpec(
        f"{sign}_{rank}",
        f"eigenvalue of one of the largest modes of outputs and prompts that {owner} {has}",
        f"{_ORDINALS.get(rank, f'{rank}th ')}largest mode of {owner} alone",
        chart=f"Modes of it: above zero only the model, below only {against}",
    )


def disagreement_finding(record: Mapping[str, float], changed: Ranked, against: str, of: str = "") -> Finding:
    """Return the finding how large the disagreement is, and for which prompts.

    Args:
        record: values of the evaluation.
        changed: the prompts that differ by more than chance, most first.
        against: what the reference is called.
        of: what the model is called, where that says more than that it is the model.
    """
    p = record["p"]
    total, by_chance = f"total {max(0.0, record['total']):.3g}", f"by chance {record['baseline_total']:.3g}"
    fine = not differs(p) if against == AGAINST["data"] else None
    if not differs(p):
        between = f"between {of} and {against}" if of else f"from {against}"
        text = f"No evidence of a difference {between} ({format_p(p)}): {total}, {by_chance}."
    else:
        most = [f"{quoted(prompt)} ({100 * part:.0f} %)" for prompt, part in changed[:NAMED] if part >= LEAST]
        where = f", most of it for {', '.join(most)}" if most else ""
        text = f"Disagreement {f'of {of} ' if of else ''}with {against}: {total} ({format_p(p)}; {by_chance}){where}."
    return Finding(text, Area("all samples"), "", "total", fine, p)


class DistanceTracker(PromptTracker):
    """Follows the distance of each prompt's samples from real images: squared MMD without bias, see `mmd_influence`."""

    name = "distance"
    about = "squared MMD of the samples of one prompt from its real images; alerts watch it"
    chart = "Distance of each prompt's samples from real images"
    better = "low"
    verdict = "moved away from the data"
    _sides: Mapping[str, RealSide] = MappingProxyType({})

    def compare_with(self, reference: Tensor, groups: PromptGroups) -> None:
        """Set the features of all real images [M, D], row i of the prompt of sample i, and who is judged together."""
        self.groups = groups
        self._sides = {name: RealSide.of(rows, None, None) for name, rows in groups.split(_wide(reference)).items()}

    def measure(self, features: Tensor) -> dict[str, Estimate]:
        """Estimate the distance of each prompt from features [N, D], row i of sample i; {} without real images."""
        out = {}
        for name, rows in self.groups.split(_wide(features)).items() if self._sides else ():
            side = self._sides[name]
            found = side.influence(rows.to(side.samples))
            n, m = len(rows), len(side.samples)
            error = (found.fake.var() / n + found.real.var() / m).sqrt()
            out[name] = Estimate(float(found.mmd), float(error), min(n, m))
        return out

    def said(self, change: Change) -> tuple[str, str, str]:
        """Say that the samples are farther from real images, and both distances."""
        now, best = f"{change.now:.2g}", f"{max(0.0, change.best):.2g}"
        return "are farther from real images than", now, f"squared MMD {now}, then {best}; "

    def far(self, found: Mapping[str, Estimate]) -> list[str]:
        """Name the prompts that are at least twice as far as at their best."""
        return [name for name, best in self.values.items() if found[name].value >= ALERT_FACTOR * best]


def _wide(features: Tensor) -> Tensor:
    """Convert features to a dtype that resolves a kernel's small differences."""
    return features if features.dtype == torch.float64 else features.float()


@dataclass(frozen=True, eq=False)
class DisagreementFigures:
    """Figures of an evaluation of the disagreement.

    Attributes:
        evaluation: what was found, with samples of both sides.
        prompts: of both.
        against: what the reference is called.
        value_range: what to show as black and as white; None for the lowest and the highest value of the samples.
        model: what the model is called.
    """

    evaluation: DisagreementEvaluation
    prompts: Prompts
    against: str
    value_range: tuple[float, float] | None = None
    model: str = "the model"

    def modes(self) -> Drawing:
        """Prepare the prompts of the largest modes of either sign, and of one that both sides have."""
        found = self.evaluation.found
        rows = [
            ModePrompts(name, mode.eigenvalue, self._sides(most_of(mode.prompts), SAMPLES_OF_MODE))
            for name, mode in [*found.named(DRAWN_MODES), ("similar", found.similar)]
        ]
        return partial(mode_prompts, rows, self._bounds, self.against, self.model)

    def changed(self) -> Drawing:
        """Prepare the figure of the prompts that differ most."""
        return partial(changed_prompts, self._changed_sides(), self._bounds, self.against, self.model)

    def table(self) -> Table:
        """Return the prompts that differ by more than chance as a table, with a picture of samples per prompt and side.

        Their distances from the reference are a column more, where all listed ones have theirs.
        """
        listed, distances, bounds = self._changed_sides(), self.evaluation.distances, self._bounds
        columns = {"prompt": [x.prompt for x in listed], "part": [x.value for x in listed]}
        p_values = {str(prompt): p for prompt, p in self.evaluation.found.prompt_p.items()}
        if p_values:
            columns["p"] = [format_p(p_values[x.prompt]) if x.prompt in p_values else "" for x in listed]
        if all(x.prompt in distances for x in listed):
            columns["squared MMD"] = [distances[x.prompt].value for x in listed]
        columns["model"] = [strip(x.current, bounds) for x in listed]
        columns[self.against] = [strip(x.reference, bounds) for x in listed]
        return Table(list(columns), [list(row) for row in zip(*columns.values(), strict=True)])

    @property
    def _bounds(self) -> tuple[float, float]:
        shown = [side.shown for side in (self.evaluation.current, self.evaluation.reference)]
        return self.value_range or (min(float(x.min()) for x in shown), max(float(x.max()) for x in shown))

    def _changed_sides(self) -> list[PromptSides]:
        return self._sides(self.evaluation.found.differing[:LISTED])

    def _sides(self, ranked: Ranked, count: int = SAMPLES) -> list[PromptSides]:
        sides = (self.evaluation.current, self.evaluation.reference)
        named = [(side.shown, self.prompts.named(side.shown_indices.tolist())) for side in sides]
        out = []
        for prompt, value in ranked:
            pictures = [shown[[i for i, x in enumerate(names) if x == prompt][:count]] for shown, names in named]
            out.append(PromptSides(str(prompt), value, *pictures))
        return out


def most_of(ranked: Ranked) -> Ranked:
    """Leave out prompts that hardly have the mode."""
    return [pair for pair in ranked[:PROMPTS_OF_MODE] if pair[1] >= LEAST_SCORE * ranked[0][1]] or ranked[:1]


@dataclass(frozen=True, eq=False)
class DisagreementPresenter(Presenter[DisagreementEvaluation]):
    """Shows the modes of a disagreement and the prompts that differ most, with samples of both sides.

    Attributes:
        values: of the disagreement.
        prompts: of both sides.
        value_range: lowest and highest value of a real image; None without them.
        changed: the prompts that differed most at the last evaluation.
        note: last line of the summary.
    """

    values: DisagreementValues
    prompts: Prompts
    value_range: tuple[float, float] | None
    changed: Ranked
    note: str = ""

    title = "Prompts that differ"
    figures_to_keep = ("modes", "prompts")

    def summary(self, findings: Sequence[Finding], history: History) -> str:
        """Return the last evaluation value by value, when each was furthest from zero, and the prompts."""
        last, rows = history[-1], []
        for key in ("total", *self.values.modes["top"], *self.values.modes["bottom"]):
            furthest = max(history, key=lambda record: abs(record[key]))
            rows.append(f"{key:<12}{last[key]:>10.4f}{furthest[key]:>14.4f} at epoch {furthest['epoch']:g}")
        prompts = [f"{100 * part:>4.0f} %  {quoted(prompt)}" for prompt, part in self.changed[:LISTED] if part >= LEAST]
        listed = ["part  prompt", *prompts] if prompts else []
        title = f"Where the model differs from {self.values.against}, epoch {last['epoch']:g}"
        head = f"{'':<12}{'last':>10}{'furthest':>14}"
        found = [str(finding) for finding in findings[-1:]]
        return "\n".join(["", title, *found, head, *rows, *listed, *filter(None, [self.note]), ""])

    def figures(self, evaluation: DisagreementEvaluation, history: History, samples: Samples) -> Mapping[str, Drawing]:
        """Return what draws the prompts of the modes and the prompts that differ most."""
        figures = self._figures(evaluation)
        differing = {"prompts": figures.changed()} if evaluation.found.differing else {}
        return {"modes": figures.modes(), **differing}

    def tables(self, evaluation: DisagreementEvaluation) -> Mapping[str, Table]:
        """Return the prompts that differ most, with samples of both sides."""
        return {"prompts": self._figures(evaluation).table()}

    def _figures(self, evaluation: DisagreementEvaluation) -> DisagreementFigures:
        return DisagreementFigures(evaluation, self.prompts, self.values.against, self.value_range)
