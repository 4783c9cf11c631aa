# SPDX-License-Identifier: Apache-2.0
"""`genmonitor report`: the page of a run, or of several runs merged, such as those of an array job."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from genmonitor._io import read_json
from genmonitor.cli.arguments import nonempty_path
from genmonitor.report import find_folder, write_report
from genmonitor.report.files import FOLDER, RUN, own_files
from genmonitor.report.folder import RunFolder
from genmonitor.report.run import MonitorRun, read_run

NOTE = "Separate runs made these evaluations: alerts, and changes since the best evaluation, are those of each run."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add, text = parser.add_argument, "folder of a run, such as runs/dcgan-digits/version_0; or several to merge"
    tasks = "such as those of the tasks of an array job, each of which evaluated some checkpoints of one training"
    add("run", metavar="RUN", nargs="+", type=nonempty_path, help=f"{text}, {tasks}")
    add("--out", metavar="FOLDER", type=nonempty_path, help="folder of the merged run")


def run(args: Namespace) -> tuple[dict[str, Any], str]:
    """Write the page."""
    if (len(args.run) > 1) != (args.out is not None):
        raise ValueError("--out FOLDER is required when merging several runs, and not allowed with one.")
    report = write_report(find_folder(args.run[0])) if args.out is None else _merge(args.run, args.out)
    run = read_run(report.parent)
    monitors = {monitor.prefix: _as_data(monitor) for monitor in run.monitors}
    result = {"report": str(report), "monitors": monitors, "unreadable": run.unreadable}
    return result, "\n".join([*run.unreadable, f"Report: {report}"])


def _merge(runs: Sequence[Path], out: Path) -> Path:
    """Write the evaluations of several runs of one training as one run, in the order of their steps."""
    target, by_prefix = RunFolder(out / FOLDER), dict[str, list[tuple[Path, MonitorRun]]]()
    if target.path.exists():
        raise ValueError(f"Expected --out to be a new folder, but {out} holds a run. Give another one.")
    for folder in map(find_folder, runs):
        found = read_run(folder)
        if found.unreadable:
            raise ValueError(" ".join(found.unreadable))
        for run in found.monitors:
            by_prefix.setdefault(run.prefix, []).append((folder, run))
    for parts in by_prefix.values():
        parts.sort(key=lambda part: part[1].records[-1]["step"])
        for one, other in pairwise(parts):
            _check_same(one, other)
    for parts in by_prefix.values():
        for folder, _ in parts:
            for path in own_files(folder):
                if not RUN.fullmatch(path.name):
                    shutil.copyfile(path, target.file(path.name))
        last, evaluations = parts[-1][1], [dict(x) for _, run in parts for x in run.evaluations]
        target.write_run(
            last.prefix,
            fixed={**last.fixed, "folder": str(target.path)},
            evaluations=sorted(evaluations, key=lambda x: x["values"]["step"]),
            declared=list(last.values.values()),
            findings=last.findings,
            notes=[*(asdict(note) for note in dict.fromkeys(x for _, run in parts for x in run.notes)), {"text": NOTE}],
            tables=last.tables,
        )
    return target.write_report()


def _check_same(one: tuple[Path, MonitorRun], other: tuple[Path, MonitorRun]) -> None:
    """Refuse runs that do not form one history."""
    where, runs = f"{one[0].parent} and {other[0].parent}", (one[1], other[1])
    steps = [{record["step"] for record in run.records} for run in runs]
    for twice in sorted(steps[0] & steps[1]):
        raise ValueError(f"Expected each step once, but {where} both evaluated step {twice:g}. Leave one out.")
    names = ("monitor", "settings", "seed", "n_samples", "prompts", "linkage", "weights", "module", "data")
    held = [{name: run.manifest.get(name) for name in names} | {"partition": run.partition} for run in runs]
    for of_run, (folder, run) in zip(held, (one, other), strict=True):
        real = read_json(folder / str(run.fixed.get("real")))
        of_run["real"] = [real.get(name) for name in ("from", "indices")] if isinstance(real, dict) else []
    differ = [name for name in held[0] if held[0][name] != held[1][name]]
    if differ:
        raise ValueError(
            f"Expected runs with the same settings, but {where} differ in {', '.join(differ)}. Evaluate both again "
            "with the same settings, real images and `partition`."
        )


def _as_data(monitor: MonitorRun) -> dict[str, Any]:
    """Return the last evaluation of a monitor."""
    evaluated = {"evaluations": len(monitor.records), "findings": [x.to_dict() for x in monitor.findings]}
    return evaluated | {"values": monitor.records[-1], "baseline": monitor.baseline}
