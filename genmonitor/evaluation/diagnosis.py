# SPDX-License-Identifier: Apache-2.0
"""One call that finds where generated images are wrong, the kind of fault, and the share that it explains."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from genmonitor._html import heading_html, text_html
from genmonitor._places import describe_area, describe_place
from genmonitor._validation import check_at_least, check_bool, check_min_samples, check_samples
from genmonitor.evaluation.bands import band_finding, band_values, bands_of
from genmonitor.evaluation.single_samples import SingleSamples, of_copies
from genmonitor.findings import words as text
from genmonitor.findings.finding import Area, FaultKind, Finding
from genmonitor.functional.areas import significant_areas
from genmonitor.functional.diagnosis.area import MARGIN, AreaDiagnosis, diagnose_area, distance_around
from genmonitor.functional.diagnosis.copies import Repeats, repeats
from genmonitor.functional.diagnosis.distance import Distance, all_views
from genmonitor.functional.diagnosis.explain import Explained
from genmonitor.functional.diagnosis.fit import ADDS, put_faults
from genmonitor.functional.diagnosis.images import Images
from genmonitor.functional.diagnosis.kinds import FAULT_MODELS, KINDS, FaultModel, Kind, Models
from genmonitor.functional.diagnosis.kinds.variety import Copies, Modes
from genmonitor.functional.diagnosis.place import located
from genmonitor.functional.diagnosis.readings import READINGS, Reading, checked_readings, usable_readings
from genmonitor.functional.discrepancy_map import discrepancy_map
from genmonitor.functional.hypothesis_tests.band_energy_test import BandEnergy
from genmonitor.functional.permutation import LEVEL, MIN_SAMPLES
from genmonitor.images.compared_sets import scale_doubt
from genmonitor.partition import PixelPartition

MOSTLY_ALL = ("whole image", "most of the image")
MANY = 0.3
"""Share of images with a near twin from which that is said first, unless another finding explains more."""
ENOUGH = 0.4
"""Part of the image's distance that areas explain from which no fault of the whole image is looked for."""
EXAMPLES = 6
PATCH, STEP = 16, 8
"""Pixels a side of the patches of images that are not aligned, and the steps in which they are placed."""
ANYWHERE = "anywhere"
NamedMask = tuple[str, Tensor, str | None]
"""The name of an area, its mask [H, W], and the region that it is."""
EXTREMES = 8
"""Real images named as too rare, and as too frequent."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Result of `diagnose`. `str()` gives it in words; a notebook shows the same.

    Attributes:
        findings: Findings, the one that explains most of the image's distance first. Each has an `area` with its
            `mask`, `kinds` with strength and share, `p`, and `samples`, the indices of the generated images that show
            it most clearly.
        areas: Numbers behind the findings by the name of the area: distance, spread, nearest and more.
        map: Result of `genmonitor.functional.discrepancy_map`; None if areas were given.
        average: Mean of the real images [C, H, W].
        examples: Images [n, C, H, W] by caption: real images, the same with the faults of the first finding if it has
            any, and the generated images that show it most clearly. Empty for features.
        too_rare: Indices of real images whose kind is too rare among generated ones; empty if proportions explain less
            than 20 %.
        too_frequent: Indices of real images whose kind is too frequent, likewise.
        left_out: Fault models that were not tried, with the reason.
        failures: Fault models that failed, in sentences.
        singles: Copies, strange samples, and real images unlike every sample; None if an area or regions were given.
        bands: Result of `genmonitor.functional.band_energy_test`; None likewise, and for features.
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
    bands: BandEnergy | None = None

    @property
    def proportions(self) -> float:
        """Share of the whole image's distance due to correct images in wrong proportions; the rest is realism."""
        return max((found.proportions for found in self.areas.values() if bool(found.mask.all())), default=0.0)

    @property
    def p(self) -> float:
        """P-value of the findings, adjusted for all searches; faults are judged on images not used for fitting.

        Places are one half of it; single samples and frequency bands, if searched, are the other half.
        """
        found = [x.p for x in self.areas.values()]
        # of the map and of the whole image, or of each area given
        places = len(found) * min(found) if self.map is None else 2 * min(*found, float(self.map["p"]))
        if self.singles is None and self.bands is None:
            return min(1.0, places)
        copied = [x for x in self.findings if x.kinds[:1] and x.kinds[0].name == Copies.name]
        beside = [x for x in self.findings if x.fine is False and x.area.name not in self.areas] + copied
        # tests beside those of places: copies, near twins, strange samples, real images that none is like, sizes of
        # detail
        return min(1.0, 2 * min([places, *(5 * x.p for x in beside if x.p is not None)]))

    def of_image(self) -> dict[str, float]:
        """Return the numbers of the whole image that have curves; none if only other areas were diagnosed."""
        whole = next((x for x in self.areas.values() if bool(x.mask.all())), None)
        if whole is None:
            return {}
        first = self.findings[0]
        explained = sum(kind.share for kind in first.kinds)
        if explained and first.area.mask is not None and not bool(first.area.mask.all()):
            explained = self.areas[first.area.name].of_image if first.area.name in self.areas else 0.0
        explained = min(1.0, explained)
        values = {"p_finding": self.p, "spread": whole.spread, "nearest": whole.nearest, "explained": explained}
        values["proportions"] = min(whole.proportions, max(0.0, 1.0 - explained))
        values |= {} if self.singles is None else self.singles.values()
        return values | ({} if self.bands is None else band_values(self.bands))

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
        return heading_html(str(self.findings[0])) + text_html("\n".join(str(self).split("\n")[1:]))

    def without_claims(self) -> Diagnosis:
        """Return the diagnosis without claims of faults, if the p-value of all tests does not support them."""
        return replace(self, findings=tuple(x if x.fine is not False else _fine(x.area, x.p) for x in self.findings))

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

    Faults are put into real images. Their strength is the one that brings real images closest to the generated ones on
    one half of them. On the other half the share explained is 1 - D(generated, real with the fault) / D(generated,
    real). D is MMD² without bias, summed over gammas of the kernel and over pixels and whitened pixels, each in
    standard deviations of chance. A fault is named if it explains at least 20 % and real images with it are closer by
    the relative similarity test. At most 500 images of each side are used.

    Args:
        fake: Generated images [N, C, H, W] in the value range of `real`, or features [N, D]; N at least 8.
        real: Real images [M, C, H, W] or features [M, D]; M at least 8.
        area: Boolean mask [H, W] of the pixels to diagnose; None to find areas by the discrepancy map.
        partition: Regions to diagnose one by one instead of an area.
        fault_models: Fault models to try instead of `FAULT_MODELS` of `genmonitor.functional.diagnosis.kinds`.
        readings: Statistics of single images to compare instead of `READINGS` of
            `genmonitor.functional.diagnosis.readings`, see `Reading` there.
        aligned: True if the same place shows the same thing in all images, as in faces or scans. If False, as for
            arbitrary photographs, patches from random places are compared, and findings name kinds but no places.
            Images should then be larger than 16 pixels.
        encoded: True if samples come from an encoder, so that faults of pixels, such as blur, are left out.
        skip_failing: True to list fault models and readings that fail in `failures` instead of raising their errors.
        train: Training images or features to find copies of, with `real` as held-out ones. None to find copies of every
            second real image, with the others held out.
        train_indices: Numbers of the training images in findings, such as those of a data set; None for 0, 1 …
        fake_indices: Numbers of the generated images in findings, likewise.
        seed: Seed of the halves and of random faults.

    Raises:
        TypeError: If a side is not a tensor of real numbers, `area` is not one of booleans, a fault model lacks an
            attribute, or a reading is not a `Reading`.
        ValueError: If shapes or scales differ, values are not finite, samples are fewer than 8, or the area is empty or
            has another size. Also if both `area` and `partition` are given, either is given with aligned=False, or
            features are. Also if a fault model or a reading returns another shape, NaN or infinities.

    References:
        Kulinski and Inouye, "Towards Explaining Distribution Shifts", ICML 2023, arXiv 2210.10275.
        Bounliphone et al., "A Test of Relative Similarity For Model Selection in Generative Models", arXiv 1511.04581.

    Example:
        >>> images = torch.rand(400, 1, 8, 8, generator=torch.Generator().manual_seed(0)).cumsum(3) / 8
        >>> fake, real = images[:200].clone(), images[200:]
        >>> fake[:, :, 4:, 4:] += 0.2
        >>> corner = torch.zeros(8, 8, dtype=torch.bool)
        >>> corner[4:, 4:] = True
        >>> diagnose(fake, real, area=corner).findings[0].kinds[0].name
        'brighter'
    """
    check_at_least("seed", seed, 0)
    for name, value in {"aligned": aligned, "encoded": encoded, "skip_failing": skip_failing}.items():
        check_bool(name, value)
    fake, real, pixels = _checked(fake, real, aligned, encoded, skip_failing)
    models, left_out = _models(fault_models, pixels)
    given = fake, real
    if not aligned:
        if area is not None or partition is not None:
            raise ValueError("Expected no `area` or `partition` with aligned=False, which has no places. Leave it out.")
        fake, real = (_patches(x, seed + side) for side, x in enumerate((fake, real)))
        size = "×".join(map(str, real.shape[2:]))
        compared = f"patches of {size} px from random places were compared"
        left_out = (*left_out, f"No place is said, as images are not aligned: {compared}.")
    failed: list[str] = []
    images = Images.of(fake, real, seed, _readings(readings, real, aligned, failed, skip_failing) if pixels else ())
    if aligned:
        drawn, masks = _areas(images.fake, images.real, area, partition, seed)
    else:
        drawn, masks = None, [(ANYWHERE, torch.ones(real.shape[2:], dtype=torch.bool), None)]
    areas, findings = _diagnosed(images, drawn, masks, models, skip_failing)
    extremes = _extremes(images, areas)
    whole = [mask for _, mask, _ in masks if bool(mask.all())]
    numbers = range(len(fake)) if fake_indices is None else fake_indices
    singles = SingleSamples.of(*given, train, train_indices, numbers, aligned) if whole else None
    bands = bands_of(*given, seed) if whole and pixels else None
    if singles is not None:
        of_bands = [] if bands is None else band_finding(bands)
        findings = _with_others(findings, singles, of_bands, whole[0])
    failures = dict.fromkeys([*failed, *(sentence for x in areas.values() for sentence in x.failures)])
    examples = _examples(fake, real, images, findings[0], areas.get(findings[0].area.name))
    if singles is not None and singles.copies:
        among = given[1][::2] if train is None else train
        nearest = singles.copying.nearest[singles.copying.copied[:EXAMPLES]]
        examples["the real images that they copy"] = among[nearest.to(among.device)].cpu()
    named = tuple(replace(x, samples=tuple(numbers[i] for i in x.samples)) for x in findings)
    found = (named, areas, drawn, real.mean(0).cpu(), examples, *extremes, left_out, tuple(failures))
    return Diagnosis(*found, singles, bands)


def _checked(
    fake: Tensor, real: Tensor, aligned: bool, encoded: bool, skip_failing: bool
) -> tuple[Tensor, Tensor, bool]:
    """Return both sides as images, with features as images of one pixel, and True if their values are pixels."""
    real = check_samples("real", real)
    fake = check_samples("fake", fake, tuple(real.shape[1:]))
    check_min_samples("fake", fake, MIN_SAMPLES)
    check_min_samples("real", real, MIN_SAMPLES)
    # what faults explain needs no more than float32, whose products are twice as fast
    fake, real = fake.detach().float(), real.detach().float().to(fake.device)
    pixels = real.ndim == 4 and not encoded
    doubt = scale_doubt(real, fake) if pixels and not skip_failing else None
    if doubt:
        raise ValueError(f"Expected `fake` in the value range of `real`, but {doubt}. Scale one of them.")
    if real.ndim == 2 and not aligned:
        raise ValueError("Expected images for aligned=False, but got features, which have no places. Leave it out.")
    if real.ndim == 2:
        fake, real = fake[:, :, None, None], real[:, :, None, None]
    return fake, real, pixels


def _with_others(findings: list[Finding], singles: SingleSamples, bands: list[Finding], whole: Tensor) -> list[Finding]:
    """Add the findings of single samples and of frequency bands, with the main one first.

    A named fault changes energies and makes many samples strange. These are then details, except for a few extreme
    samples.
    """
    wrong, fine = ([x for x in findings if bool(x.fine) is of] for of in (False, True))
    copied = singles.memorized(whole)
    if [kind.name for x in (copied or wrong)[:1] for kind in x.kinds] == [Copies.name]:
        # which no fault of single images explains
        wrong = [x if x.kinds else replace(x, detail=True) for x in wrong]
    explained = any(x.kinds for x in wrong)
    others = [replace(x, detail=explained) for x in bands] + singles.strangest(explained)
    others += [replace(x, detail=explained) for x in singles.without_samples()]
    said = [x for x in others if x.fine is False or (wrong and not x.detail)]
    return [*copied, *wrong[:2], *said, *wrong[2:], *fine, *(x for x in others if x not in said)]


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


def _diagnosed(
    images: Images,
    drawn: Mapping[str, Tensor] | None,
    masks: list[NamedMask],
    models: Models,
    skip_failing: bool,
) -> tuple[dict[str, AreaDiagnosis], list[Finding]]:
    """Diagnose areas, each a name, mask [H, W] and region; return the measurements by name, and the findings."""
    whole = torch.ones(images.real.shape[2:], dtype=torch.bool)
    image = None
    if not all(bool(mask.all()) for _, mask, _ in masks):
        (_, real_a), (fake_b, real_b) = images.halves
        image = Distance.of(real_a, all_views(real_a, whole), min(len(fake_b), len(real_b)))
    areas: dict[str, AreaDiagnosis] = {}
    findings: list[Finding] = []

    def repeats_another(mask: Tensor) -> bool:
        # intersection over union from which two areas are one
        others = any(_overlap(mask, x.mask) >= 0.5 for x in areas.values())
        return others or describe_area(mask) in MOSTLY_ALL

    for name, mask, region in sorted(masks, key=lambda x: bool(x[1].all())):
        everywhere = bool(mask.all())
        p_map = None if drawn is None or everywhere else _without_others(drawn["p_map"].cpu(), mask, masks)
        # where areas explain most of the image, a fault of all of it would say the same less exactly
        tried, p = models, None
        if everywhere and _is_everywhere(areas.values(), images):
            areas, findings = {}, []
        if everywhere and drawn is not None and _suffice(areas.values()):
            tried, p = (), float(drawn["p"])
        elif p_map is not None:
            p = float(p_map[mask].min())
            mask, tried = located(images, mask, p_map, models, skip_failing)
            if repeats_another(mask):
                continue
        found = diagnose_area(images, mask, tried, None if everywhere else image, skip_failing, p)
        if p_map is not None:
            if repeats_another(found.mask):
                continue
            name = describe_area(found.mask)
        same = sum(x == name or x.startswith(f"{name} (") for x in areas)
        name = f"{name} ({same + 1})" if same else name
        areas[name] = found
        findings.append(_finding(name, region, found))
    findings.sort(key=lambda x: -areas[x.area.name].of_image)
    findings = _each_once(findings, areas, images)
    if any(bool(mask.all()) and name != ANYWHERE for name, mask, _ in masks):
        copies = sorted(_copies(images, whole), key=lambda x: -x.kinds[0].strength)
        most = max((areas[x.area.name].of_image for x in findings if x.fine is False), default=0.0)
        first = [x for x in copies if x.kinds[0].strength >= MANY and x.kinds[0].share >= most]
        findings = [*first, *findings, *(x for x in copies if x not in first)]
    return areas, [x for x in findings if not x.fine] + [x for x in findings if x.fine]


def _without_others(p_map: Tensor, mask: Tensor, masks: list[NamedMask]) -> Tensor:
    """Return the map of an area without the pixels of other areas."""
    for _, other, _ in masks:
        if other is not mask and not bool(other.all()):
            p_map = p_map.masked_fill(other, 1.0)
    return p_map


def _overlap(one: Tensor, other: Tensor) -> float:
    return float((one & other).sum() / (one | other).sum())


def _each_once(findings: list[Finding], measured: Mapping[str, AreaDiagnosis], images: Images) -> list[Finding]:
    """Leave out the whole image if it adds nothing to areas with kinds, and areas that repeat its kind."""
    whole = next((x for x in findings if not x.area.region and x.area.name == "whole image"), None)
    areas = [x for x in findings if x is not whole]
    if whole is None or (not whole.kinds and not any(x.kinds for x in areas)):
        return findings
    if not whole.kinds:
        return areas
    if areas and whole.kinds[0].name == Modes.name:
        first = measured[areas[0].area.name]
        if first.of_image >= whole.kinds[0].share - MARGIN:
            return areas  # weights fit a fault of an area too
        # part of the image that one fault's area is at most, and part of its distance that all around it has at most
        local = float(first.mask.double().mean()) < 0.5
        if local and distance_around(images, first.mask) < 0.25 * first.distance:
            # weights imitate what is wrong there alone
            sentence = text.explained_sentence(areas[0].area.name, whole.kinds, whole.p or 0.0)
            return [replace(whole, area=areas[0].area, text=sentence), *areas[1:]]
    said = {kind.name for kind in whole.kinds}
    later = findings[findings.index(whole) + 1 :]
    return [x for x in findings if x not in later or not x.kinds or x.kinds[0].name not in said]


def _is_everywhere(areas: Collection[AreaDiagnosis], images: Images) -> bool:
    """Return True if the surroundings of areas differ like the areas, which may then depend on the order of images."""
    if not areas:
        return False
    around = distance_around(images, torch.stack([x.mask for x in areas]).any(0))
    # part of the distance of areas that what is around them has: at most 0.16 for nine of ten faults planted in a
    # place (benchmarks/diagnosis.md), 0.8 for a GAN of digits whose area changed with the order of the images
    return around >= 0.5 * max(x.distance for x in areas)


def _suffice(areas: Collection[AreaDiagnosis]) -> bool:
    """Return True if areas explain so much of the image's distance, for their size, that the fault is in them."""
    explained = sum(x.of_image for x in areas)
    return explained >= max(ENOUGH, 2 * sum(float(x.mask.double().mean()) for x in areas if x.of_image > 0))


