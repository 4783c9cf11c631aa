# SPDX-License-Identifier: Apache-2.0
"""Values, findings, figures and presenter of an evaluation of the diversity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from torch import Tensor

from genmonitor._formatting import format_p, significant
from genmonitor.evaluation.modes import ModeEnds
from genmonitor.evaluation.prompt_groups import RESOLUTION, Estimate, PromptGroups, PromptTracker
from genmonitor.evaluation.results import Evaluation, History, Presenter, Record
from genmonitor.evaluation.tracker import quoted
from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.tables import Table
from genmonitor.findings.values import ValueSpec, declared
from genmonitor.findings.words import advice
from genmonitor.functional.kernel_means import kernel_dispersion
from genmonitor.functional.permutation import LEVEL
from genmonitor.functional.prompt_fidelity import PromptFidelity
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.kernels import Kernel
from genmonitor.plotting import diversity as plots
from genmonitor.plotting.style import Drawing

SCORES = tuple(declared("diversity").values())
"""Values that have a curve, if they are measured."""
REAL = tuple(declared("real_diversity").values())
FIDELITY = tuple(declared("prompt_fidelity").values())
"""Values for encoders of images and prompts with a common space."""
OF_OUTPUTS = ("vendi", "rke")
"""Scores that do not depend on prompts."""
FEWER, MORE = 0.8, 1.25
"""Multiples of the modes of real images below and above which a number of modes is not near it."""
NAMED = 3
"""Prompts that a sentence names."""
FAR = 0.25
"""Part of the spread of a typical prompt, or of what it keeps, from which a prompt has far less. While a conditional
GAN learned digits, healthy classes together fell to a third of the spread of their first epochs.
"""


@dataclass(frozen=True, eq=False, repr=False)
class DiversityEvaluation(Evaluation):
    """An evaluation of the diversity.

    Attributes:
        shares: Share of the model's own variety of each of its largest modes, in falling order.
        ends: Samples at both ends of these modes.
        spread: Spread of the samples of each prompt.
        followed: Similarity of images to their prompts; None if the encoders have no common space.
    """

    shares: list[float]
    ends: ModeEnds
    spread: Mapping[str, Estimate] = field(default_factory=dict)
    followed: PromptFidelity | None = None


def diversity_values(n: int, prompted: bool, paired: bool, calibrated: bool) -> list[ValueSpec]:
    """Return the declarations of the values, with charts whose titles contain the number of samples.

    Args:
        n: Number of samples.
        prompted: True if there are prompts.
        paired: True if Conditional-Vendi is measured.
        calibrated: True if W1KP is measured.
    """
    left_out = set() if prompted else {"scendi", "scendi_prompt", "prompt_share", "one_prompt_share"}
    left_out |= set() if paired else {"conditional_vendi", "information_vendi"}
    left_out |= set() if calibrated else {"w1kp"}
    return [replace(x, chart=x.chart and x.chart.format(n=n)) for x in (*SCORES, *REAL) if x.key not in left_out]


def state(record: Record, n: int, kind: str = "images") -> Finding:
    """Return the finding of the variety of the samples.

    Args:
        record: Record of the evaluation.
        n: Number of samples.
        kind: Name of the samples.
    """
    written = {key: significant(value, 3) for key, value in record.items()}
    error = f" ± {significant(record['vendi_error'], 1)}" if "vendi_error" in record else ""
    modes, verdict = f"{written['vendi']}{error} modes in {n} {kind}", f"{written['vendi']} modes"
    if "real_vendi" in record:
        modes += f" (real {kind}: {written['real_vendi']})"
        verdict += f", real {kind} {written['real_vendi']}"
    if "scendi" in record:
        explained, by_one = (100 * record[key] for key in ("prompt_share", "one_prompt_share"))
        modes += f"; the prompts explain {explained:.0f} % of the variety (one prompt for all: {by_one:.0f} %)"
        modes += f"; the model's own: Scendi {written['scendi']}"
    if "clip_score" in record:
        best = f", real images {written['real_clip_score']}" if "real_clip_score" in record else ""
        modes += f"; CLIPScore {written['clip_score']} (shuffled prompts {written['clip_score_shuffled']}{best})"
    cause, remedy = _advice(record)
    return Finding(f"{modes}.", Area(f"all {kind}"), verdict, "vendi", cause=cause, remedy=remedy)


def _advice(record: Record) -> tuple[str, str]:
    """Return cause and remedy of a number of modes that is not near that of real images."""
    if "real_vendi" not in record:
        return "", "how many modes have as many real images? `real_images=` gives the answer, in the command `--real`"
    ratio = record["vendi"] / record["real_vendi"]
    if ratio > MORE:
        return (
            "",
            "is it noise, which has the most modes? Compare the samples with real images in a PixelClusterMonitor",
        )
    return advice("less_varied") if ratio < FEWER else ("", "")


def ignored_prompts(found: PromptFidelity | None, prompts: Sequence[str]) -> list[Finding]:
    """Name the prompts whose images are not closer to them than images of other prompts, by more than chance."""
    p = [] if found is None else found.p_value.tolist()
    ignored = sorted((i for i, value in enumerate(p) if value > LEVEL), key=lambda i: -p[i])
    if not ignored:
        return []
    named = ", ".join(quoted(str(prompts[i])) for i in ignored[:NAMED])
    more = f" and {len(ignored) - NAMED} more" if len(ignored) > NAMED else ""
    smallest = format_p(min(p[i] for i in ignored))
    text = (
        f"{len(ignored)} of {len(prompts)} prompts may be ignored: the images of {named}{more} are no closer to their "
        f"prompt than those of other prompts ({smallest if len(ignored) == 1 else smallest.replace('=', '≥')})."
    )
    return [Finding(text, Area("prompts"), "", "clip_score", fine=False)]


def fidelity_table(found: PromptFidelity, prompts: Sequence[str]) -> Table:
    """Return a table with a row for each prompt, the least followed first."""
    rows = zip(prompts, found.by_prompt.tolist(), found.of_others.tolist(), found.p_value.tolist(), strict=True)
    shown = [
        [str(x), significant(own, 3), significant(other, 3), "" if math.isnan(p) else format_p(p)]
        for x, own, other, p in rows
    ]
    order = (found.by_prompt - found.of_others).argsort().tolist()
    return Table(["prompt", "CLIPScore", "of other images", "no closer"], [shown[i] for i in order])


class SpreadTracker(PromptTracker):
    """Tracks the spread of each prompt's samples, see `kernel_dispersion`.

    Attributes:
        limit: Upper limit of a best value: the spread of real images of all prompts.
    """

    spec = declared("prompts")["spread"]
    quantity = "spread"
    better = "high"
    limit = math.inf

    def __init__(self, groups: PromptGroups) -> None:
        super().__init__(groups)
        self.worse = "lost its variety" if groups.by_prompt else "lost their variety"

    def measure(self, features: Tensor, kernel: Kernel) -> dict[str, Estimate]:
        """Estimate the spread of each prompt's samples.

        Args:
            features: Features of all samples [N, D], row i of sample i.
            kernel: Kernel of the features.
        """
        out = {}
        for name, rows in self.groups.split(features).items():
            found = kernel_dispersion(rows, kernel)
            out[name] = Estimate(float(found.value), float(found.standard_error), len(rows))
        return out

    def far(self, values: Mapping[str, float]) -> list[str]:
        """Return the names of the prompts that have lost far more of their spread than a typical one."""
        bests = {name: min(best, self.limit) for name, best in self.best.items()}
        kept = {name: values[name] / best if best > RESOLUTION else 1.0 for name, best in bests.items()}
        typical = min(1.0, median(kept.values())) if kept else 1.0
        # A model that learns the meaning of its prompts has less variety for each, which is not a collapse. If a
        # typical prompt keeps no more than a tenth of its best, it has not learned but collapsed with the others.
        allowed = (typical if typical > 0.1 else 1.0) * FAR
        return [name for name, part in kept.items() if part <= allowed]

    def narrow(self, found: Mapping[str, Estimate]) -> list[Finding]:
        """Return a finding of the prompts that vary far less than a typical one, though no worse than at their best."""
        typical = median(x.value for x in found.values()) if found else 0.0
        standing = {change.name for change in self.standing}
        far = [name for name, x in found.items() if x.value + 2 * x.error <= FAR * typical and name not in standing]
        if not far or typical <= 0:  # as of images that are all the same, but for rounding
            return []
        far.sort(key=lambda name: found[name].value)
        named = ", ".join(quoted(name) for name in far[:NAMED]) + (" and others" if len(far) > NAMED else "")
        least = found[far[0]].value
        text = f"Prompts that vary far less than a typical one: {named} (spread {least:.2g}, median {typical:.2g})."
        return [Finding(text, self.groups.area(far[0]), "", None)]


def mode_figures(
    evaluation: DiversityEvaluation, prompts: Prompts | None, value_range: tuple[float, float]
) -> dict[str, Drawing]:
    """Return functions that draw both ends of the model's own modes; none for samples that are vectors.

    Args:
        evaluation: Last evaluation.
        prompts: Prompts, where sample i has prompt i modulo their number; None for a generator without prompts.
        value_range: Values to show as black and as white.
    """
    ends = evaluation.ends
    if ends.images.shape[3:].numel() <= 1:
        return {}
    captions = None if prompts is None else [[prompts.text(i) for i in row] for row in ends.indices.tolist()]
    return {"modes": partial(plots.mode_samples, evaluation.shares, ends.images, captions, value_range)}


@dataclass(frozen=True, eq=False)
class DiversityPresenter(Presenter[DiversityEvaluation]):
    """Shows the variety of the samples, the similarity to their prompts, and the model's own modes.

    Attributes:
        prompts: Prompts, where sample i has prompt i modulo their number; None for a generator without prompts.
        value_range: Lowest and highest value of a real image; None without them.
    """

    prompts: Prompts | None
    value_range: tuple[float, float] | None

    title = "Variety of the samples"

    def tables(self, evaluation: DiversityEvaluation) -> Mapping[str, Table]:
        """Return the similarity of the images of each prompt to it, if it can be measured."""
        if evaluation.followed is None or self.prompts is None:
            return {}
        return {"prompts": fidelity_table(evaluation.followed, self.prompts.distinct)}

    def figures(self, evaluation: DiversityEvaluation, history: History, samples: Samples) -> Mapping[str, Drawing]:
        """Return functions that draw the samples at both ends of the model's own modes."""
        images = samples.images
        return mode_figures(evaluation, self.prompts, self.value_range or (float(images.min()), float(images.max())))
