# SPDX-License-Identifier: Apache-2.0
"""Figures of an evaluation of diversity or disagreement: modes, prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.estimates import Estimate
from genmonitor.evaluation.prompts.modes import Disagreement, ModeEnds, Ranked, SampleSet
from genmonitor.evaluation.prompts.variability import LeastVaried
from genmonitor.evaluation.results import Evaluation, Table
from genmonitor.functional.w1kp import ReusabilityCurve
from genmonitor.plotting import diversity as plots
from genmonitor.plotting.disagreement import ModePrompts, PromptSides, changed_prompts, mode_prompts, strip
from genmonitor.plotting.style import Drawing

DRAWN_MODES, PROMPTS_OF_MODE, SAMPLES_OF_MODE = 3, 3, 2
"""Modes of either sign in the figure, prompts of each, samples of each prompt and side."""
SAMPLES = 3
"""Samples of each prompt and side kept for pictures."""
LEAST = 0.1
"""A prompt is drawn for a mode if its mean score is at least this part of the highest."""
LISTED = 10
"""Prompts in the table."""


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


@dataclass(frozen=True, eq=False)
class DisagreementFigures:
    """Figures of an evaluation of the disagreement.

    Attributes:
        found: what was found.
        current: the model's samples.
        reference: those that they are compared with.
        prompts: of both.
        value_range: what to show as black and as white.
        against: what the reference is called.
        model: what the model is called.
    """

    found: Disagreement
    current: SampleSet
    reference: SampleSet
    prompts: Prompts
    value_range: tuple[float, float]
    against: str
    model: str = "the model"

    def modes(self) -> Drawing:
        """Prepare the prompts of the largest modes of either sign, and of one that both sides have."""
        rows = [
            ModePrompts(name, mode.eigenvalue, self._sides(most_of(mode.prompts), SAMPLES_OF_MODE))
            for name, mode in [*self.found.named(DRAWN_MODES), ("similar", self.found.similar)]
        ]
        return partial(mode_prompts, rows, self.value_range, self.against, self.model)

    def changed(self) -> Drawing:
        """Prepare the figure of the prompts that differ most."""
        listed = self._sides(self.found.changed[:LISTED])
        return partial(changed_prompts, listed, self.value_range, self.against, self.model)

    def table(self, distances: Mapping[str, Estimate] | None = None) -> Table:
        """Return the prompts that differ most as a table, with one picture of samples per prompt and side.

        Args:
            distances: of prompts from the reference, a column more where all listed ones have theirs.
        """
        listed, known = self._sides(self.found.changed[:LISTED]), distances or {}
        measured = all(x.prompt in known for x in listed)
        rows = [
            [
                x.prompt,
                x.value,
                *([known[x.prompt].value] if measured else []),
                strip(x.current, self.value_range),
                strip(x.reference, self.value_range),
            ]
            for x in listed
        ]
        return Table(["prompt", "part", *(["squared MMD"] if measured else []), "model", self.against], rows)

    def _sides(self, ranked: Ranked, count: int = SAMPLES) -> list[PromptSides]:
        sides = (self.current, self.reference)
        named = [(side.shown, self.prompts.named(side.shown_indices.tolist())) for side in sides]
        out = []
        for prompt, value in ranked:
            pictures = [shown[[i for i, x in enumerate(names) if x == prompt][:count]] for shown, names in named]
            out.append(PromptSides(str(prompt), value, *pictures))
        return out


def most_of(ranked: Ranked) -> Ranked:
    """Leave out prompts that hardly have the mode."""
    return [pair for pair in ranked[:PROMPTS_OF_MODE] if pair[1] >= LEAST * ranked[0][1]] or ranked[:1]


@dataclass(frozen=True, eq=False, repr=False)
class DiversityEvaluation(Evaluation):
    """An evaluation of the diversity.

    Attributes:
        spectra: eigenvalues, falling, of the outputs' covariance, of its part that prompts explain, and of the rest.
        ends: samples at both ends of the model's own modes.
        least_varied: the least varied prompts, without a calibration none.
        spread: how spread the samples of each prompt are.
        reusability: how many images the prompts are good for, without a calibration None.
    """

    spectra: tuple[Tensor, Tensor, Tensor]
    ends: ModeEnds
    least_varied: list[LeastVaried]
    spread: Mapping[str, Estimate] = field(default_factory=dict)
    reusability: ReusabilityCurve | None = None


def evaluation_figures(
    evaluation: DiversityEvaluation, prompts: Prompts | None, value_range: tuple[float, float]
) -> dict[str, Drawing]:
    """Prepare both ends of the model's own modes, and with a calibration the prompts.

    Args:
        evaluation: the last one.
        prompts: sample i has prompt i modulo their number; None for a generator without prompts.
        value_range: what to show as black and as white.
    """
    own = evaluation.spectra[2]
    shares = (own / own.sum().clamp_min(1e-12)).tolist()
    ends = evaluation.ends.indices.tolist()
    captions = None if prompts is None else [[prompts.text(i) for i in row] for row in ends]
    out: dict[str, Drawing] = {}
    if evaluation.ends.images.shape[3:].numel() > 1:  # a vector is nothing to look at
        out["modes"] = partial(plots.mode_samples, shares, evaluation.ends.images, captions, value_range)
    if evaluation.least_varied:
        rows = [(str(x.found.prompt), x.found.w1kp, x.caption(), x.images) for x in evaluation.least_varied]
        out["least_varied"] = partial(plots.least_varied, rows, value_range)
    if evaluation.reusability is not None:
        out["reusability"] = partial(plots.reusability_figure, {"": evaluation.reusability})
    return out