def _examples(
    fake: Tensor, real: Tensor, images: Images, finding: Finding, found: AreaDiagnosis | None
) -> dict[str, Tensor]:
    said = found.readings[:1] if found and not finding.kinds and finding.samples == found.samples else ()
    order = images.chosen_real[said[0].typical] if said else images.chosen_real
    shown = real[order[:EXAMPLES].to(real.device)]
    out = {f"real, with typical {said[0].reading.name}" if said else "real": shown}
    # proportions and copies change no real image, and what else explains their area is not what was found
    of_area = () if found is None else _kinds(found.explained)
    changes = bool(finding.kinds) and finding.kinds == of_area and KINDS.get(finding.kinds[0].name, Kind).changes_images
    if found and found.explained and changes:
        low, high = float(real.min()), float(real.max())
        scaled = (shown - low) / ((high - low) or 1.0)
        faulty = put_faults(scaled, found.explained.faults, found.mask.to(real.device), images.range, images.seed)
        faults = "fault" if len(finding.kinds) == 1 else "faults"
        out[f"real, with the {faults} put in"] = faulty * ((high - low) or 1.0) + low
    chosen = torch.tensor(finding.samples[:EXAMPLES] or range(min(EXAMPLES, len(fake))), device=fake.device)
    out["generated, those that show it most" if finding.samples else "generated"] = fake[chosen]
    return {name: some.cpu() for name, some in out.items()}


