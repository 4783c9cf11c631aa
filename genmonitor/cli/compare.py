# SPDX-License-Identifier: Apache-2.0
"""`genmonitor compare`: where generated images differ from real ones, or which of two sets is closer to them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from rich.text import Text

from genmonitor._formatting import as_sentence
from genmonitor.cli.arguments import IMAGES, given, given_path, given_settings, whole_number
from genmonitor.cli.reading.images import read_images
from genmonitor.cli.showing.progress import working
from genmonitor.cli.showing.results import add_out_argument, check_out, where_to_look, write_result
from genmonitor.cli.showing.terminal import beside_map, headed, rich_table
from genmonitor.evaluation import Comparison, RegionSettings, compare
from genmonitor.evaluation.regions.saved import load_partition
from genmonitor.evaluation.text.comparison import closer_note, closer_table
from genmonitor.evaluation.text.pixel_clusters import TABLE_NOTE, region_table
from genmonitor.partition import PixelPartition
from genmonitor.report.folder import RunFolder

PREFIX = "cms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("real", metavar="REAL", type=given, help=f"real images, not trained on: {IMAGES}")
    parser.add_argument("fake", metavar="FAKE", type=given, help="generated images, the same")
    parser.add_argument(
        "other",
        metavar="OTHER",
        nargs="?",
        type=given,
        help="those of another model, to ask which is closer to real",
    )
    parser.add_argument(
        "--paired", action="store_true", help="images i of FAKE and OTHER come from one seed or one prompt"
    )
    parser.add_argument(
        "--partition", type=given_path, metavar="FILE", help="partition.npz of `genmonitor clusters` or of a run"
    )
    parser.add_argument(
        "--n-clusters", type=whole_number(1), metavar="N", help="how many (default: chosen by the data)"
    )
    parser.add_argument(
        "--patch-size", type=whole_number(1), metavar="P", help="sites of PxP pixels; 2 or more beyond 64x64"
    )
    parser.add_argument("--n-samples", type=whole_number(2), metavar="N", help="at most so many of each side (1200)")
    parser.add_argument("--size", type=whole_number(1), metavar="S", help="cut the folders' images to squares of SxS")
    parser.add_argument("--seed", type=whole_number(0), help="of the choice of images (0)")
    add_out_argument(parser, "compare")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Compare, and write figures, a manifest and the report."""
    check_out(args.out)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with working("reading images") as progress:
        sets = [read_images(x, args.size, progress=progress) for x in (args.real, args.fake, args.other) if x]
    real, fake, *other = sets
    if args.partition is not None:
        args.partition = _read_partition(args.partition)
    with working("comparing") as progress:
        settings = given_settings(args, RegionSettings)
        comparison = compare(real, fake.to(device), *other, paired=args.paired, progress=progress, **settings)
    comparison = replace(comparison, names=_names(args.fake, args.other))
    with working("writing the report"):
        written = write_result(args.out, "compare", PREFIX, lambda folder: _write(folder, args, comparison))
    labels = comparison.partition.labels.tolist()
    return {**comparison.to_dict(), "labels": labels, "text": str(comparison), **written}


def said(result: dict[str, Any]) -> str:
    """Say the result in words, the finding first."""
    return f"{result['text']}\n{where_to_look(result)}"


def shown(result: dict[str, Any]) -> RenderableType:
    """Show the result in color, the finding first."""
    regions = result["regions"]
    labels = {name: of["label"] for name, of in regions.items()}
    if "differences" in result:
        sites = {name: of["sites"] for name, of in regions.items()}
        values, names = (result["values"], result["other_values"]), result["names"]
        found = closer_table(result["differences"], values, names, {"image": sum(sites.values()), **sites})
        note, bad = closer_note(names), []
    else:
        found, note = region_table(regions), TABLE_NOTE
        bad = [name for name, of in regions.items() if of["differs"]]
    notes = "\n".join(["", note, *(f"Note: {as_sentence(x)}" for x in result["notes"]), where_to_look(result)])
    table = beside_map(result["labels"], rich_table(found, labels, bad))
    return headed(f"{result['finding']}.", bool(bad), Text(f"{result['split']}.\n"), table, Text(notes))


def _read_partition(path: Path) -> PixelPartition:
    try:
        return load_partition(path)
    except Exception as error:
        raise ValueError(
            f"Expected the partition.npz of `genmonitor clusters` or of a run, but got {path}: {error}"
        ) from error


def _names(fake: str, other: str | None) -> tuple[str, ...]:
    """Name the sets as briefly as tells them apart."""
    if other is None:
        return (Path(fake).name,)
    names = (Path(fake).name, Path(other).name)
    return names if all(names) and names[0] != names[1] else (fake, other)


def _write(folder: RunFolder, args: argparse.Namespace, comparison: Comparison) -> None:
    evaluator = comparison.evaluator
    folder.write_figures(PREFIX, {**evaluator.fit_figures(), "samples": comparison.figure()}, step=0)
    for name, shown in comparison.shown_images().items():
        folder.write_images(PREFIX, name, shown, step=0)
    if comparison.table is not None:
        folder.write_table(PREFIX, "which_is_closer", comparison.table, step=0)
    evaluator.write_artifacts(folder.path)
    folder.write_about(PREFIX, evaluator.charts(), evaluator.about)
    folder.write_notes(PREFIX, [{"epoch": None, "step": None, "text": as_sentence(x)} for x in comparison.notes])
    manifest = {
        **evaluator.manifest(),
        "baseline": comparison.baseline,
        "monitor": "compare",
        "heading": f"{' and '.join(filter(None, (args.fake, args.other)))} compared with {args.real}",
        "evaluation": comparison.values,
        "message": f"{comparison.finding}.",
        "split": f"{comparison.split}.",
        "real_images": args.real,
        "generated_images": args.fake,
        "other_images": args.other,
        "paired": args.paired,
        "settings": evaluator.settings.to_manifest(),
        "n_samples": comparison.n_samples,
    }
    if comparison.differences is not None:
        manifest["differences"] = comparison.differences
    folder.write_manifest(PREFIX, 1, manifest)
