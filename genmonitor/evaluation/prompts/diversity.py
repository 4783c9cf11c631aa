# SPDX-License-Identifier: Apache-2.0
"""Values, findings, figures and presenter of an evaluation of the diversity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

import torch
from torch import Tensor

from genmonitor._formatting import format_p
from genmonitor.distributed import Collective
from genmonitor.evaluation.classes import ClassResult, class_data, class_table
from genmonitor.evaluation.findings import Area, Finding
from genmonitor.evaluation.prompts.estimates import RESOLUTION, Change, Estimate, PromptTracker, quoted
from genmonitor.evaluation.prompts.modes import ModeEnds
from genmonitor.evaluation.results import Evaluation, History, Presenter, Record, Table
from genmonitor.evaluation.values import ValueSpec
from genmonitor.functional import W1KPCalibration, reusability_curve, w1kp_by_prompt
from genmonitor.functional.kernel_means import kernel_dispersion
from genmonitor.functional.permutation import LEVEL
from genmonitor.functional.prompt_fidelity import PromptFidelity
from genmonitor.functional.w1kp.score import PromptVariability
from genmonitor.functional.w1kp.subsets import REUSED, ReusabilityCurve
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.kernels import Kernel
from genmonitor.plotting import diversity as plots
from genmonitor.plotting.style import Drawing

SCORES = (
    ValueSpec(
        "vendi", "effective number of modes among the images, at least 1; it grows with their number", "modes (Vendi)"
    ),
    ValueSpec(
        "rke", "the same with rare modes counting less, at least 1; it hardly grows with their number", "modes (RKE)"
    ),
    ValueSpec("scendi", "variety that the model adds by itself, at least 1", "the model's own (Scendi)"),
    ValueSpec("scendi_prompt", "variety of what the prompts explain, at least 1", "from the prompts (Scendi)"),
    ValueSpec(
        "prompt_share",
        "share of the variety that the prompts explain, in [0, 1]",
        "share of the prompts",
        chart="Share of the variety that prompts explain",
    ),
    ValueSpec(
        "conditional_vendi",
        "effective number of modes among the images of one prompt, at least 1",
        "modes of a prompt (Vendi)",
    ),
    ValueSpec(
        "information_vendi",
        "the modes (Vendi) of all images, divided by those of one prompt, at least 1",
        "times more by prompts (Vendi)",
        detail=True,
    ),
    ValueSpec(
        "w1kp",
        "how alike the images of one prompt are, in [0, 1]: higher is less varied",
        "likeness within a prompt (W1KP)",
        chart="Likeness of the images of one prompt (W1KP)",
    ),
    ValueSpec("precision", "share of generated images near real ones, in [0, 1]", better="high"),
    ValueSpec("recall", "share of real images near generated ones, in [0, 1]", better="high"),
    ValueSpec("density", "how densely real images lie around generated ones, around 1 at best"),
    ValueSpec("coverage", "share of real images with a generated one near, in [0, 1]", better="high"),
)
"""Values that have a curve, where they are measured."""
REAL = tuple(
    ValueSpec(f"real_{key}", f"{title} of as many real images, constant over the run", detail=True, baseline_of=key)
    for key, title in (("vendi", "Vendi score"), ("rke", "RKE score"))
)
_CLIP_SCORE = "Images beside their prompts (CLIPScore)"
FIDELITY = (
    ValueSpec(
        "clip_score",
        "how close images are to their prompts, 100 times the cosine of their embeddings, in [-100, 100]; read it "
        "between that of shuffled prompts and that of real images with their captions",
        "images and their prompts",
        chart=_CLIP_SCORE,
        better="high",
    ),
    ValueSpec(
        "clip_score_shuffled",
        "the same for images with the prompts of others: what a generator that ignores its prompts gets",
        "shuffled prompts",
        chart=_CLIP_SCORE,
    ),
    ValueSpec(
        "real_clip_score",
        "the same for real images with their captions, constant over the run",
        "real images",
        chart=_CLIP_SCORE,
        baseline_of="clip_score",
    ),
)
"""Values where the encoders of images and prompts share a space."""
OF_OUTPUTS = ("vendi", "rke")
"""Scores that have nothing to do with prompts."""
LISTED, SHOWN = 5, 6
"""Least varied prompts that are listed, and images of each."""
NAMED = 3
"""Ignored prompts that a sentence names."""
SPREAD_FACTOR = 4.0
"""Factor by which a prompt keeps less of its best than a typical one before an alert.

