# SPDX-License-Identifier: Apache-2.0
"""One call that finds where generated images are wrong, the kind of fault, and the share that it explains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from genmonitor._formatting import as_sentence
from genmonitor._html import text_html
from genmonitor._validation import check_at_least, check_bool, check_min_samples, check_samples
from genmonitor.evaluation.diagnosed_areas import UNEXPLAINED, diagnose_areas, fault_kinds, find_areas, no_difference
from genmonitor.evaluation.single_samples import SingleSamples
from genmonitor.findings.finding import CLAIM, Area, Finding
from genmonitor.functional.diagnosis.area import AreaDiagnosis
from genmonitor.functional.diagnosis.fit import put_faults, working
from genmonitor.functional.diagnosis.images import Images
from genmonitor.functional.diagnosis.kinds import FAULT_MODELS, KINDS, FaultModel, Kind, Models
from genmonitor.functional.diagnosis.kinds.variety import Copies, Modes
from genmonitor.functional.diagnosis.readings import READINGS, Reading, checked_readings, usable_readings
from genmonitor.functional.permutation import MIN_SAMPLES, own_draws
from genmonitor.images.compared_sets import range_doubt, repeat_notes, signatures_of
from genmonitor.partition import PixelPartition

EXAMPLES = 6
PATCH, STEP = 16, 8
"""Side of the patches of unaligned images in pixels, and the step between their places."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Result of `diagnose`. `str()` gives it in words; a notebook shows the same.

    Faults are put into real images. Their strength is the one that brings real images closest to the generated ones on
    one half of them. On the other half the share explained is 1 - D(generated, real with the fault) / D(generated,
    real). D is MMD² without bias, summed over gammas of the kernel and over pixels and whitened pixels, each in
    standard deviations of chance. A fault is named if it explains at least 20 % and real images with it are closer by
    the relative similarity test.

    Attributes:
        findings: Findings, the one that explains most of the image's distance first. Each has an `area` with its
            `mask`, `kinds` with strength and share, `p`, and `samples`, the indices of the generated images that show
            it most clearly.
        areas: Numbers behind the findings by the name of the area: distance, spread, nearest and more.
        map: Result of `genmonitor.functional.discrepancy_map`; None if areas were given.
        average: Mean of the real images [C, H, W].
        examples: Images [n, C, H, W] by caption; empty for features. They are real images, the same with the faults of
            the first finding if it has any, and the generated images that show it most clearly.
        too_rare: Indices of real images whose kind is too rare among generated ones; empty if no kind is missing and
            proportions explain less than 20 %.
        too_frequent: Indices of real images whose kind is too frequent; empty if proportions explain less than 20 %.
        left_out: Fault models that were not tried, with the reason.
        failures: Fault models that failed, in sentences.
        singles: Copies, strange samples, and real images unlike every sample; None if an area or regions were given.
        p: P-value of the findings, adjusted for all searches; faults are judged on images not used for fitting. A fault
            is claimed only if it is 0.02 or less.

    References:
        Kulinski and Inouye, "Towards Explaining Distribution Shifts", ICML 2023, arXiv 2210.10275.
        Bounliphone et al., "A Test of Relative Similarity For Model Selection in Generative Models", arXiv 1511.04581.
    """

    findings: tuple[Finding, ...]
    areas: dict[str, AreaDiagnosis]
    map: dict[str, Tensor] | None
    average: Tensor
    examples: dict[str, Tensor]
    too_rare: tuple[int, ...]
    too_frequent: tuple[int, ...]
    left_out: tuple[str, ...]
    failures: tuple[str, ...]
    singles: SingleSamples | None = None
    p: float = 1.0

    @property
    def proportions(self) -> float:
        """Share of the whole image's distance due to correct images in wrong proportions; the rest is realism."""
        return max((found.proportions for found in self.areas.values() if bool(found.mask.all())), default=0.0)

    def of_image(self) -> dict[str, float]:
        """Return the numbers of the whole image that have curves; none if only other areas were diagnosed."""
        whole = next((x for x in self.areas.values() if bool(x.mask.all())), None)
        if whole is None:
            return {}
        first = self.findings[0]
        explained = sum(kind.share for kind in first.kinds if kind.name != Modes.name)
        if explained and first.area.mask is not None and not bool(first.area.mask.all()):
            explained = self.areas[first.area.name].of_image if first.area.name in self.areas else 0.0
        explained = min(1.0, explained)
        values = {"p_finding": self.p, "spread": whole.spread, "nearest_sample": whole.nearest, "explained": explained}
        values["proportions"] = min(whole.proportions, max(0.0, 1.0 - explained))
        return values | ({} if self.singles is None else self.singles.values())

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a generated image and the real one that it copies; empty if there are no more than by chance."""
        return () if self.singles is None else self.singles.copies

    def __str__(self) -> str:
        """Return the findings without details, one per line, then fault models that were left out or failed."""
        return "\n".join([*(str(x) for x in self.findings if not x.detail), *self.left_out, *self.failures])

    def __repr__(self) -> str:
        return f"Diagnosis({self.findings[0]})"

    def _repr_html_(self) -> str:
        """Return the findings for a notebook, the first in bold."""
        return text_html(str(self))

    def without_claims(self) -> Diagnosis:
        """Return the diagnosis without claims of faults, if the p-value of all tests does not support them."""
        areas = [x.area for x in self.findings if x.area.name in self.areas]
        if self.map is not None:  # areas that were searched are claims too
            areas = [Area(name, mask=x.mask) for name, x in self.areas.items() if bool(x.mask.all())]
        fine = (no_difference(area, self.p) for area in areas)
        findings = (*fine, *(x for x in self.findings if x.fine is None))
        return replace(self, findings=findings, too_rare=(), too_frequent=())

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain Python that JSON can hold; None for undefined numbers."""
        numbers = ("distance", "p", "proportions", "spread", "nearest", "of_image")

        def of_area(found: AreaDiagnosis) -> dict[str, float | None]:
            values = {key: getattr(found, key) for key in numbers}
            return {key: value if math.isfinite(value) else None for key, value in values.items()}

        return {
            "findings": [finding.to_dict() for finding in self.findings],
            "areas": {name: of_area(found) for name, found in self.areas.items()},
            "map": None if self.map is None else {key: value.tolist() for key, value in self.map.items()},
            "p": self.p,
            **{name: list(getattr(self, name)) for name in ("too_rare", "too_frequent", "left_out", "failures")},
            "copies": [list(pair) for pair in self.copies],
        }


