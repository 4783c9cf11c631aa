# SPDX-License-Identifier: Apache-2.0
"""Words, tables and pictures of an evaluation of regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from genmonitor._formatting import capitalized, format_cms, format_error_ratio
from genmonitor.evaluation.classes import class_table
from genmonitor.evaluation.diagnosis import Diagnosis
from genmonitor.evaluation.regions.evaluation import RegionEvaluation
from genmonitor.evaluation.regions.fitted import Fitted
from genmonitor.evaluation.regions.search import Regions
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.evaluation.results import History, Presenter, ShownImages
from genmonitor.findings.finding import Finding, verdict_of
from genmonitor.findings.tables import Table, aligned, on_screen
from genmonitor.findings.values import Values
from genmonitor.findings.words import advice_sentence
from genmonitor.functional.diagnosis.kinds import in_words
from genmonitor.functional.diagnosis.readings import READINGS, read, usable_readings
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.partition import PixelPartition
from genmonitor.plotting import diagnosis as diagnosis_plots
from genmonitor.plotting import pixel_clusters as plots
from genmonitor.plotting.style import Drawing, thumbnails, to_array

SHOWN = 40
"""Images shown one by one: rows of 4, 5, 8 and 10 are full."""


@dataclass(frozen=True, eq=False)
class RegionPresenter(Presenter[RegionEvaluation]):
    """Shows the regions that differ on their map, with curves and samples.

    Attributes:
        fitted: Regions and real images.
        prompts: Captions of samples; None for no captions.
        aligned: True if the same places of images can be compared.
    """

    fitted: Fitted
    prompts: Prompts | None = None
    aligned: bool = True

    title = "Regions of the image"

    @property
    def partition(self) -> PixelPartition:
        """The regions."""
        return self.fitted.regions.partition

    def table(self, findings: Sequence[Finding], history: History) -> str:
        """Return a table of the regions at the last evaluation, the largest difference first."""
        return plain_table(findings, history[-1], self.partition)

    def fit_figures(self) -> Mapping[str, Figure]:
        """Draw the cluster map over the average image."""
        height, width = self.fitted.real.shape[2:]
        return fit_figures(self.fitted.regions, (height, width))

    def figures(self, evaluation: RegionEvaluation, history: History, samples: Samples) -> Mapping[str, Drawing]:
        """Return functions that draw the diagnosis, and samples with the region that differs most.

        An evaluation without a diagnosis has none; loggers and page draw curves from the values.
        """
        if evaluation.between:
            return {}
        regions, findings, out = self.fitted.regions, evaluation.findings, dict[str, Drawing]()
        if len(samples.images):  # this process drew some
            real = {"real": self.fitted.real} if len(self.fitted.real) else {}
            out["samples"] = side_by_side(real | {"generated": samples.images}, findings, regions.value_range)
        diagnosis = evaluation.diagnosed.diagnosis
        if diagnosis is None:
            return out
        return diagnosis_figures(diagnosis, evaluation.findings[0], regions.value_range) | out

    def tables(self, evaluation: RegionEvaluation) -> Mapping[str, Table]:
        """Return the results of the classes, the largest difference first."""
        return {"classes": class_table(evaluation.classes)} if evaluation.classes else {}

    def samples_table(self, evaluation: RegionEvaluation, samples: Samples) -> Table | None:
        """Return the first samples, with their prompts and readings; None without a diagnosis."""
        # the table has the readings of 64 samples
        images, indices = samples.images[:64], samples.indices[:64].tolist()
        if evaluation.diagnosed.diagnosis is None or not len(images):
            return None
        low, high = self.fitted.regions.value_range
        readings = usable_readings(READINGS, self.fitted.real if len(self.fitted.real) else images, self.aligned)
        columns = {"sample": indices, "picture": list(np.round(255 * self._tiles(images)).astype(np.uint8))}
        if self.prompts is not None:
            columns["prompt"] = [self.prompts.text(i) for i in indices]
        values = read(readings, (images.float() - low) / ((high - low) or 1.0)).T.tolist()
        columns |= dict(zip((x.name for x in readings), values, strict=True))
        return Table(list(columns), list(map(list, zip(*columns.values(), strict=True))))

    def shown_real(self) -> ShownImages | None:
        """Return real images to compare with; None if this process has none."""
        return ShownImages(self._tiles(self.fitted.real[:SHOWN])) if len(self.fitted.real) else None

    def shown_samples(self, samples: Samples) -> ShownImages | None:
        """Return generated images with the most similar real image of each; None if this process has none."""
        images, prompts = samples.images[:SHOWN], self.prompts
        captions = [] if prompts is None else [prompts.text(i) for i in samples.indices[:SHOWN].tolist()]
        if not len(images):
            return None
        if self.fitted.nearest is None:
            return ShownImages(self._tiles(images), captions)
        nearest, distances = self.fitted.nearest.find(images)
        return ShownImages(self._tiles(images), captions, self._tiles(nearest), distances)

    def shown_diagnosis(self, evaluation: RegionEvaluation) -> ShownImages | None:
        """Return the map, real images without and with the fault, and generated ones; None without a diagnosis."""
        diagnosis = evaluation.diagnosed.diagnosis
        if diagnosis is None or not diagnosis.examples:
            return None
        odd = {} if diagnosis.singles is None else diagnosis.singles.shown
        rows = {name: self._tiles(images[:6]) for name, images in (diagnosis.examples | odd).items()}
        if diagnosis.map is not None:
            sizes, p = (to_array(diagnosis.map[name]) for name in ("map", "p_map"))
            heat = diagnosis_plots.map_pixels(to_array(diagnosis.average), sizes, p)
            caption = "where images differ: darker is farther from real ones"
            rows = {caption: thumbnails(np.moveaxis(heat, 2, 0)[None], (0.0, 1.0))} | rows
        captions = [name for name, tiles in rows.items() for _ in tiles]
        return ShownImages(np.concatenate(list(rows.values())), captions)

    def _tiles(self, images: Tensor) -> NDArray[Any]:
        return thumbnails(to_array(images), self.fitted.regions.value_range)


def fit_figures(regions: Regions, size: tuple[int, int]) -> dict[str, Figure]:
    """Draw the cluster map over the average image.

    Args:
        regions: Regions that were found.
        size: Height and width of an image, which may be larger than those of the sites.
    """
    labels, names = image_labels(regions.partition, size), regions.partition.given_names()
    return {"clusters": plots.cluster_map(labels, names, regions.average)}


def diagnosis_figures(diagnosis: Diagnosis, finding: Finding, value_range: tuple[float, float]) -> dict[str, Drawing]:
    """Return functions that draw the map, examples of the fault, the shares of the distance, and odd images.

    Args:
        diagnosis: Diagnosis of an evaluation.
        finding: First finding of the evaluation.
        value_range: Values to show as black and as white.
    """
    finding = finding if finding.kinds or diagnosis.findings[0].fine else diagnosis.findings[0]
    areas = [x.area.mask for x in diagnosis.findings if not x.fine and x.area.mask is not None]
    areas = areas[:1] if areas and bool(areas[0].all()) else areas  # others within would look like the finding
    shares = {in_words(kind.name, kind.strength, kind.unit): kind.share for kind in finding.kinds}
    copied = bool(finding.kinds) and finding.kinds[0].name == "copies" and not finding.kinds[0].share
    sizes = None if diagnosis.map is None else (to_array(diagnosis.map["map"]), to_array(diagnosis.map["p_map"]))
    examples = {name: to_array(images) for name, images in diagnosis.examples.items()}
    pictures = to_array(diagnosis.average), sizes, list(map(to_array, areas)), examples
    words = str(finding), advice_sentence(finding)
    parts = None if copied or not shares else shares
    drawn = partial(diagnosis_plots.diagnosis_figure, *pictures, parts, value_range, *words)
    if diagnosis.singles is None or diagnosis.average.shape[-1] == 1 or not diagnosis.singles.shown:
        return {"diagnosis": drawn}
    shown = {name: to_array(images) for name, images in diagnosis.singles.shown.items()}
    said = [str(x) for key in ("strange_samples", "uncovered_images") for x in diagnosis.findings if x.measure == key]
    title, note = said if len(said) == 2 else " ".join(said).partition("; ")[::2]
    odd = partial(plots.side_by_side, shown, value_range, title, note and capitalized(note))
    return {"diagnosis": drawn, "single_samples": odd}


def side_by_side(
    sets: Mapping[str, Tensor], findings: Sequence[Finding], value_range: tuple[float, float], note: str = ""
) -> Drawing:
    """Return a function that draws images of each set below the region that differs most.

    Args:
        sets: Images [n, C, H, W] by name.
        findings: Findings of the evaluation; a region takes precedence over an area of the diagnosis.
        value_range: Values to show as black and as white.
        note: Text below the title.
    """
    verdict = next((x for x in findings if x.area.region is not None), findings[0])
    shown = {name: to_array(images[: plots.SHOWN]) for name, images in sets.items()}
    title = str(verdict).split(". ")[0].removesuffix(".")
    return partial(plots.side_by_side, shown, value_range, title, note)


def image_labels(partition: PixelPartition, size: tuple[int, int]) -> Tensor:
    """Return the labels at the resolution of the images."""
    labels = partition.pixel_labels()
    return interpolate(labels[None, None].double(), size=size, mode="nearest-exact")[0, 0].long()


def regions_found(regions: Regions) -> str:
    """Return a table of the regions with the size, stability and place of each."""
    partition, stability, sizes = regions.partition, regions.stability, regions.partition.sizes()
    how = f"{partition.num_clusters} clusters"
    if stability:
        how += f"; {regions.linkage} linkage, stability {stability['overall']:.2f}"
    rows = []
    for name, label in partition.regions().items():
        own = stability.get(f"cluster_{label}")
        rows.append([name, sizes[label], "" if own is None else f"{own:.2f}", partition.location(label)])
    return f"{how}\n\n{aligned(Table(['region', 'sites', 'stability', 'where'], rows))}"


def region_data(findings: Sequence[Finding], record: Values, partition: PixelPartition) -> dict[str, dict[str, Any]]:
    """Return an evaluation of each region as plain Python, in the order of the findings.

    Returns:
        By name: "label", "sites", "pixels", "where", "cms", "error_ratio", "share", "p_value" and "differs" (None if
        not tested), and "verdict" in words.
    """
    regions, values = partition.regions(), RegionValues(partition.regions())
    found = {}
    for name in dict.fromkeys(x.area.region for x in findings if x.area.region in regions):
        label, p = regions[name], record.get(values.p[name])
        measured = {"cms": record[name], "error_ratio": record[values.error_ratio[name]]}
        fine = next(x.fine for x in findings if x.area.region == name and x.detail)
        tested = {"p_value": p, "differs": None if p is None else not fine, "verdict": verdict_of(findings, name)}
        size, where = partition.sizes()[label], partition.location(label)
        place = {"label": label, "sites": size, "pixels": size * partition.patch_size**2, "where": where}
        found[name] = place | measured | {"share": record[values.share[name]]} | tested
    return found


def region_table(data: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return `region_data` as cells of a table."""
    rows = []
    for name, of in data.items():
        ratio = format_error_ratio(of["error_ratio"]) if of["label"] else "–"
        measured = format_cms(of["cms"]), ratio, f"{100 * of['share']:z.0f} %"
        rows.append([name, of["sites"], *measured, of["where"], of["verdict"]])
    columns = ["region", "sites", "CMS", "error ratio", "share", "where", "against real images"]
    notes = {
        "error ratio": "5 × = five times as far from real images as others of these are; p says whether it is more "
        "than chance",
        "share": "part of the image's loss",
    }
    return Table(columns, rows, ["sites", "share", "CMS", "where"], notes)


def plain_table(findings: Sequence[Finding], record: Values, partition: PixelPartition) -> str:
    """Return an evaluation region by region as text, the largest difference first.

    Args:
        findings: Findings of the evaluation.
        record: Values of the evaluation.
        partition: Regions.
    """
    title = f"Regions, epoch {record['epoch']:g}" if "epoch" in record else "Regions"
    return "\n".join(["", title, on_screen(region_table(region_data(findings, record, partition))), ""])
