# SPDX-License-Identifier: Apache-2.0
"""Values, findings, figures and presenter of an evaluation of the disagreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from types import MappingProxyType

import torch
from torch import Tensor

from genmonitor._formatting import format_p, significant
from genmonitor.evaluation.modes import Disagreement, Ranked, SampleSet
from genmonitor.evaluation.prompt_groups import Estimate, PromptGroups, PromptTracker
from genmonitor.evaluation.results import Evaluation, History, Presenter
from genmonitor.evaluation.tracker import quoted
from genmonitor.findings.finding import Area, Finding, differs
from genmonitor.findings.tables import Table
from genmonitor.findings.values import ValueSpec, declared
from genmonitor.findings.words import percent
from genmonitor.functional.relative_similarity import RealSide
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.plotting.disagreement import ModePrompts, PromptSides, mode_prompts, strip
from genmonitor.plotting.style import Drawing

AGAINST = {"data": "real images", "start": "the start of training", "previous": "the previous evaluation"}
LEAST = 0.005
"""Smallest part of a prompt that is named or listed."""
DRAWN_MODES = 3
"""Number of modes of either sign in the figure."""
SAMPLES = 3
"""Samples of each prompt and side kept for pictures."""


@dataclass(frozen=True, eq=False, repr=False)
class DisagreementEvaluation(Evaluation):
    """An evaluation of the disagreement.

    Attributes:
        found: Modes and their prompts.
        current: Samples of the model.
        reference: Samples of the reference.
        distances: Distance of the samples of each prompt from real images; {} against another reference.
    """

    found: Disagreement
    current: SampleSet
    reference: SampleSet
    distances: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def by_distance(self) -> bool:
        """True if the distances of prompts were measured, by which evaluations are ranked too."""
        return any(str(prompt) in self.distances for prompt, _ in self.found.changed)

    @property
    def differing(self) -> Ranked:
        """Prompts that differ by more than chance, with their distance or, without these, their part of the modes."""
        parts = [x for x in self.found.differing if x[1] >= LEAST]
        if not self.by_distance:
            return parts
        known = [prompt for prompt, _ in self.found.differing if str(prompt) in self.distances]
        return sorted(((x, self.distances[str(x)].value) for x in known), key=lambda pair: -pair[1])

    def most(self) -> list[str]:
        """Return the three prompts that differ most, in words."""
        written = (lambda x: significant(x, 3)) if self.by_distance else percent
        return [f"{quoted(prompt)} ({written(size)})" for prompt, size in self.differing[:3]]


class DisagreementValues:
    """Keys of the values of a disagreement, and their declarations.

    Args:
        k: Number of modes of either sign.
        reference: "data", "start" or "previous".

    Attributes:
        against: Name of the reference.
        modes: Keys of the modes, those of the model before those of the reference, the largest first.
        specs: Declarations of all values.
    """

    def __init__(self, k: int, reference: str) -> None:
        self.against = AGAINST[reference]
        declarations = declared("disagreement")
        if reference != "data":
            del declarations["distance"], declarations["distance_error"]
        for key, spec in declarations.items():
            declarations[key] = replace(spec, chart=spec.chart and spec.chart.format(against=self.against))
        signs = declarations.pop("top"), declarations.pop("bottom")
        modes = [_ranked(spec, rank) for spec in signs for rank in range(1, k + 1)]
        self.modes = [spec.key for spec in modes]
        self.specs = (*declarations.values(), *modes)

    def measured(self, found: Disagreement) -> dict[str, float]:
        """Return total and modes by key, 0 for missing modes."""
        chance = {"p": found.p, "baseline_total": median(x.total for x in found.by_chance)}
        modes = {name.replace(" ", "_"): mode.eigenvalue for name, mode in found.named(len(self.modes) // 2)}
        return {"total": found.total} | chance | dict.fromkeys(self.modes, 0.0) | modes


def _ranked(spec: ValueSpec, rank: int) -> ValueSpec:
    """Return the declaration of a mode by its rank among the modes of its sign."""
    ordinal = {1: "", 2: "2nd ", 3: "3rd "}.get(rank, f"{rank}th ")
    return replace(spec, key=f"{spec.key}_{rank}", label=f"{ordinal}{spec.label}")


def disagreement_finding(record: Mapping[str, float], most: Sequence[str], against: str, of: str = "") -> Finding:
    """Return the finding of the size of the disagreement and its prompts.

    Args:
        record: Values of the evaluation.
        most: Prompts that differ most, in words.
        against: Name of the reference.
        of: Name of the model, if it has a meaningful one.
    """
    p, measure = record["p"], "distance" if "distance" in record else "total"
    size, chance = (significant(max(0.0, record[key]), 3) for key in (measure, "baseline_total"))
    total, by_chance = (f"total {size}", f"by chance {chance}") if measure == "total" else (f"mean distance {size}", "")
    fine = not differs(p) if against == AGAINST["data"] else None
    if not differs(p):
        between = f"between {of} and {against}" if of else f"from {against}"
        text = f"No evidence of a difference {between} ({format_p(p)}): {', '.join(filter(None, [total, by_chance]))}."
        area, verdict = Area("all samples"), "no evidence of a difference"
    else:
        where = f", mostly for {', '.join(most)}" if most else ""
        # the p-value is of the distance, which may differ where the total of its largest modes does not
        beside = f"; {by_chance}" if by_chance and record["total"] > record["baseline_total"] else ""
        text = f"Disagreement {f'of {of} ' if of else ''}with {against}{where}: {total} ({format_p(p)}{beside})."
        area, verdict = Area(f"prompts {', '.join(most)}" if most else "all prompts"), f"differ from {against}"
    return Finding(text, area, verdict, measure, fine, p)


class DistanceTracker(PromptTracker):
    """Tracks the distance of each prompt's samples from real images: squared MMD without bias, see `mmd_influence`."""

    spec = declared("prompts")["distance"]
    quantity = "squared MMD"
    better = "low"
    worse = "moved away from the data"
    _sides: Mapping[str, RealSide] = MappingProxyType({})

    def compare_with(self, reference: Tensor, groups: PromptGroups) -> None:
        """Set the features of all real images [M, D], row i with the prompt of sample i, and the groups to judge."""
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

    def mean(self, found: Mapping[str, Estimate]) -> dict[str, float]:
        """Return the mean distance with its standard error, by key; {} without distances."""
        if not found:
            return {}
        error = sum(x.error**2 for x in found.values()) ** 0.5
        return {"distance": sum(x.value for x in found.values()) / len(found), "distance_error": error / len(found)}

    def far(self, values: Mapping[str, float]) -> list[str]:
        """Return the names of the prompts that are at least twice as far as at their best evaluation."""
        return [name for name, best in self.best.items() if values[name] >= 2.0 * best]


