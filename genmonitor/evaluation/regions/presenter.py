# SPDX-License-Identifier: Apache-2.0
"""Words, tables and pictures of an evaluation of regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from genmonitor._formatting import format_cms, format_p, format_ratio
from genmonitor._html import columns_html, heading_html, map_html, table_html, text_html
from genmonitor._places import map_of_characters, symbol_of
from genmonitor.evaluation.classes import class_data, class_table
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.findings import Finding, differs, verdict_of
from genmonitor.evaluation.regions import figures as region_figures
from genmonitor.evaluation.regions.diagnosed import RegionEvaluation
from genmonitor.evaluation.regions.finder import Regions
from genmonitor.evaluation.regions.fitted import Fitted
from genmonitor.evaluation.regions.values import IMAGE, RegionValues
from genmonitor.evaluation.results import History, Presenter, Record, Samples, ShownImages, Table, when
from genmonitor.evaluation.text.table import aligned, terminal_width, within
from genmonitor.partition import PixelPartition
from genmonitor.plotting.style import Drawing

TABLE_NOTES = {
    "error ratio": "5 × = five times the error that real images score; a few unusual images can raise it by chance, "
    "and p says whether it is more than that",
    "share": "part of the image's loss",
}


@dataclass(frozen=True, eq=False)
class RegionPresenter(Presenter[RegionEvaluation]):
    """Shows which regions differ, on their map, with curves and samples.

    Attributes:
        fitted: the regions and the real images.
        values: of the regions.
        prompts: what samples are captioned with; None for no captions.
        take_cka: gives the CKA matrix, once; None where there is none.
    """

    fitted: Fitted
    values: RegionValues
    prompts: Prompts | None = None
    take_cka: Callable[[], Tensor | None] = lambda: None

    title = "Regions of the image"
    figures_to_keep = ("diagnosis", "samples")

    @property
    def partition(self) -> PixelPartition:
        """The regions."""
        return self.fitted.regions.partition

    def message(self, findings: Sequence[Finding], record: Record) -> str:
        """Return one line about an evaluation, the finding first."""
        p, ratio = record.get(self.values.p[IMAGE]), format_ratio(record[self.values.error_ratio[IMAGE]])
        image = f"Image: CMS {format_cms(record[IMAGE])}, error ratio {ratio}{'' if p is None else f' ({format_p(p)})'}"
        return f"{findings[0]} {image}; product of the regions {format_cms(record['product'])}{when(record)}"

    def summary(self, findings: Sequence[Finding], history: History) -> str:
        """Return a table of the regions, those that differ most at the last evaluation first."""
        return plain_table(findings, history[-1], self.partition)

    def summary_html(self, findings: Sequence[Finding], history: History) -> str:
        """Return the same on the map of the regions."""
        return regions_html(findings, history[-1], self.partition)

    def fit_figures(self) -> Mapping[str, Figure]:
        """Draw the cluster map, the map over the average image, and the CKA matrix ordered by cluster."""
        height, width = self.fitted.real.shape[2:]
        return region_figures.fit_figures(replace(self.fitted.regions, cka=self.take_cka()), (height, width))

    def figures(self, evaluation: RegionEvaluation, history: History, samples: Samples) -> Mapping[str, Drawing]:
        """Return what draws the diagnosis, the curves, and samples with the region that differs most."""
        captions, regions = region_figures.captions_of(samples, self.prompts), self.fitted.regions
        out = region_figures.evaluation_figures(regions, evaluation.findings, history, samples.images, captions)
        diagnosis = evaluation.diagnosed.diagnosis
        if diagnosis is None:
            return out
        finding = evaluation.findings[0] if evaluation.findings[0].kinds else diagnosis.findings[0]
        return region_figures.diagnosis_figures(diagnosis, finding, regions.value_range) | out

    def tables(self, evaluation: RegionEvaluation) -> Mapping[str, Table]:
        """Return what was found of each class, those that differ most first."""
        return {"classes": class_table(class_data(evaluation.classes))} if evaluation.classes else {}

    def shown_real(self) -> ShownImages | None:
        """Return real images that generated ones are compared with; None where this process has none."""
        return region_figures.shown_real(self.fitted) if len(self.fitted.real) else None

    def shown_samples(self, samples: Samples) -> ShownImages | None:
        """Return generated images, and for each the most similar real one; None where this process has none."""
        return region_figures.shown_samples(self.fitted, samples, self.prompts) if len(samples.images) else None


def regions_found(regions: Regions) -> str:
    """Return a map of the regions, and for each how large, where and how stable it is."""
    partition, stability = regions.partition, regions.stability_by_name()
    how = f"{partition.num_clusters} clusters"
    if regions.reused is not None:
        how += (
            f", taken from {regions.reused}, which a run with the same settings left; without it they are found again"
        )
    if stability:
        how += f"; {regions.linkage} linkage, stability {stability['overall']:.2f}"
    return "\n".join([how, "", *region_lines(partition, stability, "ascii")])


def region_lines(partition: PixelPartition, stability: Mapping[str, float], encoding: str | None = None) -> list[str]:
    """Return a map of characters with, beside it or below, a line for each region.

    Args:
        partition: the regions.
        stability: of the regions that have one, by name.
        encoding: of where it is printed; None for standard output's.

    >>> for line in region_lines(PixelPartition.grid((2, 4), 1, 2), {"cluster_1": 0.9}, "ascii"): print(line)
    11112222  region          sites  stability  where
    11112222  1  cluster_1        4       0.90  left half
              2  cluster_2        4             right half
    """
    drawn, sizes = map_of_characters(partition.labels, encoding), partition.sizes()
    rows = [f"{'region':<15}{'sites':>6}  {'stability':>9}  where"]
    for name, label in partition.regions().items():
        value = f"{stability[own]:.2f}" if (own := f"cluster_{label}") in stability else ""
        symbol = symbol_of(label, encoding)
        rows.append(f"{symbol}  {name:<12}{sizes[label]:>6}  {value:>9}  {partition.location(label)}")
    width = len(drawn[0])
    return [f"{left:<{width}}  {right}".rstrip() for left, right in zip_longest(drawn, rows, fillvalue="")]


def region_data(
    findings: Sequence[Finding], record: Mapping[str, float], partition: PixelPartition
) -> dict[str, dict[str, Any]]:
    """Return an evaluation of each region as plain Python, in the order of the findings.

    Returns:
        By name: "label", "sites", "pixels", "where", "cms", "error_ratio", "share", "p_value" and "differs" (None where
        nothing was tested), and "verdict" in words.
    """
    regions, sizes, values = partition.regions(), partition.sizes(), RegionValues(partition.regions())
    found = {}
    for name in dict.fromkeys(x.area.region for x in findings if x.area.region in regions):
        label, p = regions[name], record.get(values.p[name])
        found[name] = {
            "label": label,
            "sites": sizes[label],
            "pixels": sizes[label] * partition.patch_size**2,
            "where": partition.location(label),
            "cms": record[name],
            "error_ratio": record[values.error_ratio[name]],
            "share": record[values.share[name]],
            "p_value": p,
            "differs": None if p is None else differs(p),
            "verdict": verdict_of(findings, name),
        }
    return found


def region_table(data: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return `region_data` as cells to be read."""
    rows = [
        [
            name,
            of["sites"],
            format_cms(of["cms"]),
            format_ratio(of["error_ratio"]) if of["label"] else "–",
            f"{100 * of['share']:z.0f} %",
            of["where"],
            of["verdict"],
        ]
        for name, of in data.items()
    ]
    columns = ["region", "sites", "CMS", "error ratio", "share", "where", "against real images"]
    return Table(columns, rows, ["sites", "share", "CMS", "where"], TABLE_NOTES)


