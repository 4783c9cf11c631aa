# SPDX-License-Identifier: Apache-2.0
"""`genmonitor clusters`: which pixels of a set of images belong together."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from genmonitor._validation.arguments import check_patches
from genmonitor.cli.arguments import IMAGES, given, given_path, whole_number
from genmonitor.cli.images import read_images
from genmonitor.evaluation.progress import terminal_progress
from genmonitor.evaluation.regions import find_clusters
from genmonitor.kernels import GaussianKernel
from genmonitor.plotting import pixel_clusters as plots
from genmonitor.report.folder import RunFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("images", metavar="IMAGES", type=given, help=IMAGES)
    parser.add_argument(
        "--n-clusters", type=whole_number(1), metavar="N", help="how many (default: chosen by the data)"
    )
    parser.add_argument(
        "--patch-size", type=whole_number(1), default=1, metavar="P", help="sites of PxP pixels; 2 or more beyond 64x64"
    )
    parser.add_argument(
        "--n-images", type=whole_number(2), default=1000, metavar="N", help="how many images to take (1000)"
    )
    parser.add_argument("--size", type=whole_number(1), metavar="S", help="cut a folder's images to squares of SxS")
    parser.add_argument(
        "--out", type=given_path, default=Path("runs/clusters"), metavar="FOLDER", help="where to (runs/clusters)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Find the clusters, and write the partition and figures of it."""
    images = read_images(args.images, args.size, args.n_images)
    check_patches("images", images, args.patch_size)
    kernel = GaussianKernel().resolved(images.flatten(1))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    partition, cka = find_clusters(images.to(device), kernel, args.n_clusters, args.patch_size, terminal_progress)
    folder, labels = RunFolder(args.out), partition.pixel_labels()
    figures = {
        "map": plots.cluster_map(labels),
        "over_average": plots.cluster_overlay(labels, images.mean(0)),
        "cka": plots.cka_matrix(cka, partition.labels),
    }
    files = [str(path) for path in folder.write_figures("clusters", figures, step=0).values()]
    partition.save(folder.path / "partition.npz")
    sizes = partition.sizes()
    return {
        "images": len(images),
        "gamma": kernel.gamma,
        "sites": {name: sizes[label] for name, label in partition.regions().items()},
        "labels": partition.labels.tolist(),
        "files": [str(folder.path / "partition.npz"), *files],
    }


def said(result: dict[str, Any]) -> str:
    """Say the result in words."""
    rows = [f"{name:<12}{count:>8}" for name, count in result["sites"].items()]
    return "\n".join([f"{'region':<12}{'sites':>8}", *rows, "", *result["files"]])
