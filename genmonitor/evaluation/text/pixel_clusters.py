# SPDX-License-Identifier: Apache-2.0
"""What an evaluation of the regions says in words, and which of its values share a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genmonitor._formatting import format_cms, reaches_baseline
from genmonitor.evaluation.baseline import Band
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


def largest_contributor(values: Mapping[str, float], partition: PixelPartition) -> tuple[str, float]:
    """Return the region with the largest share of the loss, and that share."""
    worst = max(partition.regions(), key=lambda region: values[share_name(region)])
    return worst, values[share_name(worst)]


def message(record: Record, partition: PixelPartition, baseline: Mapping[str, Band]) -> str:
    """Return one line about an evaluation, the finding first."""
    finding = "Every region reaches its baseline"
    if not all(reaches_baseline(record[region], baseline[region][0]) for region in partition.regions()):
        worst, share = largest_contributor(record, partition)
        finding = f"{worst} contributes {100 * share:.0f} % of the loss: {_against(record[worst], baseline[worst])}"
    image = f"image: {_against(record['image'], baseline['image'])}, product of the regions"
    return f"{finding}; {image} {format_cms(record['product'])}{when(record)}"


def _against(value: float, band: Band) -> str:
    return f"CMS {format_cms(value)}, baseline {format_cms(band[0])} or more"


def regressed(prefix: str, region: str, record: Record, band: Band) -> Alert:
    """Return the alert about a region that fell below its baseline."""
    cms, low = format_cms(record[region]), format_cms(band[0])
    text = f"{region} regressed: CMS {cms} at epoch {record['epoch']:g}, baseline {low} or more."
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
    head = f"{'region':<12}{'sites':>6}  {'CMS':<10}{'baseline':<20}{'share':>6}" + "  best" * (len(records) > 1)
    rows = []
    for region in sorted(regions, key=lambda region: -last[share_name(region)]):
        low, _, high = baseline[region]
        band = f"{format_cms(low)}..{format_cms(high)}"
        row = f"{region:<12}{sizes[regions[region]]:>6}  {format_cms(last[region]):<10}{band:<20}"
        row += f"{100 * last[share_name(region)]:>4.0f} %"
        if len(records) > 1:
            best = max(records, key=lambda record: record[region])
            row += f"  {format_cms(best[region])} at epoch {best['epoch']:g}"
        rows.append(row)
    when = f"epoch {last['epoch']:g}" if "epoch" in last else ""
    title = ", ".join(filter(None, ["CMS by region", when, of]))
    return "\n".join(["", f"{title} (largest contributor to the loss first)", head, *rows, ""])
