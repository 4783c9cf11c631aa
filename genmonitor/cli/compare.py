# SPDX-License-Identifier: Apache-2.0
"""`genmonitor compare`: region by region, how well generated images meet the distribution of real ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genmonitor._formatting import as_sentence
from genmonitor._validation.arguments import check_patches
from genmonitor.cli.arguments import IMAGES, given, given_path, whole_number
from genmonitor.cli.images import read_images
from genmonitor.evaluation import ReferenceImages, RegionEvaluator, Samples, SingleProcess, run_evaluation
from genmonitor.evaluation.data.value_range import range_doubt
from genmonitor.evaluation.progress import terminal_progress
from genmonitor.evaluation.results import Evaluation
from genmonitor.evaluation.saved_regions import load_partition
from genmonitor.evaluation.text.pixel_clusters import message, table
from genmonitor.partition import PixelPartition
from genmonitor.report.folder import RunFolder
from genmonitor.report.run import read_run

MIN_REAL, MIN_FAKE = 4, 2
PROBE = 16
FOLDER = "genmonitor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("real", metavar="REAL", type=given, help=f"real images: {IMAGES}")
    parser.add_argument("fake", metavar="FAKE", type=given, help="generated images, the same")
    parser.add_argument(
        "--partition",
        type=given_path,
        metavar="FILE",
        help="partition.npz of `genmonitor clusters` or of a run",
    )
    parser.add_argument(
        "--n-clusters", type=whole_number(1), metavar="N", help="how many (default: chosen by the data)"
    )
    parser.add_argument(
        "--patch-size", type=whole_number(1), default=1, metavar="P", help="sites of PxP pixels; 2 or more beyond 64x64"
    )
    parser.add_argument(
        "--n-samples", type=whole_number(2), default=1200, metavar="N", help="at most so many of each side (1200)"
    )
    parser.add_argument("--size", type=whole_number(1), metavar="S", help="cut the folders' images to squares of SxS")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of the choice of images (0)")
    parser.add_argument(
        "--out", type=given_path, default=Path("runs/compare"), metavar="FOLDER", help="where to (runs/compare)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Evaluate, and write figures, a manifest and the report."""
    _check_folder(args.out)
    real, fake = read_images(args.real, args.size), read_images(args.fake, args.size)
    _check_images(real, fake, args.patch_size)
    partition = None if args.partition is None else _read_partition(args.partition, real)
    # no more than real images can be put in their place
    n = min(args.n_samples, len(fake), len(real) // 2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.randperm(len(fake), generator=torch.Generator().manual_seed(args.seed))[:n]
    samples = Samples(fake[chosen].to(device), chosen)
    evaluator = RegionEvaluator(
        args.n_clusters, partition, n_samples=n, patch_size=args.patch_size, seed=args.seed, prefix="cms"
    )
    reference = ReferenceImages(given=real, name="the set of real images")
    report = evaluator.fit(reference, samples.images[:PROBE], SingleProcess(), terminal_progress)
    _, evaluation = run_evaluation(evaluator, lambda: samples, SingleProcess(), args.seed)
    notes = [*report.notes, *evaluation.notes]
    page = _write(args, evaluator, evaluation, samples, notes)
    regions = evaluator.fitted.regions
    return {
        "values": evaluation.values,
        "baseline": regions.baseline,
        "n_samples": n,
        "gamma": regions.kernel.gamma,
        "report": str(page),
        "notes": notes,
        "table": table([evaluation.values], regions.partition, regions.baseline, of=f"{n} images"),
    }


def said(result: dict[str, Any]) -> str:
    """Say the result in words."""
    return "\n".join([result["table"], *(f"Note: {note}." for note in result["notes"]), f"Report: {result['report']}"])


def _check_folder(out: Path) -> None:
    """Refuse to write over what a training run left."""
    if any("generated_images" not in run.manifest for run in read_run(out / FOLDER).monitors):
        raise ValueError(f"Expected --out to be a folder of comparisons, but {out} holds a training run's files.")


def _read_partition(path: Path, images: Tensor) -> PixelPartition:
    try:
        partition = load_partition(path)
    except Exception as error:
        raise ValueError(
            f"Expected the partition.npz of `genmonitor clusters` or of a run, but got {path}: {error}"
        ) from error
    partition.check_images("images", tuple(images.shape))
    return partition


def _check_images(real: Tensor, fake: Tensor, patch_size: int) -> None:
    if real.shape[1:] != fake.shape[1:]:
        raise ValueError(
            f"Expected generated images of shape {list(real.shape[1:])} like the real ones, but got "
            f"{list(fake.shape[1:])}. Convert one of them; --size resizes folders."
        )
    if len(real) < MIN_REAL or len(fake) < MIN_FAKE:
        raise ValueError(
            f"Expected at least {MIN_REAL} real and {MIN_FAKE} generated images, but got {len(real)} and {len(fake)}."
        )
    if doubt := range_doubt(real, fake):  # which no training will mend any more
        raise ValueError(f"Expected real and generated images in one value range, but {doubt}. Scale one of them.")
    check_patches("images", real, patch_size)


def _write(
    args: argparse.Namespace, evaluator: RegionEvaluator, evaluation: Evaluation, samples: Samples, notes: list[str]
) -> Path:
    folder, prefix = RunFolder(args.out / FOLDER), evaluator.prefix
    folder.start(prefix)
    record = {"epoch": 0, "step": 0, **evaluation.values}
    figures = {**evaluator.fit_figures(), "samples": evaluator.figures(evaluation, [record], samples)["samples"]}
    folder.write_figures(prefix, figures, step=0)
    evaluator.write_artifacts(folder.path)
    folder.write_about(prefix, evaluator.charts(), evaluator.about)
    folder.write_notes(prefix, [{"epoch": None, "step": None, "text": as_sentence(x)} for x in notes])
    folder.write_manifest(
        prefix,
        1,
        {
            "monitor": "compare",
            "evaluation": evaluation.values,
            "message": message(evaluation.values, evaluator.fitted.regions.partition, evaluator.baseline),
            "real_images": args.real,
            "generated_images": args.fake,
            "seed": args.seed,
            "n_samples": evaluator.n_samples,
            **evaluator.manifest(),
        },
    )
    return folder.write_report()
