# SPDX-License-Identifier: Apache-2.0
"""`genmonitor w1kp`: similarity of the outputs of each prompt."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from genmonitor._formatting import format_p
from genmonitor._io import Progress
from genmonitor.cli import results
from genmonitor.cli.arguments import nonempty_path
from genmonitor.cli.inputs.encoding import default_device, value_range
from genmonitor.cli.inputs.outputs import Outputs, cut
from genmonitor.cli.inputs.prompts import PromptRows, read_prompts
from genmonitor.cli.results import Measurement, Result
from genmonitor.distributed import current_processes
from genmonitor.findings.finding import Area, Finding, differs
from genmonitor.findings.values import ValueSpec
from genmonitor.functional import W1KPCalibration, calibrate
from genmonitor.functional.w1kp.score import PromptVariability, variability_p_value, w1kp_by_prompt
from genmonitor.functional.w1kp.subsets import REUSED
from genmonitor.images.prompts import Prompts
from genmonitor.plotting.diversity import least_varied

NAME = "w1kp"
SPECS = (
    ValueSpec("w1kp", "similarity of two outputs of a prompt, in [0, 1], averaged over prompts: higher is less varied"),
    ValueSpec("w1kp_error", "its standard error over draws of the outputs of these prompts", error_of="w1kp"),
    ValueSpec("p", "p-value that all prompts vary alike; at 0.05 or less they differ", scale="p"),
    ValueSpec("prompts", "prompts with two outputs or more"),
    ValueSpec("skipped", "prompts with a single output, which have no score"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    results.add_input_arguments(parser, "several outputs per prompt")
    add = parser.add_mutually_exclusive_group().add_argument
    text = "calibration of this encoder: a file of --save-calibration, or the authors' cdf-xy.pt for DreamSim"
    default = "(default: made from these outputs, which only ranks the prompts)"
    add("--calibration", metavar="FILE", type=nonempty_path, help=f"{text} {default}")
    add("--save-calibration", metavar="FILE", type=nonempty_path, help="save the calibration made of these outputs")
    results.add_out_argument(parser, NAME)


def run(args: Namespace) -> tuple[Result, str]:
    """Measure, and write a figure, a table, a manifest and the page."""
    if args.calibration is not None:
        _load_calibration(args.calibration, dim=1)  # refuses early what would fail after the encoding
    if args.save_calibration is not None and not args.save_calibration.parent.is_dir():
        raise FileNotFoundError(
            f"Expected --save-calibration in a folder that exists, but there is no {args.save_calibration.parent}."
        )
    return results.run_measurement(NAME, args, [args.outputs], _find_prompts, _measure)


def _load_calibration(path: Path, dim: int) -> W1KPCalibration:
    """Load a calibration; `dim` is for the authors' file, which does not contain the size of its embedding."""
    try:
        return W1KPCalibration.load(path, dim)
    except Exception as error:  # other files may hold anything
        raise ValueError(
            f"Expected --calibration to be a file of --save-calibration or the authors' cdf-xy.pt, but {path} is "
            f"neither: {error}"
        ) from error


def _find_prompts(args: Namespace, sets: Sequence[Outputs]) -> PromptRows:
    """Return the prompts; refuse them if no prompt has two outputs."""
    prompts = read_prompts(args.prompts, sets[0])
    if prompts is None:
        raise ValueError(f"Expected --prompts for {args.outputs}, but got none. Give a file with the prompt of each.")
    if len(set(prompts.values)) == len(prompts.values):
        raise ValueError(f"Expected two outputs of some prompt, but each of {args.outputs} has one. Give more.")
    return prompts


def _measure(args: Namespace, sets: Sequence[Outputs], prompts: PromptRows | None, progress: Progress) -> Measurement:
    (outputs,) = sets
    assert prompts is not None
    distinct, calibrated = Prompts(prompts.values), args.calibration is not None
    rows, p = current_processes().from_rank_zero(lambda: _measured(args, outputs, distinct))
    values = _values(rows, len(distinct.distinct)) | {"p": p}
    return Measurement(
        title="Likeness of the outputs of a prompt",
        findings=[_finding(rows, values, calibrated)],
        values=values,
        specs=SPECS,
        split=f"{len(outputs)} {outputs.kind} of {len(distinct.distinct)} prompts",
        rows={"prompts": [_as_data(row, outputs, args) for row in rows]},
        figures=_figures(rows, outputs, distinct, calibrated),
        notes=[*_notes(args, values), *outputs.notes, *prompts.notes],
    )


