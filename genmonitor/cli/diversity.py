# SPDX-License-Identifier: Apache-2.0
"""`genmonitor diversity`: how varied a set of outputs is, and how much of that their prompts explain."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.text import Text

from genmonitor._formatting import as_sentence
from genmonitor.cli.arguments import given, given_settings, number_above, whole_number
from genmonitor.cli.reading.encoding import (
    add_encoder_arguments,
    as_samples,
    encode,
    encoder_range,
    input_notes,
    prompt_encoder,
    value_range,
)
from genmonitor.cli.reading.outputs import OUTPUTS, Outputs, read_outputs
from genmonitor.cli.reading.prompts import HELP, PromptRows, read_prompts
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
from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.reference import ReferenceImages
from genmonitor.evaluation.diversity import MAX_FEATURES, DiversityEvaluator
from genmonitor.evaluation.evaluator import run_evaluation
from genmonitor.evaluation.prompts.figures import DiversityEvaluation, evaluation_figures
from genmonitor.evaluation.prompts.modes import ModeEnds
from genmonitor.evaluation.results import Table
from genmonitor.evaluation.settings import DiversitySettings
from genmonitor.evaluation.text.comparison import aligned
from genmonitor.evaluation.text.diversity import ABOUT, NAMES, message
from genmonitor.kernels import CosineKernel, GaussianKernel, Kernel
from genmonitor.plotting.style import Drawing
from genmonitor.report.folder import RunFolder

PREFIX, PROBE, NAMED = "diversity", 16, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("outputs", metavar="OUTPUTS", type=given, help=f"generated: {OUTPUTS}")
    parser.add_argument("--prompts", metavar="FILE", type=given, help=HELP)
    parser.add_argument(
        "--real",
        metavar="OUTPUTS",
        type=given,
        help="real ones, for precision, recall, density, coverage and their Vendi",
    )
    add_encoder_arguments(parser)
    parser.add_argument(
        "--sigma",
        metavar="S",
        type=number_above(0),
        help="a Gaussian kernel exp(-|x-y|^2 / (2 S^2)) of the features in place of the cosine",
    )
    parser.add_argument("--prompt-sigma", metavar="S", type=number_above(0), help="the same for the prompts' features")
    parser.add_argument(
        "--num-features",
        metavar="R",
        type=whole_number(1, MAX_FEATURES // 2),
        default=1000,
        help="frequencies of each Gaussian kernel's random Fourier features (1000)",
    )
    parser.add_argument(
        "--rcond",
        metavar="R",
        type=number_above(0),
        help="of the prompts' covariance, eigenvalues below R times the largest count as zero (default: rounding)",
    )
    parser.add_argument("--seed", type=whole_number(0), help="of the choice of real ones (0)")
    add_out_argument(parser, "diversity")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, and write figures, tables, a manifest and the page."""
    check_out(args.out)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with working("reading") as progress:
        sets = [read_outputs(where, args.size, progress) for where in (args.outputs, args.real) if where]
        prompts = read_prompts(args.prompts, sets[0])
    _check_prompts(args, prompts)
    with working("encoding") as progress:
        outputs, *real = encode(args, sets, device, progress)
    with working("measuring") as progress:
        _check_features(args, outputs)
        of = given_settings(args, DiversitySettings) | {
            "prompts": None if prompts is None else prompts.values,
            "n_samples": len(outputs),
            "kernel": _kernel(args.sigma),
            "prompt_kernel": None if prompts is None else _kernel(args.prompt_sigma),
            "num_features": None if args.sigma is None and args.prompt_sigma is None else args.num_features,
        }
        evaluator = DiversityEvaluator(
            DiversitySettings(**of),
            prompt_encoder=None if prompts is None else prompt_encoder(args, prompts),
            batch_size=args.batch_size,
            prefix=PREFIX,
        )
        samples = as_samples(outputs, device)
        reference = ReferenceImages(given=as_samples(real[0], device).images.cpu() if real else None)
        evaluator.fit(reference, samples.images[:PROBE], SingleProcess(), progress)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, found = run_evaluation(evaluator, lambda: samples, SingleProcess(), evaluator.seed)
    finding = message(found.values, len(outputs), kind=outputs.kind)
    result: dict[str, Any] = {
        "finding": finding,
        "values": {name: value for name, value in found.values.items() if not name.endswith("_seconds")},
        "modes": _modes(found, outputs, prompts),
        "notes": [*(str(x.message) for x in caught), *_notes(args, [outputs, *real], prompts)],
    }
    manifest = {
        **evaluator.manifest(),
        "monitor": "diversity",
        "heading": args.outputs if not real else f"{args.outputs} beside {args.real}",
        "evaluation": result["values"],
        "message": f"{finding}.",
        "split": f"{len(outputs)} {outputs.kind}{f', {len(real[0])} real ones' if real else ''}.",
        "generated_images": args.outputs,
        "real_images": args.real,
        "prompts": args.prompts,
        "encoder": args.encoder,
        "text_encoder": args.text_encoder,
        "value_range": encoder_range(args, sets),
        "seed": evaluator.seed,
        "n_samples": len(outputs),
    }

    def write(folder: RunFolder) -> None:
        folder.write_figures(PREFIX, _figures(found, [outputs, *real], prompts), step=0)
        folder.write_table(PREFIX, "modes", as_table(result["modes"]), step=0)
        evaluator.write_artifacts(folder.path)
        write_about(folder, PREFIX, ABOUT, result["notes"], manifest)

    with working("writing the page"):
        return result | write_result(args.out, "diversity", PREFIX, write)


