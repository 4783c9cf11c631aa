# SPDX-License-Identifier: Apache-2.0
"""`genmonitor compare`: region by region, how well generated images meet the distribution of real ones."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from genmonitor import GaussianKernel, PixelPartition
from genmonitor._validation import check_at_least
from genmonitor._validation.arguments import check_patches
from genmonitor.callbacks import report
from genmonitor.callbacks.loggers import log_figures
from genmonitor.callbacks.manifest import write_about, write_json, write_manifest
from genmonitor.callbacks.ranges import check_ranges
from genmonitor.callbacks.regions import Found, RegionMetric, find_regions
from genmonitor.callbacks.roles import assign_roles
from genmonitor.callbacks.shown import WHOLE_RUN
from genmonitor.cli.images import read_images
from genmonitor.plotting import pixel_clusters as figures
from genmonitor.report import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "real", metavar="REAL", help="real images: a folder of image files, or a file .npy, .npz or .pt"
    )
    parser.add_argument("fake", metavar="FAKE", help="generated images, the same")
    parser.add_argument(
        "--partition", type=Path, metavar="FILE", help="partition.npz of `genmonitor clusters` or of a run"
    )
    parser.add_argument("--n-clusters", type=int, metavar="N", help="how many (default: chosen by the data)")
    parser.add_argument(
        "--patch-size", type=int, default=1, metavar="P", help="sites of P×P pixels; 2 or more beyond 64×64"
    )
    parser.add_argument("--n-samples", type=int, default=1200, metavar="N", help="at most so many of each side (1200)")
    parser.add_argument("--size", type=int, metavar="S", help="cut the folders' images to squares of S×S pixels")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of images (0)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/compare"), metavar="FOLDER", help="where to (runs/compare)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, and write figures, a manifest and the report."""
    check_at_least("--n-samples", args.n_samples, 2)
    real, fake = read_images(args.real, args.size), read_images(args.fake, args.size)
    _check_shapes(real, fake)
    check_ranges(real, fake)
    check_patches("images", real, args.patch_size)
    given = None if args.partition is None else _partition(args.partition, real)
    # no more than real images can be put in their place
    n = min(args.n_samples, len(fake), len(real) // 2)
    chosen = torch.randperm(len(fake), generator=torch.Generator().manual_seed(args.seed))[:n]
    roles = assign_roles(None, real, None, 1000, n, None, args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = find_regions(
        roles,
        lambda images: images.to(device),
        GaussianKernel(),
        given,
        args.n_clusters,
        args.patch_size,
        None,
        n,
        args.seed,
        lambda over, doing: iter(tqdm(over, desc=doing, leave=False, disable=None)),
    )
    metric = RegionMetric(found.partition, found.kernel).to(device)
    metric.update(roles.compared.read(roles.for_comparison).to(device), real=True)
    metric.update(fake[chosen].to(device), real=False)
    measured: Any = metric.compute()
    check = {name: float(value) for name, value in measured.items()}
    notes = [note.replace("training images", "real images") for note in roles.notes if "validation data" not in note]
    page = _write(args, check, found, n, fake[chosen[:64]], notes)
    return {
        "values": check,
        "yardstick": found.yardstick,
        "n_samples": n,
        "gamma": found.kernel.gamma,
        "report": str(page),
        "notes": notes,
        "table": report.table([check], found.partition, found.yardstick),
    }


def _partition(path: Path, images: Tensor) -> PixelPartition:
    try:
        partition = PixelPartition.load(path)
    except Exception as error:
        raise ValueError(
            f"Expected the partition.npz of `genmonitor clusters` or of a run, but got {path}: {error}"
        ) from error
    partition.check_images("images", tuple(images.shape))
    return partition


def _check_shapes(real: Tensor, fake: Tensor) -> None:
    if real.shape[1:] != fake.shape[1:]:
        raise ValueError(
            f"Expected generated images of shape {list(real.shape[1:])} like the real ones, but got "
            f"{list(fake.shape[1:])}. Convert one of them; --size resizes folders."
        )
    if len(real) < 4 or len(fake) < 2:
        raise ValueError(f"Expected at least 4 real and 2 generated images, but got {len(real)} and {len(fake)}.")


def _write(
    args: argparse.Namespace, check: dict[str, float], found: Found, n: int, samples: Tensor, notes: list[str]
) -> Path:
    folder: Path = args.out / "genmonitor"
    folder.mkdir(parents=True, exist_ok=True)
    regions, labels = found.partition.regions(), found.partition.pixel_labels()
    worst, share = report.most_to_blame(check, found.partition)
    drawn = {
        "cms/samples": figures.sample_grid(
            samples, labels, regions[worst] if share else None, found.value_range, share or None
        ),
        "cms/clusters": figures.cluster_map(labels),
        "cms/clusters_over_average": figures.cluster_overlay(labels, found.average),
    }
    if found.cka is not None:
        drawn["cms/cka"] = figures.cka_matrix(found.cka, found.partition.labels)
    log_figures([], drawn, 0, folder)
    found.partition.save(folder / "partition.npz")
    write_about(folder / "cms_about.json", report.charts(list(regions)), report.ABOUT)
    manifest = {
        "monitor": "compare",
        "check": check,
        "real": args.real,
        "fake": args.fake,
        "seed": args.seed,
        "n_samples": n,
        "kernel": type(found.kernel).__name__,
        **asdict(found.kernel),
        "range": list(found.value_range),
        "partition": "partition.npz",
        "yardstick": found.yardstick,
    }
    write_json(folder / "cms_notes.json", [{**WHOLE_RUN, "text": f"{note[0].upper()}{note[1:]}."} for note in notes])
    write_manifest(folder / "cms_check_00001.json", manifest)
    return write_report(folder)


def said(result: dict[str, Any]) -> str:
    """Say the result in words."""
    notes = [f"Note: {note}." for note in result["notes"]]
    table = result["table"].replace(" (worst first)", f", {result['n_samples']} images (worst first)")
    return "\n".join([table, *notes, f"Report: {result['report']}"])