def _measured(args: Namespace, outputs: Outputs, prompts: Prompts) -> tuple[list[PromptVariability], float]:
    """Return the results of each prompt, and the p-value that all vary alike; save the calibration if requested."""
    assert outputs.features is not None
    features = outputs.features.to(default_device())
    numbers = prompts.numbers(torch.arange(len(outputs))).to(features.device)
    if args.calibration is None:
        calibration = calibrate(features, numbers)
    else:
        calibration = _load_calibration(args.calibration, dim=features.shape[1])
    names = [str(prompt) for prompt in prompts.distinct]
    rows = w1kp_by_prompt(features, numbers, calibration=calibration, names=names)
    if args.save_calibration is not None:
        calibration.save(args.save_calibration)
    return rows, variability_p_value(features, numbers, calibration)


def _values(rows: Sequence[PromptVariability], prompts: int) -> dict[str, Any]:
    values = {"w1kp": sum(row.w1kp for row in rows) / len(rows), "prompts": len(rows), "skipped": prompts - len(rows)}
    errors = [row.w1kp_error for row in rows if row.w1kp_error is not None]
    return values | ({"w1kp_error": math.hypot(*errors) / len(rows)} if len(errors) == len(rows) else {})


def _finding(rows: Sequence[PromptVariability], values: dict[str, Any], calibrated: bool) -> Finding:
    first, last, p = rows[0], rows[-1], values["p"]
    error = f" ± {values['w1kp_error']:.1g}" if "w1kp_error" in values else ""
    mean = f"mean of {len(rows)} prompt{'s' * (len(rows) > 1)}: {values['w1kp']:.3f}{error}"
    if len(rows) > 1 and not differs(p):
        text = f"No evidence that some prompts vary less than others ({format_p(p)}); {mean}."
        return Finding(text, Area("all prompts"), "", "w1kp", None, p)
    level = f", {first.level} similarity" if calibrated else ""
    text = f"{cut(first.prompt, 40)!r} varies least (W1KP {first.w1kp:.2f}{level})"
    if len(rows) > 1:
        text = f"{text}, {cut(last.prompt, 40)!r} most ({last.w1kp:.2f}; {format_p(p)}); {mean}"
    return Finding(f"{text}.", Area(f"prompt {cut(first.prompt, 40)!r}"), "varies least", "w1kp", None, p)


def _as_data(row: PromptVariability, outputs: Outputs, args: Namespace) -> dict[str, Any]:
    """Return the results of a prompt, with level and reusability only for a calibration of other outputs."""
    known = {name: value for name, value in asdict(row).items() if value is not None}
    known["closest_pair"] = [outputs.label(number) for number in row.closest_pair]
    if args.calibration is None:
        del known["level"], known["reusability"]
    return known


def _notes(args: Namespace, values: dict[str, Any]) -> list[str]:
    notes = []
    if args.calibration is None:
        notes.append(
            "calibrated on these outputs themselves: their mean is near 0.5 whatever they are, and only the order of "
            "the prompts says something; give --calibration for levels that can be compared"
        )
    if values["skipped"]:
        notes.append(f"{values['skipped']} prompts with a single output have no score")
    return notes


def _figures(
    rows: Sequence[PromptVariability], outputs: Outputs, prompts: Prompts, calibrated: bool
) -> dict[str, Figure]:
    """Draw some images of the least varied prompts."""
    if outputs.images is None:
        return {}
    drawn = []
    for row in rows[:5]:
        mine = [i for i, prompt in enumerate(prompts.values) if str(prompt) == row.prompt][:6]
        good_for = f"good for {row.reusability} of {min(row.outputs, REUSED)} images"
        remark = f"{row.level} similarity\n{good_for}" if calibrated else ""
        drawn.append((str(row.prompt), row.w1kp, remark, outputs.images.read(mine)))
    return {"least_varied": least_varied(drawn, value_range([outputs]))}