def _wide(features: Tensor) -> Tensor:
    """Convert features to a dtype that resolves small differences of a kernel."""
    return features if features.dtype == torch.float64 else features.float()


def most_of(ranked: Ranked) -> Ranked:
    """Leave out prompts that hardly have the mode."""
    # three prompts of a mode at most, with a tenth of the highest mean score or more
    return [pair for pair in ranked[:3] if pair[1] >= 0.1 * ranked[0][1]] or ranked[:1]


@dataclass(frozen=True, eq=False)
class DisagreementPresenter(Presenter[DisagreementEvaluation]):
    """Shows the modes of a disagreement and the prompts that differ most, with samples of both sides.

    Attributes:
        prompts: Prompts of both sides.
        against: Name of the reference.
        value_range: Values to show as black and as white; None for the lowest and highest value of the samples.
        model: Name of the model.
    """

    prompts: Prompts
    against: str
    value_range: tuple[float, float] | None = None
    model: str = "the model"

    title = "Prompts that differ"

    def figures(self, evaluation: DisagreementEvaluation, history: History, samples: Samples) -> Mapping[str, Drawing]:
        """Return a function that draws the prompts of the modes."""
        return self.drawings(evaluation)

    def drawings(self, evaluation: DisagreementEvaluation) -> dict[str, Drawing]:
        """Return a function that draws the largest modes of either sign and one common mode."""
        found, shown = evaluation.found, (self._bounds(evaluation), self.against, self.model)
        rows = [
            ModePrompts(name, mode.eigenvalue, self._sides(evaluation, most_of(mode.prompts), count=2))
            for name, mode in [*found.named(DRAWN_MODES), ("similar", found.similar)]
        ]
        return {"modes": partial(mode_prompts, rows, *shown)}

    def tables(self, evaluation: DisagreementEvaluation) -> Mapping[str, Table]:
        """Return the prompts that differ by more than chance, with a picture of samples per prompt and side."""
        listed, bounds = self._sides(evaluation, evaluation.differing[:10]), self._bounds(evaluation)
        size = "squared MMD" if evaluation.by_distance else "part"
        columns = {"prompt": [x.prompt for x in listed], size: [x.value for x in listed]}
        p_values = {str(prompt): p for prompt, p in evaluation.found.prompt_p.items()}
        if p_values:
            columns["p"] = [format_p(p_values[x.prompt]) if x.prompt in p_values else "" for x in listed]
        columns["model"] = [strip(x.current, bounds) for x in listed]
        columns[self.against] = [strip(x.reference, bounds) for x in listed]
        return {"prompts": Table(list(columns), [list(row) for row in zip(*columns.values(), strict=True)])}

    def _bounds(self, evaluation: DisagreementEvaluation) -> tuple[float, float]:
        shown = [side.shown for side in (evaluation.current, evaluation.reference)]
        return self.value_range or (min(float(x.min()) for x in shown), max(float(x.max()) for x in shown))

    def _sides(self, evaluation: DisagreementEvaluation, ranked: Ranked, count: int = SAMPLES) -> list[PromptSides]:
        sides = (evaluation.current, evaluation.reference)
        named = [(side.shown, self.prompts.named(side.shown_indices.tolist())) for side in sides]
        out = []
        for prompt, value in ranked:
            pictures = [shown[[i for i, x in enumerate(names) if x == prompt][:count]] for shown, names in named]
            out.append(PromptSides(str(prompt), value, *pictures))
        return out
