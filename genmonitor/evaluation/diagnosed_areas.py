# SPDX-License-Identifier: Apache-2.0
"""Areas of a diagnosis: their search, the choice of those with separate findings, and the findings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from genmonitor._place_names import describe_area, describe_place
from genmonitor.evaluation.single_samples import of_copies
from genmonitor.findings import words as text
from genmonitor.findings.finding import Area, FaultKind, Finding, overlap
from genmonitor.functional.diagnosis.area import MARGIN, AreaDiagnosis, diagnose_area, distance_around
from genmonitor.functional.diagnosis.block import block_that_stands_out
from genmonitor.functional.diagnosis.copies import repeats
from genmonitor.functional.diagnosis.distance import Distance, all_views
from genmonitor.functional.diagnosis.explain import Explained
from genmonitor.functional.diagnosis.fit import ADDS, put_faults
from genmonitor.functional.diagnosis.images import Images
from genmonitor.functional.diagnosis.kinds import Kind, Models
from genmonitor.functional.diagnosis.kinds.variety import Copies, Modes
from genmonitor.functional.diagnosis.missing import missing_kinds
from genmonitor.functional.diagnosis.place_search import located
from genmonitor.functional.discrepancy_map import discrepancy_map, significant_areas
from genmonitor.functional.permutation import LEVEL, RARE
from genmonitor.linalg.precision import full_precision
from genmonitor.partition import PixelPartition

UNEXPLAINED = "no simple fault"
"""Verdict of a difference without a kind or a reading."""
CONSTANT = "the same in all images"
"""Verdict of a place that hardly varies among generated images."""
MISSING = "kinds of images missing"
"""Verdict of a difference of which only missing kinds of images are known."""
MOSTLY_ALL = ("whole image", "most of the image")
NamedMask = tuple[str, Tensor, str | None]
"""Name, mask [H, W] and region of an area."""


@full_precision()  # once for hundreds of products
def diagnose_areas(
    images: Images,
    drawn: Mapping[str, Tensor] | None,
    masks: list[NamedMask],
    models: Models,
) -> tuple[dict[str, AreaDiagnosis], list[Finding]]:
    """Diagnose areas, each a name, mask [H, W] and region; return the measurements by name, and the findings."""
    whole = torch.ones(images.real.shape[2:], dtype=torch.bool)
    image = None if all(bool(mask.all()) for _, mask, _ in masks) else _distance_of_image(images)
    areas: dict[str, AreaDiagnosis] = {}
    findings: list[Finding] = []

    def repeats_another(mask: Tensor) -> bool:
        # areas that overlap by half (intersection over union) are one
        others = any(overlap(mask, x.mask) >= 0.5 for x in areas.values())
        return others or describe_area(mask) in MOSTLY_ALL

    for name, mask, region in sorted(masks, key=lambda x: bool(x[1].all())):
        everywhere = bool(mask.all())
        p_map = None if drawn is None or everywhere else _without_others(drawn["p_map"].cpu(), mask, masks)
        # if areas explain most of the image, a fault of the whole image would describe the same less exactly
        tried, p = models, None
        in_places = (areas, findings) if everywhere and _is_everywhere(areas.values(), images) else None
        if in_places:
            areas, findings = {}, []
        if everywhere and drawn is not None and _suffice(areas.values()):
            tried, p = (), float(drawn["p"])
        elif p_map is not None:
            p = float(p_map[mask].min())
            mask, tried = located(images, mask, p_map, models)
            if repeats_another(mask):
                continue
        found = diagnose_area(images, mask, tried, None if everywhere else image, p)
        if everywhere and name != "anywhere":
            found = _with_missing(found, images)
        if in_places and found.p > LEVEL:  # the whole image hides what the map sees
            areas, findings = in_places
        if p_map is not None:
            if repeats_another(found.mask):
                continue
            name = describe_area(found.mask)
        same = sum(x == name or x.startswith(f"{name} (") for x in areas)
        name = f"{name} ({same + 1})" if same else name
        areas[name] = found
        findings.append(_finding(name, region, found))
    # a fault of the whole image that explains about as much comes first: it needs no place. What names nothing is last
    explain = {name: found.of_image * (1 + ADDS * bool(found.mask.all())) for name, found in areas.items()}
    findings.sort(key=lambda x: (x.verdict == UNEXPLAINED, -explain[x.area.name]))
    findings = _each_once(findings, areas, images)
    if any(bool(mask.all()) and name != "anywhere" for name, mask, _ in masks):
        copies = _copies(images, whole)
        most = max((areas[x.area.name].of_image for x in findings if x.fine is False), default=0.0)
        # near twins of 30 % of the images or more are the first finding, unless another explains more
        first = [x for x in copies if x.kinds[0].strength >= 0.3 and x.kinds[0].share >= most]
        block = [] if first or drawn is None else _block(images, drawn, models, areas, findings)
        findings = [*first, *block, *findings, *(x for x in copies if x not in first)]
    return areas, [x for x in findings if not x.fine] + [x for x in findings if x.fine]


def _with_missing(found: AreaDiagnosis, images: Images) -> AreaDiagnosis:
    """Add kinds of real images of which there are next to no samples, if images have pixels and some are missing.

    A fault of all images is no missing kind, so the faults that are known are put into real images first.
    """
    if found.explained and found.explained.identified:
        area, faults = found.mask.to(images.real.device), found.explained.faults
        images = replace(images, real=put_faults(images.real, faults, area, images.range, images.seed))
    missing = missing_kinds(images) if images.readings else None
    if missing is None:
        return found
    return replace(found, missing=missing, p=missing.p if found.p > LEVEL else found.p)


def _without_others(p_map: Tensor, mask: Tensor, masks: list[NamedMask]) -> Tensor:
    """Return the map of an area without the pixels of other areas."""
    for _, other, _ in masks:
        if other is not mask and not bool(other.all()):
            p_map = p_map.masked_fill(other, 1.0)
    return p_map


def _each_once(findings: list[Finding], measured: Mapping[str, AreaDiagnosis], images: Images) -> list[Finding]:
    """Leave out the whole image if it adds nothing to areas with kinds, and areas that repeat its kind."""
    whole = next((x for x in findings if not x.area.region and x.area.name == "whole image"), None)
    areas = [x for x in findings if x is not whole]
    if whole is None or (not whole.kinds and not any(x.kinds for x in areas)):
        return findings
    if not whole.kinds:
        return [*areas, whole] if measured[whole.area.name].missing else areas
    if areas and whole.kinds[0].name == Modes.name:
        first = measured[areas[0].area.name]
        if first.of_image >= whole.kinds[0].share - MARGIN:
            return areas  # weights fit a fault of an area too
        # one fault explains it if its area is less than half of the image and hardly anything around it differs
        local = float(first.mask.double().mean()) < 0.5
        if local and distance_around(images, first.mask) < 0.25 * first.distance:
            return areas  # weights imitate a fault that is only there
    said = {kind.name for kind in whole.kinds}
    later = findings[findings.index(whole) + 1 :]
    return [x for x in findings if x not in later or not x.kinds or x.kinds[0].name not in said]


def _is_everywhere(areas: Collection[AreaDiagnosis], images: Images) -> bool:
    """Return True if the surroundings of areas differ like the areas, which may then depend on the order of images."""
    if not areas:
        return False
    around = distance_around(images, torch.stack([x.mask for x in areas]).any(0))
    # Relative to the distance of the areas, that of the surroundings was at most 0.16 for nine of ten planted faults
    # (benchmarks/diagnosis.md). It was 0.8 for a GAN of digits whose area changed with the order of the images.
    return around >= 0.5 * max(x.distance for x in areas)


def _suffice(areas: Collection[AreaDiagnosis]) -> bool:
    """Return True if areas explain so much of the image's distance, for their size, that the fault is in them."""
    explained = sum(x.of_image for x in areas)
    # 40 % of the image's distance are enough for areas of any size
    return explained >= max(0.4, 2 * sum(float(x.mask.double().mean()) for x in areas if x.of_image > 0))