def _models(given: Sequence[FaultModel] | None, pixels: bool) -> tuple[Models, tuple[str, ...]]:
    """Return the fault models to try, and those left out."""
    models: Models = FAULT_MODELS if given is None else given
    for model in models:
        if not isinstance(model, FaultModel):
            raise TypeError(
                f"Expected `fault_models` to have `name`, `unit`, `strengths` and `apply`, but got {model!r}. See "
                "genmonitor.functional.diagnosis.kinds.FaultModel."
            )
    kept = [model for model in models if pixels or not getattr(model, "of_pixels", False)]
    gone = sorted({model.name for model in models} - {model.name for model in kept})
    return kept, (f"Left out, as they are of pixels: {', '.join(gone)}.",) if gone else ()


def _readings(
    given: Sequence[Reading] | None, real: Tensor, aligned: bool, failures: list[str], skip_failing: bool
) -> list[Reading]:
    """Return the readings to compare that apply to the images."""
    if given is None:
        return usable_readings(READINGS, real, aligned)
    low, span = float(real.min()), float(real.max() - real.min()) or 1.0
    return checked_readings(given, (real - low) / span, aligned, failures, skip_failing)


def _areas(
    fake: Tensor, real: Tensor, area: Tensor | None, partition: PixelPartition | None, seed: int
) -> tuple[dict[str, Tensor] | None, list[NamedMask]]:
    """Return the map, if there is one, and the name, mask [H, W] and region of each area."""
    size = (real.shape[2], real.shape[3])
    if area is not None and partition is not None:
        raise ValueError("Expected `area` or `partition`, but got both. Give one of them.")
    if area is not None:
        mask = _checked_area(area, size)
        return None, [(describe_area(mask), mask, None)]
    if partition is not None:
        partition.check_images("fake", tuple(fake.shape))
        sites = partition.pixel_labels().cpu()
        return None, [(name, sites == label, name) for name, label in partition.regions().items()]
    drawn = discrepancy_map(fake, real, seed=seed)
    masks = [x for x in significant_areas(drawn) if describe_place(x) not in MOSTLY_ALL]
    masks = [*masks, torch.ones(size, dtype=torch.bool)]
    return drawn, [(describe_area(mask), mask.cpu(), None) for mask in masks]


