# SPDX-License-Identifier: Apache-2.0
"""`genmonitor disagreement`: what two models do differently, and at which prompts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
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
from genmonitor.cli.showing.side_by_side import figures_of, mode_rows, prompt_rows, titles
from genmonitor.cli.showing.terminal import rich_table
from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.data.reference import ReferenceImages
from genmonitor.evaluation.disagreement import DisagreementEvaluator
from genmonitor.evaluation.evaluator import run_evaluation
from genmonitor.evaluation.results import Table
from genmonitor.evaluation.settings import ONE_HOT_KERNEL, DisagreementSettings
from genmonitor.evaluation.text.comparison import aligned
from genmonitor.evaluation.text.disagreement import message
from genmonitor.kernels import CosineKernel, GaussianKernel, Kernel
from genmonitor.report.folder import RunFolder

PREFIX, PROBE = "disagreement", 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("outputs", metavar="OUTPUTS", type=given, help=f"of a model: {OUTPUTS}")
    parser.add_argument(
        "others", metavar="OTHERS", type=given, help="of another one that it is compared with, the same"
    )
    parser.add_argument("--prompts", metavar="FILE", type=given, help=f"of both: {HELP}. Without prompts this is KEN")
    parser.add_argument("--other-prompts", metavar="FILE", type=given, help="of OTHERS, where they are not the same")
    add_encoder_arguments(parser)
    parser.add_argument(
        "--sigma",
        metavar="S",
        type=number_above(0),
        help="of the outputs' Gaussian kernel exp(-|x-y|^2 / (2 S^2)) (default: by the median distance of OTHERS)",
    )
    parser.add_argument(
        "--prompt-sigma", metavar="S", type=number_above(0), help="of the prompts' (default: by the median distance)"
    )
    parser.add_argument("--cosine", action="store_true", help="cosine kernels of features in place of Gaussian ones")
    parser.add_argument("--eta", metavar="E", type=number_above(0), help="weight of OTHERS (1)")
    parser.add_argument("--num-modes", metavar="M", type=whole_number(1), help="of either side (5)")
    parser.add_argument(
        "--num-features", metavar="R", type=whole_number(1), help="random features of the kernels, for many outputs"
    )
    parser.add_argument("--seed", type=whole_number(0), help="of random features (0)")
    add_out_argument(parser, "disagreement")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, and write figures, tables, a manifest and the page."""
    check_out(args.out)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with working("reading") as progress:
        sets = [read_outputs(where, args.size, progress) for where in (args.outputs, args.others)]
        prompts = _prompts(args, sets)
    with working("encoding") as progress:
        sets = encode(args, sets, device, progress)
    with working("measuring") as progress:
        evaluator = _evaluator(args, sets, prompts)
        samples = as_samples(sets[0], device)
        others = as_samples(sets[1], device, first=len(sets[0]))
        evaluator.fit(ReferenceImages(given=others.images.cpu()), samples.images[:PROBE], SingleProcess(), progress)
        evaluator.take_first_samples(others, SingleProcess())
        _, found = run_evaluation(evaluator, lambda: samples, SingleProcess(), evaluator.seed)
    values = {name: value for name, value in found.values.items() if not name.endswith("_seconds")}
    changed = [] if prompts is None else found.found.changed
    first, second = titles(sets)
    finding = message(values, changed, second, of=first)
    result: dict[str, Any] = {
        "finding": finding,
        "values": values,
        "modes": mode_rows(found.found, sets, prompts),
        "prompts": [] if prompts is None else prompt_rows(found.found, sets, prompts),
        "sigma": _sigma(evaluator.kernel),
        "prompt_sigma": None if prompts is None else _sigma(evaluator.prompt_kernel),
        "notes": input_notes(args, sets, prompts),
    }
    about = {
        "total": f"how much {first} has that {second} lacks; it grows with the number of modes",
        "total_error": "its standard error, where it is an estimate",
    }
    manifest = {
        **evaluator.manifest(),
        "monitor": "disagreement",
        "heading": f"{args.outputs} beside {args.others}",
        "evaluation": {name: value for name, value in values.items() if name in about},
        "message": f"{finding}.",
        "split": f"{len(sets[0])} and {len(sets[1])} {sets[0].kind}. Modes above zero only {first} has, those below "
        f"only {second}.",
        "generated_images": args.outputs,
        "other_images": args.others,
        "prompts": [args.prompts, args.other_prompts],
        "encoder": args.encoder,
        "text_encoder": args.text_encoder,
        "value_range": encoder_range(args, sets),
        "eta": evaluator.eta,
        "seed": evaluator.seed,
        "n_samples": len(sets[0]),
    }

    def write(folder: RunFolder) -> None:
        folder.write_figures(PREFIX, figures_of(found, sets, None if prompts is None else evaluator.prompts), step=0)
        for name, rows in (("largest_modes", result["modes"]), ("ranked_prompts", result["prompts"])):
            if rows:
                folder.write_table(PREFIX, name, as_table(rows), step=0)
        evaluator.write_artifacts(folder.path)
        write_about(folder, PREFIX, about, result["notes"], manifest)

    with working("writing the page"):
        return result | write_result(args.out, "disagreement", PREFIX, write)