def find_areas(
    fake: Tensor, real: Tensor, area: Tensor | None, partition: PixelPartition | None, aligned: bool, seed: int
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
    if not aligned:
        return None, [("anywhere", torch.ones(size, dtype=torch.bool), None)]
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
        return no_difference(area, found.p)
    kinds = fault_kinds(known)
    near = known is not None and not found.missing and (known.near or not found.readings)
    mentioned = kinds[0] if kinds and near else None
    rivals = [] if known is None else [fault_kinds(replace(known, faults=x))[0] for x in known.rivals]
    named = known is not None and known.identified
    cause, remedy = text.possible_advice(mentioned, found.readings)
    if named:
        sentence, verdict = text.explained_sentence(str(area), kinds, found.p, rivals), text.with_strength(kinds[0])
        cause, remedy = text.advice(kinds[0].name, kinds[0].share)
    elif found.readings:
        sentence = text.readings_sentence(str(area), found.readings, found.p, mentioned)
        verdict = str(found.readings[0])
    elif found.missing:
        sentence, verdict = "", MISSING
        cause, remedy = text.advice(Modes.name)
    else:
        sentence, verdict = text.unexplained_sentence(str(area), mentioned, found.p), UNEXPLAINED
    if found.missing:
        sentence = f"{sentence} {text.missing_sentence(found.missing)}".lstrip()
    kinds = kinds if named else ()
    return Finding(
        sentence,
        area,
        verdict,
        None,
        fine=False,
        p=found.p,
        kinds=kinds,
        samples=found.samples,
        cause=cause,
        remedy=remedy,
    )


def no_difference(area: Area, p: float | None) -> Finding:
    """Return the finding that there is no evidence of a difference in an area."""
    return Finding(text.no_difference_sentence(str(area), p or 0.0), area, "", None, fine=True, p=p)


def fault_kinds(explained: Explained | None) -> tuple[FaultKind, ...]:
    """Return faults as data, the largest share first, without those that add next to nothing."""
    if explained is None:
        return ()
    kinds = []
    for (model, strength), share in zip(explained.faults, explained.shares, strict=True):
        name, size, unit = model.named(strength) if isinstance(model, Kind) else (model.name, strength, model.unit)
        kinds.append(FaultKind(name, float(size), unit, share))
    kinds.sort(key=lambda kind: -kind.share)
    return tuple(kind for kind in kinds if kind is kinds[0] or kind.share >= ADDS / 2)


def _block(
    images: Images, drawn: Mapping[str, Tensor], models: Models, areas: dict[str, AreaDiagnosis], others: list[Finding]
) -> list[Finding]:
    """Return the finding of a block that stands out though all is wrong, unless another finding has it or a kind.

    Its measurements are added to `areas`.
    """
    found = None if any(x.kinds for x in others) else block_that_stands_out(drawn, images.fake, images.real)
    if found is None or found.p > RARE or any(overlap(x.area.mask, found.mask) >= 0.5 for x in others):
        return []
    name = describe_area(found.mask)
    if found.constant:
        sentence, remedy = text.constant_sentence(name, found.spread, found.p)
        area = Area(name, mask=found.mask)
        return [Finding(sentence, area, CONSTANT, None, fine=False, p=found.p, remedy=remedy)]
    areas[name] = diagnose_area(images, found.mask, models, _distance_of_image(images), found.p)
    return [_finding(name, None, areas[name])]


def _distance_of_image(images: Images) -> Distance:
    (_, fitted), (fake, real) = images.halves
    whole = torch.ones(fitted.shape[2:], dtype=torch.bool)
    return Distance.of(fitted, all_views(fitted, whole), min(len(fake), len(real)))


def _copies(images: Images, mask: Tensor) -> list[Finding]:
    """Return the finding of images that repeat each other, if they are many, and by more than chance."""
    found = repeats(images)
    # fewer than 10 % of the images with a near twin are no finding
    if found.share < 0.1 or found.p > RARE:
        return []
    kind = FaultKind(Copies.name, found.share, "of the images have a near twin among them", found.of_distance)
    return [of_copies(kind, found.p, found.samples, mask)]
