# SPDX-License-Identifier: Apache-2.0
"""`genmonitor compare`: where generated images differ from real ones, or which of two sets is closer to them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from genmonitor.cli import results
from genmonitor.cli.arguments import IMAGES, PATCH_SIZE, apart, given_settings, nonempty, nonempty_path, whole_number
from genmonitor.cli.gate import check_names, condition, failures
from genmonitor.cli.inputs.encoding import default_device
from genmonitor.cli.inputs.outputs import Outputs, images_of, read_images, read_outputs
from genmonitor.cli.inputs.prompts import read_prompts
from genmonitor.cli.progress import show_progress
from genmonitor.cli.results import Measurement, Result
from genmonitor.evaluation import Comparison, RegionSettings, compare
from genmonitor.evaluation.classes import P_CLASS, class_data, class_table
from genmonitor.evaluation.distributed import current_processes
from genmonitor.evaluation.regions.presenter import region_table
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.evaluation.text.comparison import closer_table
from genmonitor.evaluation.values import ValueSpec
from genmonitor.partition import PixelPartition, load_partition, region_key
from genmonitor.report.folder import RunFolder
from genmonitor.report.page import WHICH_IS_CLOSER

PREFIX = "cms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("real", metavar="REAL", type=nonempty, help=f"real images not used for training: {IMAGES}")
    add("fake", metavar="FAKE", type=nonempty, help="generated images, in the same form")
    add(
        "other",
        metavar="OTHER",
        nargs="?",
        type=nonempty,
        help="images of another model, to find out which is closer to real",
    )
    add("--paired", action="store_true", help="image i of FAKE and of OTHER share their seed or prompt")
    add(
        "--labels",
        metavar="LABELS",
        type=nonempty,
        help="the class of each image of FAKE, to find out which class is wrong: `folders`, the name of the folder "
        "that each image is in; a file .npy of whole numbers; or a text, CSV or JSON file as `genmonitor diversity "
        "--prompts` takes it",
    )
    add("--real-labels", metavar="LABELS", type=nonempty, help="the same of REAL (default: what --labels says)")
    add("--train", metavar="TRAIN", type=nonempty, help="images that the generator was trained on, to find copies of")
    add("--partition", type=nonempty_path, metavar="FILE", help="partition.npz of `genmonitor clusters` or of a run")
    add("--n-clusters", type=whole_number(1), metavar="N", help="number of regions (default: chosen by the data)")
    add("--patch-size", type=whole_number(1), metavar="P", help=PATCH_SIZE)
    add(
        "--not-aligned",
        dest="aligned",
        action="store_false",
        default=None,
        help="images have nothing at fixed places: name the kind of fault by patches from random places",
    )
    add("--n-samples", type=whole_number(2), metavar="N", help="at most N images of each side (default: 1200)")
    add("--size", type=whole_number(1), metavar="S", help="crop and resize the folders' images to SxS")
    add("--seed", type=whole_number(0), help="seed of the choice of images (default: 0)")
    add(
        "--fail-if",
        type=condition,
        metavar="CONDITION",
        action="append",
        default=[],
        help='exit with status 1 if a value of FAKE is so: NAME < NUMBER (or <=, >, >=), such as "p < 0.01" or '
        '"error_ratio > 3"; p, error_ratio, share, structure and texture are of any region or the image, error_ratio_2 '
        "of one; p_worse is small where OTHER is closer to real; may be given several times",
    )
    results.add_out_argument(parser, "compare")


def run(args: argparse.Namespace) -> Result:
    """Compare, and write figures, a manifest and the report."""
    comm = current_processes()
    results.check_out(args.out)
    if args.partition is not None:
        args.partition = _read_partition(args.partition)
    regions = ["cluster_1", "constant"] if args.partition is None else [*args.partition.regions()]
    check_names(args.fail_if, [*RegionValues(regions).specs, *map(_worse, ["image", *regions]), P_CLASS])
    with show_progress("reading images") as progress, comm.all_ranks_or_none():
        sets = [read_outputs(x, args.size, progress, IMAGES) for x in (args.real, args.fake, args.other) if x]
        given_labels, notes = _labels(args, sets)
        train = None if args.train is None else read_images(args.train, args.size, progress)
        images = [images_of(x) for x in sets]
    with show_progress("comparing") as progress:
        settings = {**given_settings(args, RegionSettings), **given_labels, "train": train}
        settings |= {"paired": args.paired, "comm": comm, "progress": progress}
        comparison = compare(*images, device=default_device(), **settings)
    names = apart(*filter(None, (args.fake, args.other)))
    comparison = replace(comparison, names=names, notes=(*comparison.notes, *notes))
    with show_progress("writing the report"):
        written = results.write_result(args.out, "compare", PREFIX, lambda folder: _write(folder, args, comparison))
    labels = comparison.partition.labels.tolist()
    found = {**comparison.to_dict(), "labels": labels, "text": str(comparison), **written}
    return found | {"failed": failures(args.fail_if, *_gated(comparison))}


def format_plain(result: Result) -> str:
    """Format the result as text, the finding first."""
    return f"{result['text']}\n{results.closing_lines(result)[-1]}"


def format_rich(result: Result) -> RenderableType:
    """Format the result in color, the finding first."""
    regions = result["regions"]
    labels = {name: of["label"] for name, of in regions.items()}
    if "differences" in result:
        sites = {name: of["sites"] for name, of in regions.items()}
        values, names = (result["values"], result["other_values"]), result["names"]
        found = closer_table(result["differences"], values, names, {"image": sum(sites.values()), **sites})
        bad = []
    else:
        found = region_table(regions)
        bad = [name for name, of in regions.items() if of["differs"]]
    notes = Text("\n".join(["", *results.closing_lines(result)]))
    shown = [results.block_map(result["labels"]), Text(), results.colored_table(found, labels, bad)]
    if "classes" in result:
        wrong = [name for name, of in result["classes"].items() if of["differs"]]
        shown += [results.colored_table(class_table(result["classes"]), differing=wrong)]
    more = "".join(f"{finding['text']}\n" for finding in result["findings"][1:])
    return results.with_finding(
        result["finding"],
        bool(bad),
        Text(f"{more}{result['split']}.\n"),
        *shown,
        notes,
    )


def _read_partition(path: Path) -> PixelPartition:
    try:
        return load_partition(path)
    except Exception as error:
        raise ValueError(
            f"Expected the partition.npz of `genmonitor clusters` or of a run, but got {path}: {error}"
        ) from error


def _labels(args: argparse.Namespace, sets: Sequence[Outputs]) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
    """Return the labels of both sides by argument, and what to say of them."""
    if args.labels is None and args.real_labels is None:
        return {}, ()
    of_fake, of_real = args.labels or args.real_labels, args.real_labels or args.labels
    fake, real = read_prompts(of_fake, sets[1]), read_prompts(of_real, sets[0])
    assert fake is not None
    assert real is not None  # both were named
    both = fake + real
    return {"fake_labels": both.values[: len(sets[1])], "real_labels": both.values[len(sets[1]) :]}, both.notes


def _gated(comparison: Comparison) -> tuple[list[ValueSpec], dict[str, float]]:
    """Return what conditions may name: the values, and how sure it is that the other set is closer to real images."""
    tests = {_worse(name): of for name, of in (comparison.differences or {}).items()}
    p = {spec.key: of["p_value_adjusted"] if of["difference"] < 0 else 1.0 for spec, of in tests.items()}
    return [*comparison.specs, *tests], comparison.values | p


def _worse(region: str) -> ValueSpec:
    return ValueSpec(region_key("p_worse", region), region=region)


def _write(folder: RunFolder, args: argparse.Namespace, comparison: Comparison) -> None:
    evaluator = comparison.evaluator
    fitted = evaluator.presenter().fit_figures()
    figures = {**comparison.diagnosis_figures(), **fitted, "samples": comparison.figure()}
    for name, shown in comparison.shown_images().items():
        folder.write_images(PREFIX, name, shown, step=0)
    tables = {} if comparison.table is None else {WHICH_IS_CLOSER: comparison.table}
    if comparison.classes:
        tables["classes"] = class_table(class_data(comparison.classes))
    found = Measurement(
        title="Comparison",
        findings=comparison.findings,
        values=comparison.values,
        specs=comparison.specs,
        split=comparison.split,
        rows={},
        figures=figures,
        notes=comparison.notes,
        evaluator=evaluator,
        manifest={} if comparison.differences is None else {"differences": comparison.differences},
        tables=tables,
    )
    manifest = {
        "baseline": comparison.baseline,
        "monitor": "compare",
        "heading": f"{' and '.join(filter(None, (args.fake, args.other)))} compared with {args.real}",
        "real_images": args.real,
        "generated_images": args.fake,
        "other_images": args.other,
        "paired": args.paired,
        "train": args.train,
        "labels": args.labels,
        "real_labels": args.real_labels,
        "n_samples": comparison.n_samples,
    }
    results.write_measurement(folder, PREFIX, found, manifest)
