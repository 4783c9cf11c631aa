# SPDX-License-Identifier: Apache-2.0
"""What one evaluation of the diversity found, and the figures of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.changes import Estimate
from genmonitor.evaluation.prompts.diversity_modes import ModeEnds
from genmonitor.evaluation.prompts.variability import LeastVaried
from genmonitor.evaluation.results import Evaluation, History, curve
from genmonitor.evaluation.text.diversity import OF_REAL, SCORES
from genmonitor.functional.w1kp import ReusabilityCurve
from genmonitor.plotting import diversity as plots
from genmonitor.plotting.metrics import reusability_figure
from genmonitor.plotting.style import Drawing


@dataclass(frozen=True, eq=False, repr=False)
class DiversityEvaluation(Evaluation):
    """What one evaluation found.

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
    evaluation: DiversityEvaluation, history: History, prompts: Prompts | None, n: int, value_range: tuple[float, float]
) -> dict[str, Drawing]:
    """Return what draws curves, spectrum, both ends of the model's own modes, and with a calibration the prompts.

    Args:
        evaluation: the last one.
        history: the records so far.
        prompts: sample i has prompt i modulo their number; None for a generator without prompts.
        n: samples per evaluation.
        value_range: what to show as black and as white.
    """
    last = history[-1]
    curves = {name: curve(history, name) for name in SCORES if name in last}
    real = {name.removeprefix("real_"): last[name] for name in OF_REAL if name in last}
    total, explained, own = evaluation.spectra
    shares = (own / own.sum().clamp_min(1e-12)).tolist()
    ends = evaluation.ends.indices.tolist()
    captions = None if prompts is None else [[prompts.text(i) for i in row] for row in ends]
    epochs = [record["epoch"] for record in history]
    out: dict[str, Drawing] = {
        "curves": partial(plots.diversity_curves, epochs, curves, real, n),
        "spectrum": partial(plots.spectrum, total, explained, own, n)
        if prompts
        else partial(plots.pca_spectrum, own, n),
    }
    if evaluation.ends.images.shape[3:].numel() > 1:  # a vector is nothing to look at
        out["modes"] = partial(plots.mode_samples, shares, evaluation.ends.images, captions, value_range)
    if evaluation.least_varied:
        rows = [(str(x.found.prompt), x.found.w1kp, x.caption(), x.images) for x in evaluation.least_varied]
        out["least_varied"] = partial(plots.least_varied, rows, value_range)
    if evaluation.reusability is not None:
        out["reusability"] = partial(reusability_figure, {"": evaluation.reusability})
    return out