def said(result: dict[str, Any]) -> str:
    """Say the result in words, the finding first."""
    tables = [f"{aligned(table)}\n" for table in _tables(result)]
    return "\n".join([f"{result['finding']}.", "", *tables, *_rest(result)])


def shown(result: dict[str, Any]) -> RenderableType:
    """Show the result in color, the finding first."""
    tables = [part for table in _tables(result) for part in (rich_table(table), Text())]
    return Group(Text(f"{result['finding']}.\n", style="bold"), *tables, Text("\n".join(_rest(result))))


def _tables(result: dict[str, Any]) -> list[Table]:
    """Return what a terminal shows: of modes with prompts the outputs only stand on the page."""
    modes = result["modes"]
    if result["prompts"]:
        modes = [{name: mode[name] for name in ("eigenvalue", "only in", "prompts")} for mode in modes]
    return [as_table(rows) for rows in (result["prompts"], modes) if rows]


def _rest(result: dict[str, Any]) -> list[str]:
    widths = [f"{name.replace('_', ' ')} {result[name]:.4g}" for name in ("sigma", "prompt_sigma") if result[name]]
    head = [f"Gaussian kernels: {', '.join(widths)}."] if widths else []
    return [*head, *(f"Note: {as_sentence(note)}" for note in result["notes"]), where_to_look(result)]


def _prompts(args: argparse.Namespace, sets: Sequence[Outputs]) -> PromptRows | None:
    """Return the prompts of both sides behind each other, None where there are none."""
    if args.other_prompts is not None and args.prompts is None and sets[0].prompts is None:
        raise ValueError("Expected --prompts with --other-prompts, but got none. Give those of OUTPUTS.")
    first, second = (
        read_prompts(w, x) for w, x in zip((args.prompts, args.other_prompts or args.prompts), sets, strict=True)
    )
    if (first is None) != (second is None):
        lacking = sets[first is not None]
        raise ValueError(
            f"Expected prompts of both sides or of none, but {lacking.where} has none. Give --other-prompts."
        )
    return None if first is None or second is None else first + second


def _evaluator(args: argparse.Namespace, sets: Sequence[Outputs], prompts: PromptRows | None) -> DisagreementEvaluator:
    """Make the evaluator of both sides' samples, numbered through; without prompts all have one, and this is KEN."""

    def kernel(sigma: float | None) -> Kernel:
        return (
            CosineKernel() if args.cosine else GaussianKernel() if sigma is None else GaussianKernel.from_sigma(sigma)
        )

    if args.cosine and (args.sigma or args.prompt_sigma):
        raise ValueError(
            "Expected --sigma and --prompt-sigma without --cosine, whose kernels have no width. Leave one out."
        )
    encoder = None if prompts is None else prompt_encoder(args, prompts)
    classes = (
        prompts is None
        or len(set(prompts.values)) == 1  # whose distances have no median
        or (prompts.embeddings is None and not (prompts.are_texts and args.text_encoder))
    )
    of_prompts = (
        ONE_HOT_KERNEL if classes and not args.cosine and args.prompt_sigma is None else kernel(args.prompt_sigma)
    )
    of = given_settings(args, DisagreementSettings) | {
        "prompts": [0] if prompts is None else prompts.values,
        "n_samples": sum(map(len, sets)),
        "reference": "start",  # what OTHERS are taken as: the samples that later ones are compared with
        "kernel": kernel(args.sigma),
        "prompt_kernel": of_prompts,
    }
    settings = DisagreementSettings(**of)
    return DisagreementEvaluator(settings, prompt_encoder=encoder, batch_size=args.batch_size, prefix=PREFIX)


def _sigma(kernel: Kernel) -> float | None:
    return (2 * kernel.gamma) ** -0.5 if kernel.gamma else None
