# SPDX-License-Identifier: Apache-2.0
"""What an evaluation of the regions says in words, and which of its values share a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from genmonitor._formatting import format_cms, reaches_baseline
from genmonitor._places import map_of_characters, symbol_of
from genmonitor.evaluation.baseline import Band
from genmonitor.evaluation.regions import RegionFit
from genmonitor.evaluation.results import Alert, Record, when
from genmonitor.partition import PixelPartition

ABOUT = {
    "image": "cosine mean similarity of whole images, in [0, 1], higher is better",
    "product": "product of all regions' values; equal to `image` where the regions are independent",
    "cluster_…": "cosine mean similarity of one cluster of pixels, in [0, 1], higher is better",
    "constant": "the same for the pixels that never vary in the training images",
    "share_…": "the part of the image's loss that a region contributes; all sum to 1",
    "violations": "how many regions have a lower CMS than the image, which independent ones never have: above 0, the "
    "regions depend on each other, and the shares are only a guide",
    "mmd": "squared maximum mean discrepancy of whole images, unbiased, around 0 at best, lower is better",
    "baseline_…": "what real images get in place of generated ones: the median of 20 draws",
    "sampling_seconds": "seconds spent drawing the samples of an evaluation",
    "metric_seconds": "seconds spent measuring them",
    "images_seen": "training images so far",
}


def charts(regions: Sequence[str]) -> dict[str, list[str]]:
    """Return which values belong in one chart, by its title.

    >>> charts(["cluster_1", "constant"])["Share of the loss"]
    ['share_1', 'share_constant']
    """
    return {
        "CMS per cluster": list(regions),
        "CMS of image and product": ["image", "product"],
        "Share of the loss": [share_name(region) for region in regions],
        "Seconds per evaluation": ["sampling_seconds", "metric_seconds"],
    }


def share_name(region: str) -> str:
    """Name the share of a region: "share_1" for "cluster_1"."""
    return f"share_{region.removeprefix('cluster_')}"


def named(region: str, partition: PixelPartition) -> str:
    """Name a region and where it is.

    >>> named("cluster_2", PixelPartition.grid((4, 4), 1, 2))
    'cluster_2 (right half)'
    """
    label = partition.regions()[region]
    return f"{region} ({partition.location(label)})" if label else region


def regions_found(regions: RegionFit) -> str:
    """Return a map of the regions, and for each how large, where and how stable it is."""
    partition, stability = regions.partition, regions.stability_by_name()
    how = f"{partition.num_clusters} clusters"
    if regions.reused is not None:
        how += f", taken from {regions.reused}, which a run with the same settings left; without it they are found anew"
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
        value = f"{stability[name]:.2f}" if name in stability else ""
        symbol = symbol_of(label, encoding)
        rows.append(f"{symbol}  {name:<12}{sizes[label]:>6}  {value:>9}  {partition.location(label)}")
    width = len(drawn[0])
    return [f"{left:<{width}}  {right}".rstrip() for left, right in zip_longest(drawn, rows, fillvalue="")]


def largest_contributor(values: Mapping[str, float], partition: PixelPartition) -> tuple[str, float]:
    """Return the region with the largest share of the loss, and that share."""
    worst = max(partition.regions(), key=lambda region: values[share_name(region)])
    return worst, values[share_name(worst)]


def message(record: Record, partition: PixelPartition, baseline: Mapping[str, Band]) -> str:
    """Return one line about an evaluation, the finding first."""
    finding = "Every region reaches its baseline"
    if not all(reaches_baseline(record[region], baseline[region][0]) for region in partition.regions()):
        worst, share = largest_contributor(record, partition)
        found = _against(record[worst], baseline[worst])
        finding = f"{named(worst, partition)} contributes {100 * share:.0f} % of the loss: {found}"
    image = f"image: {_against(record['image'], baseline['image'])}, product of the regions"
    return f"{finding}; {image} {format_cms(record['product'])}{when(record)}"


def _against(value: float, band: Band) -> str:
    return f"CMS {format_cms(value)}, baseline {format_cms(band[0])} or more"


def regressed(prefix: str, region: str, record: Record, band: Band, partition: PixelPartition) -> Alert:
    """Return the alert about a region that fell below its baseline."""
    cms, low = format_cms(record[region]), format_cms(band[0])
    text = f"{named(region, partition)} regressed: CMS {cms} at epoch {record['epoch']:g}, baseline {low} or more."
    return Alert(f"{prefix}: {region} regressed", text)


def table(
    records: Sequence[Mapping[str, float]], partition: PixelPartition, baseline: Mapping[str, Band], of: str = ""
) -> str:
    """Return the last evaluation region by region, the largest contributor first, and when each was best.

    Args:
        records: one or more.
        partition: the regions.
        baseline: of each region.
        of: what to add to the title, such as "500 images".
    """
    last, regions, sizes = records[-1], partition.regions(), partition.sizes()
    head = f"{'region':<12}{'sites':>6}  {'CMS':<10}{'baseline':<20}{'where':<26}{'share':>6}" + "  best" * (
        len(records) > 1
    )
    rows = []
    for region in sorted(regions, key=lambda region: -last[share_name(region)]):
        low, _, high = baseline[region]
        band = f"{format_cms(low)}..{format_cms(high)}"
        row = f"{region:<12}{sizes[regions[region]]:>6}  {format_cms(last[region]):<10}{band:<20}"
        row += f"{partition.location(regions[region]):<26}"
        row += f"{100 * last[share_name(region)]:>4.0f} %"
        if len(records) > 1:
            best = max(records, key=lambda record: record[region])
            row += f"  {format_cms(best[region])} at epoch {best['epoch']:g}"
        rows.append(row)
    when = f"epoch {last['epoch']:g}" if "epoch" in last else ""
    title = ", ".join(filter(None, ["CMS by region", when, of]))
    return "\n".join(["", f"{title} (largest contributor to the loss first)", head, *rows, ""])