def _checked_area(area: object, size: tuple[int, int]) -> Tensor:
    if not isinstance(area, Tensor) or area.dtype != torch.bool:
        got = f"dtype {area.dtype}" if isinstance(area, Tensor) else type(area).__name__
        raise TypeError(f"Expected `area` to be a tensor of booleans, but got {got}. Use area > 0.")
    if tuple(area.shape) != size:
        raise ValueError(f"Expected `area` of shape {list(size)}, as the images, but got {list(area.shape)}.")
    if not bool(area.any()):
        raise ValueError("Expected `area` with at least one pixel inside, but all are False.")
    return area.cpu()


def _finding(name: str, region: str | None, found: AreaDiagnosis) -> Finding:
    area = Area(name, describe_place(found.mask) if region else "", region, found.mask)
    known = found.explained
    if found.p > LEVEL and not (known and known.named):
        return _fine(area, found.p)
    kinds = _kinds(known)
    rivals = [] if known is None else [_kinds(replace(known, faults=x))[0] for x in known.rivals]
    # of an area without readings, the nearest kind is more than nothing
    named = known is not None and (known.identified or (known.named and not found.readings))
    if named:
        sentence, verdict = text.explained_sentence(str(area), kinds, found.p, rivals), text.with_strength(kinds[0])
    elif found.readings:
        sentence = text.readings_sentence(str(area), found.readings, found.p, kinds[0] if kinds else None)
        verdict = str(found.readings[0])
    else:
        sentence = text.unexplained_sentence(str(area), kinds[0] if kinds else None, found.p)
        verdict = "no simple fault"
    if bool(found.mask.all()) and found.proportions >= ADDS and not any(kind.name == Modes.name for kind in kinds):
        sentence += f" {text.proportions_sentence(found.proportions)}"
    kinds, cause = (kinds, text.cause_sentence(kinds[0])) if named else ((), "")
    return Finding(sentence, area, verdict, None, False, found.p, kinds=kinds, samples=found.samples, cause=cause)


