# SPDX-License-Identifier: Apache-2.0
"""What the figures of the regions show, put together from a fit, a history and samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from genmonitor._formatting import format_p
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.diagnosis import Diagnosis
from genmonitor.evaluation.findings import Finding
from genmonitor.evaluation.regions.finder import Regions
from genmonitor.evaluation.regions.fitted import Fitted
from genmonitor.evaluation.results import History, Samples, ShownImages, curve
from genmonitor.functional.diagnosis import in_words
from genmonitor.partition import PixelPartition
from genmonitor.plotting import diagnosis as diagnosis_plots
from genmonitor.plotting import pixel_clusters as plots
from genmonitor.plotting.images import side_by_side
from genmonitor.plotting.style import THUMBNAIL, Drawing, thumbnails, to_array

SAMPLES = 64
SHOWN = 40
"""Images shown one by one: rows of 4, 5, 8 and 10 are full."""


def fit_figures(regions: Regions, size: tuple[int, int]) -> dict[str, Figure]:
    """Draw the cluster map, the map over the average image, and the CKA matrix ordered by cluster.

    Args:
        regions: what was found.
        size: height and width of an image, which a site encoder may have made smaller.
    """
    labels, names = image_labels(regions.partition, size), regions.partition.given_names()
    out = {"clusters": plots.cluster_map(labels, names)}
    if regions.average is not None:
        out["clusters_over_average"] = plots.cluster_overlay(labels, regions.average, names)
    if regions.cka is not None:
        out["cka"] = plots.cka_matrix(regions.cka, regions.partition.labels)
    return out


def diagnosis_figures(diagnosis: Diagnosis, finding: Finding, value_range: tuple[float, float]) -> dict[str, Drawing]:
    """Return what draws the map, examples of the fault that was found and the shares of the distance; and odd images.

    Args:
        diagnosis: of an evaluation.
        finding: its first, dated.
        value_range: what to show as black and as white.
    """
    areas = [x.area.mask for x in diagnosis.findings if not x.fine and x.area.mask is not None]
    areas = areas[:1] if areas and bool(areas[0].all()) else areas  # others within would look like what was found
    shares = {in_words(kind.name, kind.strength, kind.unit): kind.share for kind in finding.kinds}
    drawn = partial(
        diagnosis_plots.diagnosis_figure,
        to_array(diagnosis.average),
        None if diagnosis.map is None else (to_array(diagnosis.map["map"]), to_array(diagnosis.map["p_map"])),
        list(map(to_array, areas)),
        {name: to_array(images) for name, images in diagnosis.examples.items()},
        shares,
        diagnosis.proportions if finding.area.mask is None or bool(finding.area.mask.all()) else 0.0,
        value_range,
        str(finding),
        finding.cause,
    )
    if diagnosis.singles is None or diagnosis.average.shape[-1] == 1 or not diagnosis.singles.shown:
        return {"diagnosis": drawn}
    shown = {name: to_array(images) for name, images in diagnosis.singles.shown.items()}
    said = [str(x) for x in reversed(diagnosis.findings) if x.measure in ("strange", "uncovered")]
    nowhere = to_array(torch.zeros(diagnosis.average.shape[1:]))
    odd = partial(side_by_side, shown, nowhere, None, value_range, *said)
    return {"diagnosis": drawn, "single_samples": odd}


def evaluation_figures(
    regions: Regions,
    findings: Sequence[Finding],
    history: History,
    images: Tensor,
    captions: Sequence[str] = (),
) -> dict[str, Drawing]:
    """Return what draws the curves of clusters, of image and product, and samples with the region that differs most.

    Args:
        regions: what was found.
        findings: of the last evaluation, the one to look at first.
        history: the records so far.
        images: generated [n, C, H, W].
        captions: of the images, such as their prompts; empty for none.
    """
    names, baseline, given = regions.partition.regions(), regions.baseline, regions.partition.given_names()
    labels = image_labels(regions.partition, (images.shape[2], images.shape[3]))
    epochs, image, product = (curve(history, name) for name in ("epoch", "image", "product"))
    verdict = next((x for x in findings if x.area.region is not None), findings[0])
    region = names.get(verdict.area.region or "") if verdict.fine is False else None
    p = "" if region is None or verdict.p is None else format_p(verdict.p)
    by_region = {label: curve(history, name) for name, label in names.items()}
    bands = {label: baseline[name] for name, label in names.items() if name in baseline}
    shown, value_range = _shown(images, regions.value_range)
    return {
        "curves": partial(plots.cluster_curves, epochs, by_region, bands, labels, str(verdict), given),
        "image_and_product": partial(plots.image_and_product, epochs, image, product, baseline),
        "samples": partial(plots.sample_grid, shown, labels, region, value_range, p, captions, given),
    }


def _shown(images: Tensor, value_range: tuple[float, float]) -> tuple[NDArray[Any], tuple[float, float]]:
    """Return the images that are drawn, no larger than they are drawn, and what to show as black and as white."""
    some = to_array(images[:SAMPLES])
    if max(some.shape[2:]) <= THUMBNAIL:
        return some, value_range
    small: NDArray[Any] = np.round(255 * np.moveaxis(thumbnails(some, value_range), 3, 1)).astype(np.uint8)
    return small, (0.0, 255.0)


def shown_real(fitted: Fitted) -> ShownImages:
    """Return real images that generated ones are compared with, for people to look at."""
    return ShownImages(thumbnails(to_array(fitted.real[:SHOWN]), fitted.regions.value_range))


def shown_samples(fitted: Fitted, samples: Samples, prompts: Prompts | None) -> ShownImages:
    """Return generated images with their prompts, and for each the most similar real one. Rank zero alone calls it.

    Args:
        fitted: the real side.
        samples: generated images.
        prompts: what they were drawn for, where that is known.
    """
    images, value_range = samples.images[:SHOWN], fitted.regions.value_range
    captions = captions_of(samples, prompts)[:SHOWN]
    if fitted.nearest is None:
        return ShownImages(thumbnails(to_array(images), value_range), captions)
    nearest, distances = fitted.nearest.find(images)
    tiles = (thumbnails(to_array(some), value_range) for some in (images, nearest))
    return ShownImages(next(tiles), captions, next(tiles), distances)


def captions_of(samples: Samples, prompts: Prompts | None) -> list[str]:
    """Return the prompts of the samples that figures show, none where there are no prompts."""
    return [] if prompts is None else [prompts.text(i) for i in samples.indices[:SAMPLES].tolist()]


def image_labels(partition: PixelPartition, size: tuple[int, int]) -> Tensor:
    """Return the labels at the resolution of the images."""
    labels = partition.pixel_labels()
    return interpolate(labels[None, None].double(), size=size, mode="nearest-exact")[0, 0].long()
