# SPDX-License-Identifier: Apache-2.0
"""What a check of the regions says in words, and which of its values share a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genmonitor import PixelPartition
from genmonitor._formatting import format_cms
from genmonitor.callbacks.yardstick import Band

ABOUT = {
    "image": "cosine mean similarity of whole images, in [0, 1], higher is better",
    "product": "product of all regions'; equal to `image` where the regions are independent",
    "cluster_…": "cosine mean similarity of one cluster of pixels, in [0, 1], higher is better",
    "constant": "the same of the pixels that never vary in the training images",
    "share_…": "which part of the image's loss a region carries; all sum to 1",
    "violations": "how many regions have a lower CMS than the image, which independent ones never have: above 0, the "
    "regions depend on each other, and the shares are only a guide",
    "mmd": "squared maximum mean discrepancy of whole images, unbiased, around 0 at best, lower is better",
    "yardstick_…": "what real images get in place of generated ones: the median of 20 draws",
    "sampling_seconds": "what drawing the samples of a check took",
    "metric_seconds": "what measuring them took",
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
        "Seconds per check": ["sampling_seconds", "metric_seconds"],
    }


def share_name(region: str) -> str:
    """Name the share of a region: "share_1" for "cluster_1"."""
    return f"share_{region.removeprefix('cluster_')}"


def most_to_blame(check: Mapping[str, float], partition: PixelPartition) -> tuple[str, float]:
    """Return the region with the largest share, and that share."""
    worst = max(partition.regions(), key=lambda region: check[share_name(region)])
    return worst, check[share_name(worst)]


def line(check: Mapping[str, float], partition: PixelPartition, yardstick: Mapping[str, Band]) -> str:
    """Say one check in a line."""
    worst, share = most_to_blame(check, partition)
    blame = f"most to blame: {worst}, {100 * share:.0f} % (CMS {format_cms(check[worst])})" if share else ""
    return (
        f"epoch {check['epoch']:g}: CMS {format_cms(check['image'])}, product {format_cms(check['product'])} "
        f"(a perfect generator: {format_cms(yardstick['image'][0])} or more); {blame or 'no region to blame'}"
    )


def table(history: Sequence[Mapping[str, float]], partition: PixelPartition, yardstick: Mapping[str, Band]) -> str:
    """Say the last check region by region, the most to blame first, and when each was best where there are several."""
    last, regions, sizes = history[-1], partition.regions(), partition.sizes()
    head = f"{'region':<12}{'sites':>6}  {'CMS':<10}{'yardstick':<20}{'share':>6}" + "  best" * (len(history) > 1)
    rows = []
    for region in sorted(regions, key=lambda region: -last[share_name(region)]):
        low, _, high = yardstick[region]
        band = f"{format_cms(low)}..{format_cms(high)}"
        row = f"{region:<12}{sizes[regions[region]]:>6}  {format_cms(last[region]):<10}{band:<20}"
        row += f"{100 * last[share_name(region)]:>4.0f} %"
        if len(history) > 1:
            best = max(history, key=lambda check: check[region])
            row += f"  {format_cms(best[region])} at epoch {best['epoch']:g}"
        rows.append(row)
    when = f", epoch {last['epoch']:g}" if "epoch" in last else ""
    return "\n".join(["", f"Where the generator is wrong{when} (worst first)", head, *rows, ""])