def plain_table(
    findings: Sequence[Finding], record: Mapping[str, float], partition: PixelPartition, of: str = ""
) -> str:
    """Return an evaluation region by region, those that differ most from real images first.

    Args:
        findings: of the evaluation.
        record: its values.
        partition: the regions.
        of: added to the title, such as "500 images".
    """
    width = terminal_width()
    table = within(region_table(region_data(findings, record, partition)), width)
    epoch = f"epoch {record['epoch']:g}" if "epoch" in record else ""
    title = ", ".join(filter(None, ["Regions", epoch, of]))
    return "\n".join(["", title, aligned(table, width), table.legend, ""])


def regions_html(findings: Sequence[Finding], record: Mapping[str, float], partition: PixelPartition) -> str:
    """Return the finding, the map, and the table of the regions, those in bold that differ."""
    data = region_data(findings, record, partition)
    bad = [name for name, of in data.items() if of["differs"]]
    epoch = f"epoch {record['epoch']:g}" if "epoch" in record else ""
    return heading_html(str(findings[0]), epoch) + on_map(region_table(data), partition, bad)


def on_map(table: Table, partition: PixelPartition, bad: Sequence[str] = ()) -> str:
    """Return a table of the regions beside their map and what its columns mean below, for a notebook.

    Args:
        table: whose first column names the regions.
        partition: the regions.
        bad: rows to set in bold.
    """
    table_of = table_html(table.columns, table.rows, partition.regions(), bad)
    return columns_html(map_html(partition.labels), table_of) + text_html(table.legend)
