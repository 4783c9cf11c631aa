# SPDX-License-Identifier: Apache-2.0
"""`genmonitor clusters`: which pixels of a set of images belong together."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from rich.text import Text

from genmonitor._formatting import as_sentence
from genmonitor._validation.arguments import check_patches
from genmonitor.cli.arguments import IMAGES, given, given_path, given_settings, whole_number
from genmonitor.cli.reading.images import read_images
from genmonitor.cli.showing.progress import working
from genmonitor.cli.showing.terminal import beside_map, headed, rich_table
from genmonitor.evaluation.data.reference import evenly_spread, image_budget
from genmonitor.evaluation.regions.clustering import find_clusters
from genmonitor.evaluation.results import Table
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.evaluation.text.pixel_clusters import region_lines
from genmonitor.linalg.clustering import LINKAGES
from genmonitor.partition import PixelPartition
from genmonitor.plotting import pixel_clusters as plots
from genmonitor.report.folder import RunFolder

MIN_IMAGES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("images", metavar="IMAGES", type=given, help=IMAGES)
    parser.add_argument(
        "--n-clusters",
        type=whole_number(1),
        metavar="N",
        help="how many (default: that of 2..8 on which halves of the images agree best)",
    )
    parser.add_argument("--linkage", choices=LINKAGES, help="how to cluster (default: chosen with --n-clusters)")
    parser.add_argument(
        "--patch-size", type=whole_number(1), metavar="P", help="sites of PxP pixels; 2 or more beyond 64x64"
    )
    parser.add_argument(
        "--n-images",
        type=whole_number(4),
        metavar="N",
        help="at most so many images, evenly spread (default: what half a minute allows, 1000 to 5000)",
    )
    parser.add_argument("--size", type=whole_number(1), metavar="S", help="cut a folder's images to squares of SxS")
    parser.add_argument(
        "--out", type=given_path, default=Path("runs/clusters"), metavar="FOLDER", help="where to (runs/clusters)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Find the clusters, and write the partition and figures of it."""
    with working("reading images") as progress:
        images = read_images(args.images, args.size, progress=progress)
    of = RegionSettings(**given_settings(args, RegionSettings))
    check_patches("images", images, of.patch_size)
    images = images[evenly_spread(len(images), args.n_images or image_budget(tuple(images.shape[1:]), of.patch_size))]
    if len(images) < MIN_IMAGES:
        raise ValueError(f"Expected at least {MIN_IMAGES} images, but {args.images} holds {len(images)}.")
    kernel = of.given_kernel.resolved(images.flatten(1))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with working("finding the regions") as progress:
        found = find_clusters(images.to(device), kernel, of.n_clusters, of.patch_size, progress, of.linkage)
    partition, stability = found.partition, found.stability.by_name()
    folder, labels = RunFolder(args.out), partition.pixel_labels()
    figures = {
        "map": plots.cluster_map(labels),
        "over_average": plots.cluster_overlay(labels, images.mean(0)),
        "cka": plots.cka_matrix(found.cka, partition.labels),
    }
    with working("drawing them"):
        files = [str(path) for path in folder.write_figures("clusters", figures, step=0).values()]
    partition.save(folder.path / "partition.npz")
    sizes = partition.sizes()
    return {
        "images": len(images),
        "gamma": kernel.gamma,
        "linkage": found.linkage,
        "stability": stability,
        "regions": {
            name: {
                "label": label,
                "sites": sizes[label],
                "pixels": sizes[label] * of.patch_size**2,
                "where": partition.location(label),
                "stability": stability.get(name),
            }
            for name, label in partition.regions().items()
        },
        "notes": [as_sentence(note) for note in found.notes()],
        "labels": partition.labels.tolist(),
        "files": [str(folder.path / "partition.npz"), *files],
    }


def said(result: dict[str, Any]) -> str:
    """Say the result in words."""
    partition = PixelPartition(torch.tensor(result["labels"]))
    lines = region_lines(partition, result["stability"])
    return "\n".join([*_head(result), "", *lines, "", *result["notes"], *result["files"]])


def shown(result: dict[str, Any]) -> RenderableType:
    """Show the result in color."""
    rows = [
        [name, of["sites"], "" if of["stability"] is None else f"{of['stability']:.2f}", of["where"]]
        for name, of in result["regions"].items()
    ]
    labels = {name: of["label"] for name, of in result["regions"].items()}
    table = rich_table(Table(["region", "sites", "stability", "where"], rows), labels)
    finding, about = _head(result)
    rest = "\n".join(["", *result["notes"], *result["files"]])
    return headed(finding, False, Text(f"{about}\n"), beside_map(result["labels"], table), Text(rest))


def _head(result: dict[str, Any]) -> list[str]:
    count, agreement = sum(name != "constant" for name in result["regions"]), result["stability"]["overall"]
    return [
        f"{count} clusters by {result['linkage']} linkage in {result['images']} images.",
        f"Stability {agreement:.2f}: how far halves of the images agree, 1 if they are the same, 0 by chance.",
    ]
