# SPDX-License-Identifier: Apache-2.0
"""`genmonitor w1kp`: how alike the outputs of each prompt are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from genmonitor._formatting import as_sentence
from genmonitor.cli.arguments import given, given_path, whole_number
from genmonitor.cli.reading.encoding import add_encoder_arguments, encode, encoder_range, range_notes, value_range
from genmonitor.cli.reading.outputs import OUTPUTS, Outputs, cut, read_outputs
from genmonitor.cli.reading.prompts import HELP, read_prompts
from genmonitor.cli.showing.progress import working
from genmonitor.cli.showing.results import (
    add_out_argument,
    as_table,
    check_out,
    where_to_look,
    write_about,
    write_result,
)
from genmonitor.cli.showing.terminal import rich_table
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.variability import LISTED, SHOWN
from genmonitor.evaluation.results import Table
from genmonitor.evaluation.text.comparison import aligned
from genmonitor.functional import W1KPCalibration, calibrate
from genmonitor.functional.w1kp import PromptVariability, w1kp_by_prompt
from genmonitor.functional.w1kp.subsets import REUSED
from genmonitor.plotting.diversity import least_varied
from genmonitor.report.folder import RunFolder

PREFIX, SAID = "w1kp", 20
ABOUT = {
    "w1kp": "how alike two outputs of one prompt are, in [0, 1], the mean of the prompts: higher is less varied",
    "prompts": "prompts with two outputs or more",
    "skipped": "prompts with a single one, which have no score",
    "w1kp_k": "how alike the closest two of k outputs are, the mean of the prompts with as many",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("outputs", metavar="OUTPUTS", type=given, help=f"several of each prompt: {OUTPUTS}")
    parser.add_argument("--prompts", metavar="FILE", type=given, help=HELP)
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        type=given_path,
        help="of this encoder: what --save-calibration wrote, or cdf-xy.pt as the authors publish it for DreamSim "
        "(default: made of these outputs themselves, which ranks the prompts and no more)",
    )
    parser.add_argument(
        "--save-calibration", metavar="FILE", type=given_path, help="keep the one made of these outputs, for others"
    )
    parser.add_argument(
        "--k", metavar="K", type=whole_number(2), help="also how alike the closest two of K outputs are"
    )
    add_encoder_arguments(parser)
    add_out_argument(parser, "w1kp")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, and write a figure, a table, a manifest and the page."""
    check_out(args.out)
    _check_calibration(args)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with working("reading") as progress:
        outputs = read_outputs(args.outputs, args.size, progress)
        found = read_prompts(args.prompts, outputs)
    if found is None:
        raise ValueError(f"Expected --prompts for {args.outputs}, but got none. Give a file with the prompt of each.")
    prompts = Prompts(found.values)
    numbers = prompts.numbers(torch.arange(len(outputs)))
    if (largest := int(numbers.bincount().max())) < 2:
        raise ValueError(f"Expected two outputs of some prompt, but each of {args.outputs} has {largest}. Give more.")
    with working("encoding") as progress:
        (outputs,) = encode(args, [outputs], device, progress)
    with working("measuring"):
        features = torch.empty(0) if outputs.features is None else outputs.features.to(device)
        calibration = _calibration(args, features, numbers.to(device))
        names = [str(prompt) for prompt in prompts.distinct]
        rows = w1kp_by_prompt(features, numbers.to(device), calibration=calibration, k=args.k, names=names)
    values = _values(rows, len(names), args.k)
    finding = _finding(rows, values, args.calibration is not None)
    result: dict[str, Any] = {
        "finding": finding,
        "values": values,
        "prompts": _as_data(rows, outputs, args),
        "notes": [*_notes(args, rows, values), *found.notes, *range_notes(args, [outputs])],
    }
    manifest = {
        "monitor": "w1kp",
        "heading": args.outputs,
        "evaluation": values,
        "message": f"{finding}.",
        "split": f"{len(outputs)} {outputs.kind} of {len(names)} prompts.",
        "generated_images": args.outputs,
        "prompts": args.prompts,
        "calibration": None if args.calibration is None else str(args.calibration),
        "encoder": args.encoder,
        "text_encoder": args.text_encoder,
        "value_range": encoder_range(args, [outputs]),
        "n_samples": len(outputs),
    }

    def write(folder: RunFolder) -> None:
        folder.write_figures(PREFIX, _figures(rows, outputs, prompts, args.calibration is not None), step=0)
        folder.write_table(PREFIX, "by_prompt", as_table(result["prompts"]), step=0)
        write_about(folder, PREFIX, ABOUT, result["notes"], manifest)

    with working("writing the page"):
        if args.save_calibration is not None:
            calibration.save(args.save_calibration)
        return result | write_result(args.out, "w1kp", PREFIX, write)