def _fine(area: Area, p: float | None) -> Finding:
    return Finding(text.no_difference_sentence(str(area), p or 0.0), area, "", None, fine=True, p=p)


def _kinds(explained: Explained | None) -> tuple[FaultKind, ...]:
    """Return faults as data, the largest share first, without those that add next to nothing."""
    if explained is None:
        return ()
    kinds = []
    for (model, strength), share in zip(explained.faults, explained.shares, strict=True):
        name, size, unit = model.named(strength) if isinstance(model, Kind) else (model.name, strength, model.unit)
        kinds.append(FaultKind(name, float(size), unit, share))
    kinds.sort(key=lambda kind: -kind.share)
    return tuple(kind for kind in kinds if kind is kinds[0] or kind.share >= ADDS / 2)


def _copies(images: Images, mask: Tensor) -> list[Finding]:
    """Return True if images repeat each other."""
    found: Repeats = repeats(images)
    # share of images with a near twin from which it is a finding
    if found.share < 0.1 or found.p > LEVEL / 50:
        return []
    kind = FaultKind(Copies.name, found.share, "of the images have a near twin among them", found.of_distance)
    return [of_copies(kind, found.p, found.samples, mask)]


def _extremes(images: Images, areas: Mapping[str, AreaDiagnosis]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the real images with the lowest and highest weights, if proportions explain something."""
    for found in areas.values():
        if found.weights is not None and found.explained and found.explained.faults[0].model.name == Modes.name:
            order = images.chosen_real[found.weights.argsort().cpu()].tolist()
            return tuple(order[:EXTREMES]), tuple(order[: -EXTREMES - 1 : -1])
    return (), ()
