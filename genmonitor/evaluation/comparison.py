# SPDX-License-Identifier: Apache-2.0
"""One call that finds where generated images differ from real ones, or which of two sets is closer to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor._formatting import RESOLUTION, Band, as_sentence
from genmonitor._html import figure_html, text_html
from genmonitor._io import Progress, no_progress
from genmonitor._validation import check_images, plain
from genmonitor.distributed import Collective, SingleProcess
from genmonitor.evaluation import classes as by_class
from genmonitor.evaluation.evaluator import PROBE, evaluate_fitted
from genmonitor.evaluation.pixel_clusters import RegionEvaluator
from genmonitor.evaluation.regions import closer
from genmonitor.evaluation.regions.evaluation import RegionEvaluation
from genmonitor.evaluation.regions.presenter import (
    SHOWN,
    diagnosis_figures,
    region_data,
    region_table,
    side_by_side,
)
from genmonitor.evaluation.regions.values import P
from genmonitor.evaluation.results import ShownImages
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.findings.finding import CLAIM, Finding, headlines
from genmonitor.findings.tables import Table, on_screen
from genmonitor.findings.values import ValueSpec
from genmonitor.functional.relative_similarity import relative_similarity_from_influences
from genmonitor.images.compared_sets import check_left, check_paired, check_set, overlap_notes, sample_size
from genmonitor.images.image_set import ImageSet
from genmonitor.images.sampler import Samples
from genmonitor.partition import PixelPartition


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Result of `compare`. `str()` gives it in words and as a table; a notebook shows the figure too.

    Some of the real images serve to find the regions and the baseline. The others, one for each generated image, are
    compared with; `split` reports the numbers. All images are read once, to check them and to find copies; memory holds
    only those that are compared. These are at most `n_samples` of the settings, and 5/11 of the real ones, so that the
    draws of the baseline differ.

    With labels, each class is tested against the real images of its class, at one level for all classes, and those that
    differ are diagnosed. At most 500 images of a class are compared on each side.

    Attributes:
        names: Names of the generated sets, one or two.
        evaluator: Evaluator fitted to the real images.
        evaluations: Evaluation of each generated set.
        shown: Some images of each generated set [n, C, H, W].
        differences: For two sets, the difference between them for the image and each region; else None. The keys are
            "difference" (MMD² of the second set minus that of the first), "standard_error", "p_value" and
            "p_value_adjusted" for all regions together.
        n_real: Number of real images given.
        n_samples: Number of images of each generated set that were compared.
        notes: Notes for the user.
        classes: Result of each class; empty without labels.
        copies: Pairs of indices of an image of the first generated set and the training (or real) image that it copies,
            the nearest first. Empty if there are no more copies than by chance.

    References:
        Schrab et al., "MMD Aggregated Two-Sample Test", arXiv 2110.15073.
        Bounliphone et al., "A Test of Relative Similarity For Model Selection in Generative Models", arXiv 1511.04581.
    """

    names: tuple[str, ...]
    evaluator: RegionEvaluator
    evaluations: tuple[RegionEvaluation, ...]
    shown: tuple[Tensor, ...]
    differences: dict[str, dict[str, float]] | None
    n_real: int
    n_samples: int
    notes: tuple[str, ...]
    classes: tuple[by_class.ClassResult, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()

    @property
    def values(self) -> dict[str, float]:
        """Values of the first generated set, named as `PixelClusterMonitor` logs them."""
        return self.evaluations[0].values

    @property
    def specs(self) -> list[ValueSpec]:
        """Declarations of the values."""
        return [*self.evaluator.values(), *([by_class.P_CLASS] if self.classes else [])]

    @property
    def partition(self) -> PixelPartition:
        """The regions."""
        return self.evaluator.fitted.regions.partition

    @property
    def baseline(self) -> dict[str, Band]:
        """Values of real images in place of generated ones: lower end, median and upper end, by value.

        Values that are the same in all draws, as for pixels that hardly vary, have no band.
        """
        return {name: band for name, band in self.evaluator.baseline.items() if band[2] - band[0] > RESOLUTION}

    @property
    def finding(self) -> str:
        """Main finding in words."""
        return str(self.findings[0])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the main one before those of each region."""
        found = self.evaluations[0].findings
        if self.classes:
            return by_class.with_classes(found, self.classes)
        if self.differences is None:
            return found
        firsts = [evaluation.findings[0] for evaluation in self.evaluations]
        of_each = [replace(x, text=f"{name}: {x.text}") for name, x in zip(self.names, firsts, strict=True)]
        details = [replace(x, detail=True) for x in found]
        return (closer.which_is_closer(self.differences, self.names), *of_each, *details)

    @property
    def split(self) -> str:
        """Use of the real images, in one sentence."""
        given = self.evaluator.settings.partition is not None
        found = "the baseline" if given else "the regions and the baseline"
        compared, each = self._compared(), " of each set" * (len(self.evaluations) > 1)
        of_real = f"{self.n_real} real images: {self.n_real - compared} for {found}"
        return f"{of_real}, {compared} compared with {self.n_samples} generated ones{each}"

    def _compared(self) -> int:
        return len(self.evaluator.fitted.real_origin["indices"])  # of all processes

    @property
    def table(self) -> Table | None:
        """Table of the closer of two sets, region by region; None for one set."""
        if self.differences is None:
            return None
        sizes, regions = self.partition.sizes(), self.partition.regions()
        sites = {"image": sum(sizes)} | {name: sizes[label] for name, label in regions.items()}
        return closer.closer_table(self.differences, [found.values for found in self.evaluations], self.names, sites)

    @property
    def tables(self) -> list[Table]:
        """The tables that `str()` shows: of regions or which set is closer, and of classes where there are labels."""
        regions = region_table(region_data(self.evaluations[0].findings, self.values, self.partition))
        return [self.table or regions, *([by_class.class_table(self.classes)] if self.classes else [])]

    def __str__(self) -> str:
        """Return the findings, the images they are based on, the table and the notes as text."""
        title = f"Regions, {self.n_samples} images\n" if self.table is None else ""
        tables = f"\n{title}" + "".join(f"{on_screen(table)}\n\n" for table in self.tables).removesuffix("\n")
        notes = [f"Note: {as_sentence(note)}" for note in self.notes]
        return "\n".join([*map(str, headlines(self.findings)), f"{self.split}.", tables, *notes]).rstrip("\n")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain Python that JSON can hold."""
        compared = self._compared()
        found = {
            "finding": self.finding,
            "findings": [finding.to_dict() for finding in headlines(self.findings)],
            "split": self.split,
            "names": list(self.names),
            "values": dict(self.values),
            "regions": region_data(self.evaluations[0].findings, self.values, self.partition),
            "baseline": {name: list(band) for name, band in self.baseline.items()},
            "real_images": {"given": self.n_real, "compared": compared, "for_regions": self.n_real - compared},
            "n_samples": self.n_samples,
            "gamma": self.evaluator.kernel.gamma,
            "notes": list(self.notes),
            "copies": [list(pair) for pair in self.copies],
        }
        if self.classes:
            found["classes"] = by_class.class_data(self.classes)
        if self.differences is not None:
            found["other_values"] = dict(self.evaluations[1].values)
            found["differences"] = {name: dict(test) for name, test in self.differences.items()}
        return found

    def figure(self) -> Figure:
        """Draw real images beside those of each generated set, below the region that differs most."""
        fitted = self.evaluator.fitted
        real = {"real": fitted.real} if len(fitted.real) else {}  # the first of many processes may have none
        sets = real | dict(zip(self.names, self.shown, strict=True))
        return side_by_side(sets, self.findings, fitted.regions.value_range, self.split)()

    def shown_images(self) -> dict[str, ShownImages]:
        """Return real images, and some of each generated set with the nearest real image of each."""
        presenter = self.evaluator.presenter()
        sets = {"real": presenter.shown_real()}
        for name, images in zip(("images", "other_images"), self.shown, strict=False):
            sets[name] = presenter.shown_samples(Samples(images, torch.arange(len(images))))
        return {name: shown for name, shown in sets.items() if shown is not None}

    def diagnosis_figures(self) -> dict[str, Figure]:
        """Draw the place and kinds of faults, and odd images; nothing for two sets or without a diagnosis."""
        diagnosis, value_range = self.evaluations[0].diagnosed.diagnosis, self.evaluator.fitted.regions.value_range
        if self.differences is not None or diagnosis is None:
            return {}
        return {name: draw() for name, draw in diagnosis_figures(diagnosis, self.findings[0], value_range).items()}

    def __repr__(self) -> str:
        return f"Comparison({self.finding})"

    def _repr_html_(self) -> str:
        """Return the text and the figures for a notebook."""
        figures = self.diagnosis_figures() | {"real and generated images": self.figure()}
        drawn = [figure_html(figure, name.replace("_", " ")) for name, figure in figures.items()]
        return "".join([text_html(str(self)), *drawn])


def compare(
    real: Any,
    fake: Any,
    other: Any = None,
    *,
    settings: RegionSettings | None = None,
    paired: bool = False,
    comm: Collective | None = None,
    real_labels: Sequence[str] | Sequence[int] | Tensor | None = None,
    fake_labels: Sequence[str] | Sequence[int] | Tensor | None = None,
    train: Tensor | None = None,
    device: torch.device | str | None = None,
    progress: Progress = no_progress,
    refuse_shared: bool = False,
) -> Comparison:
    """Find where generated images differ from real ones by more than chance, or which of two sets is closer to them.

    A set is a tensor, or a Dataset or DataLoader whose images are read when needed; see `Comparison` for their use.
    Give them by name: sets that change places give a plausible answer to another question.

    Args:
        real: Images [N, C, H, W] that the generator was not trained on; otherwise p-values may be too small or too
            large. N is at least 5; without a partition, 10 images, and 2 per cluster, must be left to find the regions.
        fake: Generated images [M, C, H, W] in the same value range; M at least 2, or 8 for a test.
        other: Generated images [K, C, H, W] of another model. N, M and K are then at least 8.
        settings: Settings of the comparison, such as `RegionSettings(n_clusters=5)`; None for the defaults.
        paired: True if images i of `fake` and `other` were drawn from the same seed or prompt.
        comm: Processes that measure together, each called with the same images; None for this process alone.
        real_labels: Class or prompt of each real image [N], strings or integers, to find the classes that are wrong.
        fake_labels: Class or prompt of each generated image [M]; only for a single generated set.
        train: Images [T, C, H, W] that the generator was trained on, to find copies of them. None to find copies of the
            real images that are not compared with.
        device: Device to compute on; None for that of `fake`, or the CPU if `fake` is not a tensor.
        progress: Progress bar for the steps that take long, such as `genmonitor.evaluation.terminal_progress`.
        refuse_shared: True to refuse generated sets of which half or more are real images, as in a gate that must not
            pass for nothing; otherwise a note says so.

    Raises:
        TypeError: If an argument is of another type, or a tensor does not hold real numbers.
        ValueError: If images are too few or not finite, or shapes, value ranges, labels or paired sets do not match.

    Example:
        >>> images = torch.rand(500, 1, 4, 4, generator=torch.Generator().manual_seed(1))
        >>> real, fake = images[:300], images[300:].clone()
        >>> fake[..., 2:] *= 0.5
        >>> halves = RegionSettings(partition=PixelPartition.grid((4, 4), rows=1, columns=2))
        >>> print(compare(real=real, fake=fake, settings=halves).finding)
        Right half, 2×4 px: contrast − 48 %; explains 100 % of what is wrong there (p = 0.001).
    """
    of, comm = _checked_settings(settings), comm or SingleProcess()
    device = torch.device(device or (plain(fake).device if isinstance(fake, Tensor) else "cpu"))
    real, sets = _checked_sets(real, fake, other, of, paired, comm)
    train = None if train is None else check_images("train", train, real.shape)
    labels = by_class.checked_labels(fake_labels, real_labels, sets, len(real))
    n, notes = sample_size(len(real), min(map(len, sets.values())), of.n_samples, other is not None)
    notes += overlap_notes(sets, real, train, comm, progress, refuse_shared=refuse_shared)
    if of.partition is None:
        check_left(len(real), n, of.n_clusters)
    classes: tuple[by_class.ClassResult, ...] = ()
    if labels:
        classes = by_class.compare_classes(sets["fake"], real, *labels, device, seed=of.seed, aligned=of.aligned)
    evaluator = RegionEvaluator(replace(of, n_samples=n - n % (of.block_size or 1)))
    chosen = {name: images.subset(_choose(len(images), evaluator.n_samples, of.seed)) for name, images in sets.items()}
    probe = chosen["fake"].first(PROBE).to(device)
    with evaluator.threads():
        report = evaluator.fit(ImageSet(real, name="the set of real images"), probe, comm, progress)
    if train is not None and comm.rank == 0:  # which looks for them
        evaluator.look_for_copies_of(train)
    evaluator.of_classes = by_class.smallest_p(classes)
    evaluations = tuple(_evaluate(evaluator, images, device, comm, progress) for images in chosen.values())
    for name, found in zip(chosen, evaluations, strict=True):
        notes += [note if other is None else f"of `{name}`, {note}" for note in found.notes]
    if evaluations[0].values.get(P, 0.0) > CLAIM:
        classes = by_class.unclaimed(classes)
    shown, differences = tuple(images.first(SHOWN) for images in chosen.values()), _differences(evaluations, paired)
    of_sets = (tuple(sets), evaluator, evaluations, shown, differences, len(real), evaluator.n_samples)
    return Comparison(*of_sets, (*report.notes, *notes), classes, evaluations[0].copies)


def _checked_sets(
    real: Any, fake: Any, other: Any, of: RegionSettings, paired: bool, comm: Collective
) -> tuple[ImageSet, dict[str, ImageSet]]:
    """Return the real images and the generated sets by name."""
    given = {"real": real, "fake": fake} | ({} if other is None else {"other": other})
    sets = {name: ImageSet(images, name=f"`{name}`") for name, images in given.items()}
    real = sets.pop("real")
    with comm.all_ranks_or_none():
        for name, images in sets.items():
            check_set(name, images, real, of.patch_size or 1)
    check_paired(paired, sets)
    return real, sets


def _evaluate(
    evaluator: RegionEvaluator, images: ImageSet, device: torch.device, comm: Collective, progress: Progress
) -> RegionEvaluation:
    """Evaluate a generated set, of which each process reads its part."""
    mine = comm.rank_indices(evaluator.n_samples)
    with comm.all_ranks_or_none():
        samples = Samples(images.read(mine, progress).to(device), torch.tensor(images.indices)[mine])
    return evaluate_fitted(evaluator, samples, evaluator.settings.seed, comm)


def _checked_settings(settings: RegionSettings | None) -> RegionSettings:
    """Return the settings of a comparison: a single evaluation with a diagnosis."""
    if not isinstance(settings, (RegionSettings, type(None))):
        raise TypeError(
            f"Expected `settings` to be RegionSettings, but got {type(settings).__name__}. "
            "Give them as in settings=RegionSettings(n_clusters=5)."
        )
    return settings or RegionSettings()


def _choose(count: int, n: int, seed: int) -> list[int]:
    """Return n indices at random, the same ones for two sets of one size, which may be paired."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:n].tolist()


def _differences(evaluations: Sequence[RegionEvaluation], paired: bool) -> dict[str, dict[str, float]] | None:
    """Return the test of relative similarity of two sets in each region; None for one set."""
    sides = [found.influence for found in evaluations if found.influence is not None]
    if len(sides) < 2:
        return None
    found = relative_similarity_from_influences(sides[0], sides[1], paired=paired, alternative="different")
    return {name: {field: float(x) for field, x in test._asdict().items()} for name, test in found.items()}