def diagnose(
    fake: Tensor,
    real: Tensor,
    *,
    area: Tensor | None = None,
    partition: PixelPartition | None = None,
    fault_models: Sequence[FaultModel] | None = None,
    readings: Sequence[Reading] | None = None,
    aligned: bool = True,
    encoded: bool = False,
    skip_failing: bool = False,
    train: Tensor | None = None,
    train_indices: Sequence[int] | None = None,
    fake_indices: Sequence[int] | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Find where generated images are wrong, the kind of fault, and the share of the difference that it explains.

    `Diagnosis` describes the method. At most 500 images of each side are used. Give both sets by name: sets that
    change places give a plausible answer to another question.

    Args:
        fake: Generated images [N, C, H, W] in the value range of `real`, or features [N, D]; N at least 8.
        real: Real images [M, C, H, W] or features [M, D]; M at least 8.
        area: Boolean mask [H, W] of the pixels to diagnose; None to find areas by the discrepancy map.
        partition: Regions to diagnose one by one instead of an area.
        fault_models: Fault models to try instead of `FAULT_MODELS` of `genmonitor.functional.diagnosis.kinds`.
        readings: Readings to compare instead of `READINGS` of `genmonitor.functional.diagnosis.readings`.
        aligned: True if the same place shows the same thing in all images, as in faces or scans. If False, patches of
            at most 16 pixels a side from random places are compared, and findings name kinds but no places.
        encoded: True if samples come from an encoder, so that faults of pixels, such as blur, are left out.
        skip_failing: True to list fault models and readings that fail in `failures` instead of raising their errors.
        train: Training images or features to find copies of; None for copies of a random half of the real images.
        train_indices: Numbers of the training images in findings, such as those of a data set; None for 0, 1 …
        fake_indices: Numbers of the generated images in findings, likewise.
        seed: Seed of the halves and of random faults.

    Raises:
        TypeError: If a side holds no real numbers, or another argument is of another type.
        ValueError: If shapes or value ranges differ, samples are too few or not finite, or arguments exclude each
            other. Also if a fault model or reading does not return finite values of the expected shape.

    Example:
        >>> images = torch.rand(400, 1, 8, 8, generator=torch.Generator().manual_seed(0)).cumsum(3) / 8
        >>> fake, real = images[:200].clone(), images[200:]
        >>> fake[:, :, 4:, 4:] += 0.2
        >>> corner = (torch.arange(8) >= 4) & (torch.arange(8) >= 4)[:, None]
        >>> diagnose(fake=fake, real=real, area=corner).findings[0].kinds[0].name
        'brighter'
    """
    placed = not (area is None and partition is None)
    fake, real, pixels = _checked(fake, real, placed, aligned, encoded, skip_failing, seed)
    given = fake, real
    if not aligned:
        fake, real = (_patches(x, seed + side) for side, x in enumerate(given))
    own = own_draws(*given).nonzero()[:, 0]
    real = real[own]
    models, left_out = _models(fault_models, pixels, "" if aligned else "×".join(map(str, real.shape[2:])))
    failed: list[str] = []
    images = Images.of(fake, real, seed, _readings(readings, real, aligned, failed, skip_failing) if pixels else ())
    drawn, masks = find_areas(images.fake, images.real, area, partition, aligned, seed)
    models = working(models, images.fake, images.real, failed, skip_failing)
    areas, findings = diagnose_areas(images, drawn, masks, models)
    whole = next((mask for _, mask, _ in masks if bool(mask.all())), None)
    numbers = range(len(fake)) if fake_indices is None else fake_indices
    singles = None if whole is None else SingleSamples.of(*given, train, train_indices, numbers, aligned)
    if singles is not None and whole is not None:
        findings = _with_others(findings, singles, whole, any(x.missing for x in areas.values()))
    if not skip_failing:
        left_out += tuple(as_sentence(note) for note in repeat_notes("real images", signatures_of(given[1])))
    rare, frequent = (tuple(own[list(some)].tolist()) for some in _extremes(images, areas))
    p = _p_of_all(findings, areas, drawn, single=singles is not None)
    notes = left_out, tuple(failed)
    found = Diagnosis(tuple(findings), areas, drawn, real.mean(0).cpu(), {}, rare, frequent, *notes, singles, p)
    found = found if found.p <= CLAIM else found.without_claims()
    examples = _examples(fake, real, images, found.findings[0], areas)
    if singles is not None and singles.copies:
        examples["the real images that they copy"] = singles.originals[:EXAMPLES]
    named = tuple(replace(x, samples=tuple(numbers[i] for i in x.samples)) for x in found.findings)
    return replace(found, findings=named, examples=examples)


def _checked(
    fake: Tensor, real: Tensor, placed: bool, aligned: bool, encoded: bool, skip_failing: bool, seed: int
) -> tuple[Tensor, Tensor, bool]:
    """Return both sides as images, with features as images of one pixel, and True if their values are pixels."""
    check_at_least("seed", seed, 0)
    for name, value in {"aligned": aligned, "encoded": encoded, "skip_failing": skip_failing}.items():
        check_bool(name, value)
    real = check_samples("real", real)
    fake = check_samples("fake", fake, tuple(real.shape[1:]))
    check_min_samples("fake", fake, MIN_SAMPLES)
    check_min_samples("real", real, MIN_SAMPLES)
    # float32 suffices for the shares of faults, and its products are twice as fast
    fake, real = fake.detach().float(), real.detach().float().to(fake.device)
    pixels = real.ndim == 4 and not encoded
    # a fault may make some values negative, but few of them by much
    doubt = range_doubt(real, fake, depth=0.5) if pixels and not skip_failing else None
    if doubt:
        raise ValueError(f"Expected `fake` in the value range of `real`, but {doubt}. Scale one of them.")
    if real.ndim == 2 and not aligned:
        raise ValueError("Expected images for aligned=False, but got features, which have no places. Leave it out.")
    if real.ndim == 2:
        fake, real = fake[:, :, None, None], real[:, :, None, None]
    if placed and not aligned:
        raise ValueError("Expected no `area` or `partition` with aligned=False, which has no places. Leave it out.")
    return fake, real, pixels


def _p_of_all(
    findings: Sequence[Finding], areas: Mapping[str, AreaDiagnosis], drawn: Mapping[str, Tensor] | None, single: bool
) -> float:
    """Return the p-value of findings: places are one half of it; single samples, if searched, are the other half."""
    found = [x.p for x in areas.values()]
    # of the map and of the whole image, or of each area given
    places = len(found) * min(found) if drawn is None else 2 * min(*found, float(drawn["p"]))
    if not single:
        return min(1.0, places)
    copied = [x for x in findings if x.kinds[:1] and x.kinds[0].name == Copies.name]
    beside = [x for x in findings if x.fine is False and x.area.name not in areas] + copied
    # tests besides those of places: copies, near twins, strange samples, real images unlike every sample
    return min(1.0, 2 * min([places, *(4 * x.p for x in beside if x.p is not None)]))


def _with_others(findings: list[Finding], singles: SingleSamples, whole: Tensor, missing: bool) -> list[Finding]:
    """Add the findings of single samples, with the main one first.

    A named fault makes many samples strange. These are then details, except for a few extreme samples. So are real
    images unlike any sample where kinds of images are `missing`: another count of the same.
    """
    wrong, fine = ([x for x in findings if bool(x.fine) is of] for of in (False, True))
    copied = singles.memorized(whole)
    wrong = _with_copies(wrong, copied)
    explained = any(x.kinds for x in wrong)
    others = singles.strangest(explained)
    others += [replace(x, detail=explained or missing) for x in singles.without_samples()]
    said = [x for x in others if x.fine is False or (wrong and not x.detail)]
    count = 2 + len(copied)
    return [*wrong[:count], *said, *wrong[count:], *fine, *(x for x in others if x not in said)]


def _with_copies(wrong: list[Finding], copied: list[Finding]) -> list[Finding]:
    """Add the finding of copies of real images: first if most images are such, or if no other is named."""
    few = bool(copied) and copied[0].kinds[0].strength < 0.5
    first = wrong[:1] if few and wrong[:1] and wrong[0].verdict != UNEXPLAINED else []
    found = [*first, *copied, *wrong[len(first) :]]
    if [kind.name for x in found[:1] for kind in x.kinds] == [Copies.name]:
        # which no fault of single images explains
        found = [x if x.kinds else replace(x, detail=True) for x in found]
    return found


def _patches(images: Tensor, seed: int) -> Tensor:
    """Cut a patch out of each image, at a random place in steps of the period of the fault models' patterns."""
    height, width = (min(PATCH, size) for size in images.shape[2:])
    generator = torch.Generator().manual_seed(seed)
    tops, lefts = (
        (STEP * torch.randint((size - part) // STEP + 1, (len(images),), generator=generator)).to(images.device)
        for size, part in zip(images.shape[2:], (height, width), strict=True)
    )
    rows, columns = (torch.arange(part, device=images.device) for part in (height, width))
    at = torch.arange(len(images), device=images.device)[:, None, None]
    cut = images.permute(0, 2, 3, 1)[at, (tops[:, None] + rows)[:, :, None], (lefts[:, None] + columns)[:, None]]
    return cut.permute(0, 3, 1, 2).contiguous()


def _examples(
    fake: Tensor, real: Tensor, images: Images, finding: Finding, areas: Mapping[str, AreaDiagnosis]
) -> dict[str, Tensor]:
    found = areas.get(finding.area.name)
    said = found.readings[:1] if found and not finding.kinds and finding.samples == found.samples else ()
    order = images.chosen_real[said[0].typical] if said else images.chosen_real
    shown = real[order[:EXAMPLES].to(real.device)]
    out = {f"real, with typical {said[0].reading.name}" if said else "real": shown}
    # proportions and copies change no real image, and other explanations of their area are not the finding
    of_area = () if found is None else fault_kinds(found.explained)
    changes = bool(finding.kinds) and finding.kinds == of_area and KINDS.get(finding.kinds[0].name, Kind).changes_images
    if found and found.explained and changes:
        low, high = float(real.min()), float(real.max())
        scaled = (shown - low) / ((high - low) or 1.0)
        faulty = put_faults(scaled, found.explained.faults, found.mask.to(real.device), images.range, images.seed)
        faults = "fault" if len(finding.kinds) == 1 else "faults"
        out[f"real, with the {faults} put in"] = faulty * ((high - low) or 1.0) + low
    if found and found.missing:
        out["real, hardly ever sampled"] = real[list(found.missing.examples[:EXAMPLES])]
    chosen = torch.tensor(finding.samples[:EXAMPLES] or range(min(EXAMPLES, len(fake))), device=fake.device)
    out["generated, those that show it most" if finding.samples else "generated"] = fake[chosen]
    return {name: some.cpu() for name, some in out.items()}


def _models(given: Sequence[FaultModel] | None, pixels: bool, patch: str) -> tuple[Models, tuple[str, ...]]:
    """Return the fault models to try, and sentences on those left out, and on places if patches are compared."""
    models: Models = FAULT_MODELS if given is None else given
    for model in models:
        if not isinstance(model, FaultModel):
            raise TypeError(
                f"Expected `fault_models` to have `name`, `unit`, `strengths` and `apply`, but got {model!r}. See "
                "genmonitor.functional.diagnosis.kinds.FaultModel."
            )
    kept = [model for model in models if pixels or not getattr(model, "of_pixels", False)]
    gone = sorted({model.name for model in models} - {model.name for model in kept})
    left_out = [f"Left out, as they are of pixels: {', '.join(gone)}."] if gone else []
    if patch:
        compared = f"patches of {patch} px from random places were compared"
        left_out.append(f"No place is said, as images are not aligned: {compared}.")
    return kept, tuple(left_out)


def _readings(
    given: Sequence[Reading] | None, real: Tensor, aligned: bool, failures: list[str], skip_failing: bool
) -> list[Reading]:
    """Return the readings to compare that apply to the images."""
    if given is None:
        return usable_readings(READINGS, real, aligned)
    low, span = float(real.min()), float(real.max() - real.min()) or 1.0
    return checked_readings(given, (real - low) / span, aligned, failures, skip_failing)


def _extremes(images: Images, areas: Mapping[str, AreaDiagnosis]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the real images with the lowest and highest weights, if proportions explain something, or missing ones."""
    for found in areas.values():
        if found.weights is not None and found.explained and found.explained.faults[0].model.name == Modes.name:
            order = images.chosen_real[found.weights.argsort().cpu()].tolist()
            # eight are named as too rare, and eight as too frequent
            return tuple(order[:8]), tuple(order[::-1][:8])
        if found.missing:
            return found.missing.examples, ()
    return (), ()
