# SPDX-License-Identifier: Apache-2.0
"""What an evaluation of the regions says in words, and which of its values share a chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import Any

from genmonitor._formatting import format_cms, format_ratio
from genmonitor._places import map_of_characters, symbol_of
from genmonitor.evaluation.regions.finder import Regions
from genmonitor.evaluation.results import Alert, Record, Table, when
from genmonitor.evaluation.verdicts import differs, format_p, p_values_of_change
from genmonitor.functional.two_sample_test import MIN_SAMPLES
from genmonitor.partition import PixelPartition

TABLE_NOTE = (
    "error: how many times as far from 1 the CMS is as that of real images; a few unusual images can raise it by "
    "chance, and p says whether it is more than that; share: part of the image's loss"
)
NOTABLE_ERROR = 2.0
"""Error ratio from which on a region that is not shown to differ is not called indistinguishable either."""
ABOUT = {
    "image": "cosine mean similarity of whole images, in [0, 1], higher is better",
    "product": "product of all regions' values; equal to `image` where the regions are independent",
    "cluster_…": "cosine mean similarity of one cluster of pixels, in [0, 1], higher is better",
    "constant": "the same for the pixels that never vary in the training images",
    "error_ratio_…": "how many times as far from 1 the CMS is as that of real images: about 1 at best, lower is "
    "better; whether a large one is more than chance, the p-value says",
    "p_…": "p-value of the two-sample test: the chance that real images in place of generated ones would differ as "
    "much; 0.05 or less says that the generated ones differ. All regions share this level; the image has its own",
    "vs_best_…": "by how many standard errors the squared maximum mean discrepancy is lower, that is better, than at "
    "the best evaluation before",
    "share_…": "the part of the image's loss that a region contributes; all sum to 1",
    "violations": "how many regions have a lower CMS than the image, which independent ones never have: above 0, the "
    "regions depend on each other, and the shares are only a guide",
    "mmd": "squared maximum mean discrepancy of whole images, unbiased, around 0 at best, lower is better",
    "baseline_…": "what real images get in place of generated ones: the median of 20 draws",
    "sampling_seconds": "seconds spent drawing the samples of an evaluation",
    "metric_seconds": "seconds spent measuring them",
    "images_seen": "training images so far",
}

HIGHER_IS_BETTER = {
    "image": True,
    "product": True,
    "cluster_…": True,
    "constant": True,
    "error_ratio_…": False,
    "violations": False,
    "mmd": False,
}
DETAILS = ("baseline_…", "p_…", "vs_best_…", "share_…", "images_seen")


def charts(regions: Sequence[str]) -> dict[str, list[str]]:
    """Return which values belong in one chart, by its title.

    >>> charts(["cluster_1", "constant"])["Share of the loss"]
    ['share_1', 'share_constant']
    """
    return {
        "CMS per cluster": list(regions),
        "CMS of image and product": ["image", "product"],
        "Error, as a multiple of real images'": [suffixed("error_ratio", name) for name in ("image", *regions)],
        "p-value: do they differ from real images?": [f"p_{name}" for name in ("image", *regions)],
        "Change from the best evaluation before, in standard errors": [
            f"vs_best_{name}" for name in ("image", *regions)
        ],
        "Share of the loss": [suffixed("share", name) for name in regions],
        "Seconds per evaluation": ["sampling_seconds", "metric_seconds"],
    }


def suffixed(value: str, region: str) -> str:
    """Name a value of a region: "share_1" for the share of "cluster_1"."""
    return f"{value}_{region.removeprefix('cluster_')}"


def named(region: str, partition: PixelPartition) -> str:
    """Name a region and where it is.

    >>> named("cluster_2", PixelPartition.grid((4, 4), 1, 2))
    'cluster_2 (right half)'
    """
    label = partition.regions()[region]
    return f"{region} ({partition.location(label) if label else 'pixels that never vary'})"


def regions_found(regions: Regions) -> str:
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


def most_different(values: Mapping[str, float], partition: PixelPartition) -> str | None:
    """Return the region that differs most from real images, None where none differs by more than chance.

    Of regions with one p-value, such as the smallest that the permutations allow, the one with the largest error ratio.
    """
    found = [name for name in partition.regions() if differs(values.get(f"p_{name}", 1.0))]
    return min(found, key=lambda name: (values[f"p_{name}"], -values[suffixed("error_ratio", name)]), default=None)


def finding(record: Mapping[str, float], partition: PixelPartition) -> str:
    """Say which regions differ from real images by more than chance."""
    if "p_image" not in record:
        return f"Too few images for a verdict: a test needs {MIN_SAMPLES} on each side"
    regions, p_image = partition.regions(), record["p_image"]
    count = sum(differs(record[f"p_{name}"]) for name in regions)
    if worst := most_different(record, partition):
        others = "" if count == 1 else f"; {count} of {len(regions)} regions differ"
        return f"{named(worst, partition)} differs from real images ({_strength(record, worst)}){others}"
    if differs(p_image):
        return f"No region differs from real images by itself, but whole images do ({format_p(p_image)})"
    smallest = format_p(min(record[f"p_{name}"] for name in regions))
    return f"No region differs from real images by more than chance (smallest {smallest})"


def verdict(records: Sequence[Mapping[str, float]], partition: PixelPartition) -> tuple[bool | None, str]:
    """Say whether the generator is fine, where it is not, and since when.

    Args:
        records: one or more.
        partition: the regions.

    Returns:
        Whether it is fine, None where nothing was tested; and a sentence.

    Example:
        >>> halves = PixelPartition.grid((4, 4), 1, 2)
        >>> fine = {"epoch": 0, "p_image": 0.3, "p_cluster_1": 0.4, "p_cluster_2": 0.5}
        >>> wrong = fine | {"epoch": 1, "p_cluster_2": 0.005, "error_ratio_2": 12.0}
        >>> verdict([fine, wrong], halves)[1]
        'cluster_2 (right half) differs from real images since epoch 1: its error is 12 × theirs.'
        >>> verdict([wrong | {"epoch": 0}, fine | {"epoch": 1}], halves)[1]
        'No region differs from real images by more than chance, since epoch 1.'
    """
    last, regions = records[-1], list(partition.regions())
    if any(f"p_{name}" not in last for name in ("image", *regions)):
        return None, f"{finding(last, partition)}."
    worst = most_different(last, partition)
    if worst is None and differs(last["p_image"]):
        return False, f"{finding(last, partition)}{_since(records, lambda x: most_different(x, partition) is None)}."
    if worst is None:
        since = _since(records, lambda x: most_different(x, partition) is None and not differs(x.get("p_image", 0.0)))
        return True, f"No region differs from real images by more than chance{',' if since else ''}{since}."
    count = sum(differs(last[f"p_{name}"]) for name in regions)
    others = "" if count == 1 else f" {count} of {len(regions)} regions differ."
    since = _since(records, lambda record: differs(record.get(f"p_{worst}", 1.0)))
    ratio = format_ratio(last[suffixed("error_ratio", worst)])
    return False, f"{named(worst, partition)} differs from real images{since}: its error is {ratio} theirs.{others}"


def _since(records: Sequence[Mapping[str, float]], holds: Callable[[Mapping[str, float]], bool]) -> str:
    """Say since which evaluation something has held without a break, nothing where epochs are not known."""
    lasting = list(takewhile(holds, reversed(records)))
    if len(records) == 1 or "epoch" not in lasting[-1]:
        return ""
    return " at every evaluation so far" if len(lasting) == len(records) else f" since epoch {lasting[-1]['epoch']:g}"


def message(record: Record, partition: PixelPartition) -> str:
    """Return one line about an evaluation, the finding first."""
    image = f"image: CMS {format_cms(record['image'])} ({_strength(record, 'image')})"
    product = f"product of the regions {format_cms(record['product'])}"
    return f"{finding(record, partition)}; {image}, {product}{when(record)}"


def _strength(record: Mapping[str, float], region: str) -> str:
    p = f"{format_p(record[f'p_{region}'])}, " if f"p_{region}" in record else ""
    return f"{p}error {format_ratio(record[suffixed('error_ratio', region)])} that of real images"


def regressed(
    prefix: str, region: str, records: Sequence[Record], p: float, best: float, partition: PixelPartition
) -> Alert:
    """Return the alert about a region that is worse than at its best evaluation, with the epoch since when.

    Args:
        prefix: of the evaluator.
        region: which.
        records: of all evaluations, this one last.
        p: of the change.
        best: the epoch of the best evaluation.
        partition: the regions.
    """
    last, regions = records[-1], list(partition.regions())
    worse = list(takewhile(lambda record: differs(_changes(record, regions, worse=True)[region]), reversed(records)))
    since = f"since epoch {worse[-1]['epoch']:g} it is" if len(worse) > 1 else "it is"
    ratio = format_ratio(last[suffixed("error_ratio", region)])
    text = (
        f"{named(region, partition)} regressed: {since} worse than at epoch {best:g}, its best ({format_p(p)}); "
        f"at epoch {last['epoch']:g} its error is {ratio} that of real images."
    )
    return Alert(f"{prefix}: {region} regressed", text)


def _changes(record: Mapping[str, float], regions: Sequence[str], *, worse: bool) -> dict[str, float]:
    """Return p-values of the regions' change from their best evaluations, 1 where there is none to compare with."""
    return p_values_of_change({name: record.get(f"vs_best_{name}", math.nan) for name in regions}, worse=worse)