As a conditional GAN learned digits, healthy classes fell to a third of the spread of their first epochs, all together.
"""
COLLAPSED = 0.1
"""A typical prompt that keeps no more than this part of its best has not learned but collapsed, with the others."""


@dataclass(frozen=True, eq=False)
class LeastVaried:
    """A prompt whose images are very similar.

    Attributes:
        found: its W1KP and values derived from it.
        images: some of its images [k, C, H, W], on the CPU: the two most similar of all, then the first others.
    """

    found: PromptVariability
    images: Tensor

    def caption(self) -> str:
        """Return the caption of its row in the figure."""
        return (
            f"{self.found.level} similarity\n"
            f"good for {self.found.reusability} of {min(self.found.outputs, REUSED)} images\n"
            f"closest pair {self.found.closest:.3f}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class DiversityEvaluation(Evaluation):
    """An evaluation of the diversity.

    Attributes:
        shares: part of the model's own variety that each of its largest modes has, falling.
        ends: samples at both ends of these modes.
        least_varied: the least varied prompts, without a calibration none.
        spread: how spread the samples of each prompt are.
        reusability: how many images the prompts are good for, without a calibration None.
        followed: how close images are to their prompts; None where the encoders share no space.
        classes: what was found of each prompt beside its real images; empty where these have no labels.
    """

    shares: list[float]
    ends: ModeEnds
    least_varied: list[LeastVaried]
    spread: Mapping[str, Estimate] = field(default_factory=dict)
    reusability: ReusabilityCurve | None = None
    followed: PromptFidelity | None = None
    classes: tuple[ClassResult, ...] = ()


def diversity_values(n: int, prompted: bool, paired: bool, calibrated: bool) -> list[ValueSpec]:
    """Return the declarations of what is measured, with charts whose titles say of how many samples they are.

    Args:
        n: samples.
        prompted: whether there are prompts.
        paired: whether Conditional-Vendi is measured.
        calibrated: whether W1KP is measured.
    """
    modes, by_source = f"Modes of {n} images (Vendi grows with n)", f"Variety of {n} images by its source"
    charts = dict.fromkeys(OF_OUTPUTS, modes)
    charts |= dict.fromkeys(("scendi", "scendi_prompt", "conditional_vendi", "information_vendi"), by_source)
    charts |= dict.fromkeys(("precision", "recall", "density", "coverage"), "Likeness to real images")
    of_prompts = {"scendi", "scendi_prompt", "prompt_share"} if not prompted else set()
    left_out = of_prompts | (set() if paired else {"conditional_vendi", "information_vendi"})
    left_out |= set() if calibrated else {"w1kp"}
    return [replace(x, chart=charts.get(x.key, x.chart)) for x in SCORES if x.key not in left_out] + [
        replace(x, chart=modes) for x in REAL
    ]


def state(record: Record, n: int, kind: str = "images") -> Finding:
    """Return the finding how varied the samples are.

    Args:
        record: of the evaluation.
        n: samples.
        kind: what the samples are called.
    """
    real = f" (real {kind}: {record['real_vendi']:.3g})" if "real_vendi" in record else ""
    error = f" ± {record['vendi_error']:.1g}" if "vendi_error" in record else ""
    modes = f"{record['vendi']:.3g}{error} modes in {n} {kind}{real}"
    if "scendi" in record:
        modes += (
            f"; the prompts explain {100 * record['prompt_share']:.0f} % of the variety; the model's own: Scendi "
            f"{record['scendi']:.3g}"
        )
    if "clip_score" in record:
        best = f", real images {record['real_clip_score']:.3g}" if "real_clip_score" in record else ""
        modes += f"; CLIPScore {record['clip_score']:.3g} (shuffled prompts {record['clip_score_shuffled']:.3g}{best})"
    return Finding(f"{modes}.", Area(f"all {kind}"), "", "vendi")


def ignored_prompts(found: PromptFidelity | None, prompts: Sequence[str]) -> list[Finding]:
    """Name the prompts whose images are no closer to them than those of other prompts, by more than chance."""
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
    """Return a row for each prompt, the least followed first."""
    rows = zip(prompts, found.by_prompt.tolist(), found.of_others.tolist(), found.p_value.tolist(), strict=True)
    shown = [[str(x), f"{own:.3g}", f"{other:.3g}", "" if math.isnan(p) else format_p(p)] for x, own, other, p in rows]
    order = (found.by_prompt - found.of_others).argsort().tolist()
    return Table(["prompt", "CLIPScore", "of other images", "no closer"], [shown[i] for i in order])


def _kept(change: Change) -> str:
    return f"{round(max(0.0, 100 * change.now / change.best), 1):.2g} %"


class SpreadTracker(PromptTracker):
    """Follows the spread of each prompt's samples, see `kernel_dispersion`.

    Attributes:
        limit: a best beyond this counts as this: the spread of real images, whatever the prompt.
    """

    name = "spread"
    about = "one minus the mean kernel of two samples of one prompt; alerts about lost variety watch it"
    chart = "Spread of the samples of each prompt"
    better = "high"
    verdict = "lost {their} variety"
    limit = math.inf

    def measure(self, features: Tensor, kernel: Kernel) -> dict[str, Estimate]:
        """Estimate the spread of each prompt's samples.

        Args:
            features: of all samples [N, D], row i of sample i.
            kernel: of the features.
        """
        out = {}
        for name, rows in self.groups.split(features).items():
            found = kernel_dispersion(rows, kernel)
            out[name] = Estimate(float(found.value), float(found.standard_error), len(rows))
        return out

    def said(self, change: Change) -> tuple[str, str, str]:
        """Say how much of its spread a prompt has."""
        return f"have {_kept(change)} of the spread that they had", _kept(change), ""

    def far(self, found: Mapping[str, Estimate]) -> list[str]:
        """Name the prompts that have lost far more of their spread than a typical one."""
        bests = {name: min(best, self.limit) for name, best in self.values.items()}
        kept = {name: found[name].value / best if best > RESOLUTION else 1.0 for name, best in bests.items()}
        typical = min(1.0, median(kept.values())) if kept else 1.0
        # a model that learns what its prompts mean varies each one less: that is no collapse of those that only follow
        allowed = (typical if typical > COLLAPSED else 1.0) / SPREAD_FACTOR
        return [name for name, part in kept.items() if part <= allowed]


def evaluation_figures(
    evaluation: DiversityEvaluation, prompts: Prompts | None, value_range: tuple[float, float]
) -> dict[str, Drawing]:
    """Prepare both ends of the model's own modes, and with a calibration the prompts.

    Args:
        evaluation: the last one.
        prompts: sample i has prompt i modulo their number; None for a generator without prompts.
        value_range: what to show as black and as white.
    """
    ends = evaluation.ends.indices.tolist()
    captions = None if prompts is None else [[prompts.text(i) for i in row] for row in ends]
    out: dict[str, Drawing] = {}
    if evaluation.ends.images.shape[3:].numel() > 1:  # a vector is nothing to look at
        out["modes"] = partial(plots.mode_samples, evaluation.shares, evaluation.ends.images, captions, value_range)
    if evaluation.least_varied:
        rows = [(str(x.found.prompt), x.found.w1kp, x.caption(), x.images) for x in evaluation.least_varied]
        out["least_varied"] = partial(plots.least_varied, rows, value_range)
    if evaluation.reusability is not None:
        out["reusability"] = partial(plots.reusability_figure, {"": evaluation.reusability})
    return out


def least_varied(
    features: Tensor, samples: Samples, prompts: Prompts, calibration: W1KPCalibration, comm: Collective
) -> tuple[float, list[LeastVaried], ReusabilityCurve | None]:
    """Measure W1KP of the prompts; every process must call it.

    Args:
        features: of all samples [N, d], row i of sample i.
        samples: this process's.
        prompts: sample i has prompt i modulo their number.
        calibration: of the features.
        comm: the processes that evaluate together.

    Returns:
        The mean over the prompts; the least varied prompts, the least first; and how many images the prompts are good
        for, None with one prompt, or with two samples of one.
    """
    with comm.all_ranks_or_none():
        numbers = prompts.numbers(torch.arange(len(features), device=features.device))
        names = list(map(str, prompts.distinct))
        rows = w1kp_by_prompt(features, numbers, calibration=calibration, names=names)
        fewest, curve = min(row.outputs for row in rows), None
        if len(rows) > 1 and fewest > 2:
            curve = reusability_curve(features, numbers, calibration=calibration, k=min(fewest, REUSED))
    least = []
    for row in rows[:LISTED]:
        of_prompt = (numbers == names.index(str(row.prompt))).nonzero()[:, 0].tolist()
        shown = [*row.closest_pair, *(i for i in of_prompt if i not in row.closest_pair)][:SHOWN]
        least.append(LeastVaried(row, _images_of(shown, samples, comm)))
    by_prompt = {row.prompt: row.w1kp for row in rows}
    return sum(by_prompt[name] for name in names) / len(names), least, curve


def _images_of(indices: list[int], samples: Samples, comm: Collective) -> Tensor:
    """Return the images of samples [k, C, H, W], wherever they are, in that order and on the CPU."""
    mine = torch.isin(samples.indices, torch.tensor(indices, device=samples.indices.device))
    images, found = comm.gather_rows(samples.images[mine]).cpu(), comm.gather_rows(samples.indices[mine]).tolist()
    return images[[found.index(i) for i in indices]]


@dataclass(frozen=True, eq=False)
class DiversityPresenter(Presenter[DiversityEvaluation]):
    """Shows how varied the samples are, the prompts that lost their variety, and the model's own modes.

    Attributes:
        prompts: sample i has prompt i modulo their number; None for a generator without prompts.
        n: samples per evaluation.
        value_range: lowest and highest value of a real image; None without them.
        lost: prompts that have lost their variety, the surest first.
        least_varied: prompts of the last evaluation, the least varied first; none without a calibration.
        note: last line of the summary.
    """

    prompts: Prompts | None
    n: int
    value_range: tuple[float, float] | None
    lost: Sequence[Change] = ()
    least_varied: Sequence[PromptVariability] = ()
    note: str = ""

    title = "Variety of the samples"
    figures_to_keep = ("modes", "least_varied")

    def summary(self, findings: Sequence[Finding], history: History) -> str:
        """Return the last evaluation value by value, the highest so far, what real images get, and some prompts."""
        last, rows = history[-1], []
        for spec in SCORES:
            if spec.key in last:
                most = max((record for record in history if spec.key in record), key=lambda record: record[spec.key])
                real = "".join(f"{last[x.key]:.3f}" for x in REAL if x.baseline_of == spec.key and x.key in last)
                highest = f"{most[spec.key]:>12.3f} at epoch {most['epoch']:<6g}"
                rows.append(f"{spec.title:<32}{last[spec.key]:>9.3f}{highest}{real:>12}")
        # repr, since what a prompt holds must not move a terminal's cursor
        least = [f"{row.w1kp:>6.2f} {row.level:<6} {str(row.prompt)[:60]!r}" for row in self.least_varied]
        least = ["The least varied prompts, by W1KP and level of likeness", *least] if least else []
        gone = [f"{_kept(change):>6} {quoted(change.prompt)}, best at epoch {change.epoch:g}" for change in self.lost]
        gone = ["Prompts that lost their variety, by what is left of their spread", *gone] if gone else []
        head = f"{'':<32}{'last':>9}{'highest':>12}{'':>16}{'real images':>13}"
        title = f"Variety of the samples, epoch {last['epoch']:g}, {self.n} images"
        return "\n".join(["", title, head, *rows, *gone, *least, *filter(None, [self.note]), ""])

    def tables(self, evaluation: DiversityEvaluation) -> Mapping[str, Table]:
        """Return how close the images of each prompt are to it and to its real images, where that can be measured."""
        out = {}
        if evaluation.followed is not None and self.prompts is not None:
            out["prompts"] = fidelity_table(evaluation.followed, self.prompts.distinct)
        if evaluation.classes:
            out["classes"] = class_table(class_data(evaluation.classes))
        return out

    def figures(self, evaluation: DiversityEvaluation, history: History, samples: Samples) -> Mapping[str, Drawing]:
        """Return what draws the samples at both ends of the model's own modes."""
        images = samples.images
        value_range = self.value_range or (float(images.min()), float(images.max()))
        return evaluation_figures(evaluation, self.prompts, value_range)
