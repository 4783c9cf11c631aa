# SPDX-License-Identifier: Apache-2.0
"""`genmonitor compare`: finds where generated images differ from real ones, or the closer of two sets."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from genmonitor._formatting import as_sentence
from genmonitor._io import printable
from genmonitor.cli import results
from genmonitor.cli.arguments import (
    IMAGES,
    add_folder_arguments,
    add_settings,
    apart,
    given_settings,
    nonempty,
)
from genmonitor.cli.encoding import default_device
from genmonitor.cli.gate import check_names, condition, failures, junit
from genmonitor.cli.outputs import Outputs, images_of, read_images, read_outputs
from genmonitor.cli.processes import show_progress
from genmonitor.cli.prompts import read_prompts
from genmonitor.cli.results import Measurement, Result, check_writable
from genmonitor.distributed import current_processes
from genmonitor.evaluation import Comparison, RegionSettings, compare
from genmonitor.evaluation.classes import P_CLASS, class_table
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.findings.values import ValueSpec
from genmonitor.partition import load_partition, region_key
from genmonitor.report.page import WHICH_IS_CLOSER


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("real", metavar="REAL", type=nonempty, help=f"real images not used for training: {IMAGES}")
    add("fake", metavar="FAKE", type=nonempty, help="generated images, in the same form")
    text = "images of another model; the result says which of the two is closer to REAL"
    add("other", metavar="OTHER", nargs="?", type=nonempty, help=text)
    add("--paired", action="store_true", help="image i of FAKE and image i of OTHER have the same seed or prompt")
    text = "classes of the images of FAKE; the result names the classes that are wrong"
    forms = "the name of each image's folder), a .npy file of integers, or a file as for `diversity --prompts`"
    add("--labels", metavar="LABELS", type=nonempty, help=f"{text}. Either `folders` ({forms}")
    add("--real-labels", metavar="LABELS", type=nonempty, help="classes of the images of REAL (default: --labels)")
    add("--train", metavar="TRAIN", type=nonempty, help="training images of the generator, to find copies of them")
    names = [field.name for field in fields(RegionSettings)]
    add_settings(parser, RegionSettings, *(x for x in names if x not in ("kernel", "region_names")))  # no words
    add_folder_arguments(parser)
    text = (
        'exit with status 1 if a value of FAKE meets it: NAME < NUMBER (or <=, >, >=), such as "p < 0.01". p, '
        "error_ratio, share, structure and texture stand for any region or the image, error_ratio_2 for one region. "
        "p_worse is small if OTHER is closer to REAL. May be repeated"
    )
    add("--fail-if", type=condition, metavar="CONDITION", action="append", default=[], help=text)
    add("--junit", metavar="FILE", type=Path, help="write the conditions of --fail-if as test cases, for a CI system")
    results.add_out_argument(parser, "compare")


def run(args: Namespace) -> tuple[Result, str]:
    """Compare, and write figures, a manifest and the report."""
    comm = current_processes()
    results.check_out(args.out, (args.real, args.fake, args.other, args.train))
    if args.junit is not None:
        _check_file(args.junit)
    partition = None if args.partition is None else load_partition(args.partition)
    regions = ["cluster_1", "constant"] if partition is None else [*partition.regions()]
    check_names(args.fail_if, [*RegionValues(regions).specs, *map(_worse, ["image", *regions]), P_CLASS])
    with show_progress("reading images") as progress, comm.all_ranks_or_none():
        places = filter(None, (args.real, args.fake, args.other))
        sets = [read_outputs(place, args.size, progress, IMAGES, args.skip_bad) for place in places]
        given_labels, notes = _labels(args, sets)
        train = None if args.train is None else read_images(args.train, args.size, progress, args.skip_bad)
        images = [images_of(x) for x in sets]
    with show_progress("comparing") as progress:
        settings = RegionSettings.of(**given_settings(args, RegionSettings) | {"partition": partition})
        given = {**given_labels, "train": train, "paired": args.paired, "comm": comm, "progress": progress}
        given["refuse_shared"] = bool(args.fail_if)
        comparison = compare(*images, settings=settings, device=default_device(), **given)
    names = apart(*filter(None, (args.fake, args.other)))
    notes = (*comparison.notes, *notes, *(note for x in sets for note in x.notes))
    comparison = replace(comparison, names=names, notes=notes)
    heading = f"{' and '.join(filter(None, (args.fake, args.other)))} compared with {args.real}"
    of = {"real_images": args.real, "generated_images": args.fake, "other_images": args.other, "heading": heading}
    measured = {name: getattr(comparison, name) for name in ("baseline", "n_samples", "differences")}
    written = results.publish(args, "compare", "cms", _measurement(comparison), of | measured)
    found = {**comparison.to_dict(), "labels": comparison.partition.labels.tolist(), **written}
    found["failed"] = failures(args.fail_if, *_gated(comparison))
    if args.fail_if and args.quiet and comm.rank == 0:  # what may make a gate pass or fail for nothing
        for note in notes:
            print(printable(f"Note: {as_sentence(note)}"), file=sys.stderr)
    if args.junit is not None:
        comm.from_rank_zero(lambda: args.junit.write_text(junit(args.fail_if, found["failed"]), "utf-8"))
    text = "\n".join([str(comparison), "", results.report_line(found)])
    return found, results.as_asked(args, comparison.tables, text)


def _check_file(path: Path) -> None:
    """Refuse a file of --junit that cannot be written, before anything is measured."""
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"Expected --junit to be a file in a folder that exists, but got {path}.")
    check_writable(path.parent, "--junit")


def _labels(args: Namespace, sets: Sequence[Outputs]) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
    """Return the labels of both sides by argument, with notes."""
    if args.labels is None and args.real_labels is None:
        return {}, ()
    of_fake, of_real = args.labels or args.real_labels, args.real_labels or args.labels
    fake, real = read_prompts(of_fake, sets[1]), read_prompts(of_real, sets[0])
    assert fake is not None
    assert real is not None  # both were named
    both = fake + real
    return {"fake_labels": both.values[: len(sets[1])], "real_labels": both.values[len(sets[1]) :]}, both.notes


def _gated(comparison: Comparison) -> tuple[list[ValueSpec], dict[str, float]]:
    """Return the values that conditions may name, including the p-value that the other set is closer."""
    tests = {_worse(name): of for name, of in (comparison.differences or {}).items()}
    p = {spec.key: of["p_value_adjusted"] if of["difference"] < 0 else 1.0 for spec, of in tests.items()}
    return [*comparison.specs, *tests], comparison.values | p


def _worse(region: str) -> ValueSpec:
    return ValueSpec(region_key("p_worse", region), scale="p", region=region)


def _measurement(comparison: Comparison) -> Measurement:
    presenter = comparison.evaluator.presenter()
    tables = {} if comparison.table is None else {WHICH_IS_CLOSER: comparison.table}
    if comparison.classes:
        tables["classes"] = class_table(comparison.classes)
    return Measurement(
        title="Comparison",
        findings=comparison.findings,
        values=comparison.values,
        specs=comparison.specs,
        split=comparison.split,
        rows={},
        figures={**comparison.diagnosis_figures(), **presenter.fit_figures(), "samples": comparison.figure()},
        notes=comparison.notes,
        evaluator=comparison.evaluator,
        tables=tables,
        images={**comparison.shown_images(), "diagnosis": presenter.shown_diagnosis(comparison.evaluations[0])},
    )