def said(result: dict[str, Any]) -> str:
    """Say the result in words, the finding first."""
    return "\n".join([f"{result['finding']}.", "", aligned(_table(result)), "", *_rest(result)])


def shown(result: dict[str, Any]) -> RenderableType:
    """Show the result in color, the finding first."""
    head = Text(f"{result['finding']}.\n", style="bold")
    return Group(head, rich_table(_table(result)), Text("\n".join(["", *_rest(result)])))


def _table(result: dict[str, Any]) -> Table:
    """Return the prompts that a terminal shows, cut where they are long."""
    rows = [{name: x for name, x in row.items() if name != "closest_pair"} for row in result["prompts"][:SAID]]
    shown = [{name: f"{x:.3f}" if isinstance(x, float) else x for name, x in row.items()} for row in rows]
    return as_table([row | {"prompt": cut(row["prompt"], 60)} for row in shown])


def _rest(result: dict[str, Any]) -> list[str]:
    more = len(result["prompts"]) - SAID
    left_out = [f"{more} more prompts on the page and with --json."] if more > 0 else []
    return [*left_out, *(f"Note: {as_sentence(note)}" for note in result["notes"]), where_to_look(result)]


def _check_calibration(args: argparse.Namespace) -> None:
    """Refuse at the start what would fail once all is encoded."""
    if args.calibration is not None and args.save_calibration is not None:
        raise ValueError("Expected --calibration or --save-calibration, but got both. Leave one out.")
    if args.calibration is not None and not args.calibration.is_file():
        raise FileNotFoundError(f"Expected --calibration to be a file, but there is none at {args.calibration}.")
    if args.save_calibration is not None and not args.save_calibration.parent.is_dir():
        raise FileNotFoundError(
            f"Expected --save-calibration in a folder that exists, but there is no {args.save_calibration.parent}. "
            "Make it first."
        )
    if args.save_calibration is not None and args.save_calibration.is_dir():
        raise ValueError(f"Expected --save-calibration to be a file, but {args.save_calibration} is a folder.")


def _calibration(args: argparse.Namespace, features: torch.Tensor, numbers: torch.Tensor) -> W1KPCalibration:
    if args.calibration is None:
        return calibrate(features, numbers)
    # the authors' file does not say of how many values its embedding is
    try:
        return W1KPCalibration.load(args.calibration)
    except ValueError as error:
        if "`dim`" not in str(error):
            raise
        return W1KPCalibration.load(args.calibration, dim=features.shape[1])


def _values(rows: Sequence[PromptVariability], prompts: int, k: int | None) -> dict[str, Any]:
    values = {"w1kp": sum(row.w1kp for row in rows) / len(rows), "prompts": len(rows), "skipped": prompts - len(rows)}
    closest = [row.w1kp_k for row in rows if row.w1kp_k is not None]
    return values | ({} if k is None else {"w1kp_k": sum(closest) / len(closest) if closest else None})


def _finding(rows: Sequence[PromptVariability], values: dict[str, Any], calibrated: bool) -> str:
    first, last = rows[0], rows[-1]
    level = f", {first.level} similarity" if calibrated else ""
    least = f"{cut(first.prompt, 40)!r} varies least (W1KP {first.w1kp:.2f}{level})"
    if len(rows) == 1:
        return least
    most = f"{cut(last.prompt, 40)!r} most ({last.w1kp:.2f})"
    return f"{least}, {most}; mean of {len(rows)} prompts: {values['w1kp']:.3f}"


def _as_data(rows: Sequence[PromptVariability], outputs: Outputs, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the prompts with what is known of them; levels and reusability are a calibration's."""
    out = []
    for row in rows:
        of = {name: value for name, value in asdict(row).items() if value is not None}
        of["closest_pair"] = [outputs.shown(number) for number in row.closest_pair]
        if args.calibration is None:
            del of["level"], of["reusability"]
        if args.k is not None:
            of.setdefault("w1kp_k", "")
            of.setdefault("w1kp_k_error", "")
        out.append(of)
    return out


def _notes(args: argparse.Namespace, rows: Sequence[PromptVariability], values: dict[str, Any]) -> list[str]:
    notes = []
    if args.k is not None and (fewer := sum(row.w1kp_k is None for row in rows)):
        most = max(row.outputs for row in rows)
        notes.append(f"{fewer} of {len(rows)} prompts have no w1kp_k, having fewer than {args.k} outputs; most: {most}")
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
    for row in rows[:LISTED]:
        mine = [i for i, prompt in enumerate(prompts.values) if str(prompt) == row.prompt][:SHOWN]
        good_for = f"good for {row.reusability} of {min(row.outputs, REUSED)} images"
        remark = f"{row.level} similarity\n{good_for}" if calibrated else ""
        drawn.append((str(row.prompt), row.w1kp, remark, outputs.images[mine]))
    return {"least_varied": least_varied(drawn, value_range([outputs]))}