def said(result: dict[str, Any]) -> str:
    """Say the result in words, the finding first."""
    values, modes, rest = _parts(result)
    return "\n".join([f"{result['finding']}.", "", aligned(values), "", aligned(modes), *rest])


def shown(result: dict[str, Any]) -> RenderableType:
    """Show the result in color, the finding first."""
    values, modes, rest = _parts(result)
    head = Text(f"{result['finding']}.\n", style="bold")
    return Group(head, rich_table(values), Text(), rich_table(modes), Text("\n".join(rest)))


def _parts(result: dict[str, Any]) -> tuple[Table, Table, list[str]]:
    values = result["values"]
    known = [name for name in NAMES if name in values]
    lines = [[NAMES[name], f"{values[name]:.3f}"] for name in known]
    columns = ["", "value"]
    if "real_vendi" in values:
        columns.append("real")
        real = [f"{values[f'real_{name}']:.3f}" if f"real_{name}" in values else "" for name in known]
        lines = [[*line, x] for line, x in zip(lines, real, strict=True)]
    notes = ["", *(f"Note: {as_sentence(note)}" for note in result["notes"]), where_to_look(result)]
    return Table(columns, lines), as_table(result["modes"]), notes


def _kernel(sigma: float | None) -> Kernel:
    return CosineKernel() if sigma is None else GaussianKernel.from_sigma(sigma)


def _check_prompts(args: argparse.Namespace, prompts: PromptRows | None) -> None:
    """Refuse prompts that explain everything, being as many classes as there are outputs."""
    if prompts is None and args.prompt_sigma is not None:
        raise ValueError("Expected --prompts with --prompt-sigma, but got none. Leave it out.")
    if prompts is None or prompts.embeddings is not None or args.text_encoder is not None:
        return
    distinct = len(set(prompts.values))
    if distinct >= 0.9 * len(prompts.values):
        raise ValueError(
            f"Expected --text-encoder for {distinct} distinct prompts of {len(prompts.values)} outputs, but got none: "
            "as classes of their own they would explain all of the variety, whatever the outputs are."
        )


def _check_features(args: argparse.Namespace, outputs: Outputs) -> None:
    """Refuse more features than a covariance can be made of."""
    size = 0 if outputs.features is None else outputs.features.shape[1]
    if args.sigma is None and size > MAX_FEATURES:
        instead = "--encoder dinov2 or clip, a smaller --size, or" if outputs.images is not None else "fewer, or"
        raise ValueError(
            f"Expected at most {MAX_FEATURES} features of each of the {outputs.kind}, but got {size}, of which a "
            f"covariance takes minutes. Give {instead} --sigma."
        )


def _notes(args: argparse.Namespace, sets: list[Outputs], prompts: PromptRows | None) -> list[str]:
    notes = []
    if len(sets) == 2 and len(sets[1]) < len(sets[0]):
        notes.append(f"only {len(sets[1])} real {sets[0].kind} are there beside {len(sets[0])} generated ones")
    if len(sets) == 2 and len(sets[1]) > len(sets[0]):
        notes.append(f"{len(sets[0])} of the {len(sets[1])} real {sets[0].kind} were compared with, chosen at random")
    return notes + input_notes(args, sets, prompts)


def _figures(found: DiversityEvaluation, sets: list[Outputs], prompts: PromptRows | None) -> dict[str, Drawing]:
    """Draw the spectrum and, of images, those at the ends of the modes."""
    shown = (0.0, 1.0)
    if sets[0].images is not None:
        found = replace(found, ends=ModeEnds(sets[0].images[found.ends.indices.cpu()], found.ends.indices))
        shown = value_range(sets)
    named = None if prompts is None else Prompts(prompts.values)
    figures = evaluation_figures(found, [found.values | {"epoch": 0}], named, len(sets[0]), shown)
    return {name: figure for name, figure in figures.items() if name != "curves"}  # of one evaluation


def _modes(found: DiversityEvaluation, outputs: Outputs, prompts: PromptRows | None) -> list[dict[str, Any]]:
    """Return the model's own modes, each with the outputs at its ends."""
    own = found.spectra[2].clamp_min(0)
    shares = (own / own.sum().clamp_min(1e-12)).tolist()
    said = prompts.values if prompts is not None and prompts.embeddings is None else None
    modes = []
    for number, ends in enumerate(found.ends.indices.tolist()):
        one, other = ends[: len(ends) // 2], ends[len(ends) // 2 :][::-1]
        named = [[outputs.shown(row, said) for row in end[:NAMED]] for end in (one, other)]
        share = f"{100 * shares[number]:.0f} %"
        modes.append({"mode": number + 1, "share": share, "one end": named[0], "the other end": named[1]})
    return modes