def verdicts(records: Sequence[Mapping[str, float]], partition: PixelPartition) -> dict[str, str]:
    """Say of each region whether it differs from real images, and whether it is as good as at its best evaluation."""
    last, regions = records[-1], list(partition.regions())
    worse, better = (_changes(last, regions, worse=worse) for worse in (True, False))
    out = {}
    for name in regions:
        p = last.get(f"p_{name}")
        same = "may be chance" if last[suffixed("error_ratio", name)] >= NOTABLE_ERROR else "indistinguishable"
        said = "not tested" if p is None else f"{'differs' if differs(p) else same} ({format_p(p)})"
        if differs(worse[name]):
            said += f", worse than at its best ({format_p(worse[name])})"
        elif differs(better[name]):
            said += f", better than ever before ({format_p(better[name])})"
        out[name] = said
    return out


def region_findings(records: Sequence[Mapping[str, float]], partition: PixelPartition) -> dict[str, dict[str, Any]]:
    """Return what the last evaluation says of each region as plain Python, those that differ most first.

    Args:
        records: one or more.
        partition: the regions.

    Returns:
        By name: "label", "sites", "pixels", "where", "cms", "error_ratio", "share", "p_value" and "differs" (None where
        nothing was tested), and "verdict" in words.
    """
    last, regions, sizes = records[-1], partition.regions(), partition.sizes()
    said, per_site = verdicts(records, partition), partition.patch_size**2
    found = {}
    for name in sorted(regions, key=lambda name: (last.get(f"p_{name}", 1.0), -last[suffixed("error_ratio", name)])):
        label, p = regions[name], last.get(f"p_{name}")
        found[name] = {
            "label": label,
            "sites": sizes[label],
            "pixels": sizes[label] * per_site,
            "where": partition.location(label),
            "cms": last[name],
            "error_ratio": last[suffixed("error_ratio", name)],
            "share": last[suffixed("share", name)],
            "p_value": p,
            "differs": None if p is None else differs(p),
            "verdict": said[name],
        }
    return found


def region_table(findings: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return `region_findings` as cells to be read."""
    rows = [
        [
            name,
            of["sites"],
            format_cms(of["cms"]),
            format_ratio(of["error_ratio"]),
            f"{100 * of['share']:.0f} %",
            of["where"],
            of["verdict"],
        ]
        for name, of in findings.items()
    ]
    return Table(["region", "sites", "CMS", "error", "share", "where", "against real images"], rows)


def table(records: Sequence[Mapping[str, float]], partition: PixelPartition, of: str = "") -> str:
    """Return the last evaluation region by region, those that differ most from real images first.

    Args:
        records: one or more.
        partition: the regions.
        of: what to add to the title, such as "500 images".
    """
    found, last = region_table(region_findings(records, partition)), records[-1]
    lines = [
        f"{region:<12}{sites:>6}  {cms:<10}{error:>7}{share:>8}  {where:<26}{verdict}"
        for region, sites, cms, error, share, where, verdict in (found.columns, *found.rows)
    ]
    when = f"epoch {last['epoch']:g}" if "epoch" in last else ""
    return "\n".join(["", ", ".join(filter(None, ["Regions", when, of])), *lines, TABLE_NOTE, ""])
