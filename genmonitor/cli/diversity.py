# SPDX-License-Identifier: Apache-2.0
"""`genmonitor diversity`: the variety of a set of outputs, and the part that their prompts explain."""

from __future__ import annotations

import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from genmonitor._io import Progress
from genmonitor.cli import results
from genmonitor.cli.arguments import add_settings, add_sigma_arguments, given_settings, nonempty, whole_number
from genmonitor.cli.encoding import (
    as_samples,
    check_not_zero,
    default_device,
    input_notes,
    prompt_encoder,
    value_range,
)
from genmonitor.cli.outputs import Outputs
from genmonitor.cli.prompts import PromptRows, check_has_prompts, read_prompts
from genmonitor.cli.results import Measurement, Result
from genmonitor.distributed import current_processes
from genmonitor.evaluation.diversity import MAX_FEATURES, DiversityEvaluator
from genmonitor.evaluation.diversity_findings import DiversityEvaluation, mode_figures, state
from genmonitor.evaluation.evaluator import PROBE, evaluate_fitted
from genmonitor.evaluation.modes import ModeEnds
from genmonitor.evaluation.settings import DiversitySettings
from genmonitor.findings.values import ValueSpec
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts
from genmonitor.kernels import CosineKernel, GaussianKernel, Kernel
from genmonitor.plotting.style import Drawing

NAME = "diversity"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    results.add_input_arguments(parser, "generated")
    text = "real outputs, for precision, recall, density, coverage and their own Vendi score"
    add("--real", metavar="OUTPUTS", type=nonempty, help=text)
    add_sigma_arguments(parser, "the cosine kernel", "the cosine kernel")
    text = "frequencies of each Gaussian kernel's random Fourier features (default: 1000)"
    add("--num-features", metavar="R", type=whole_number(1, MAX_FEATURES // 2), default=1000, help=text)
    add_settings(parser, DiversitySettings, "rcond", "seed")
    results.add_out_argument(parser, NAME)


def run(args: Namespace) -> tuple[Result, str]:
    """Measure, and write figures, a table, a manifest and the page."""
    places = [args.outputs, args.real] if args.real else [args.outputs]
    return results.run_measurement(NAME, args, places, _find_prompts, _measure)


def _find_prompts(args: Namespace, sets: Sequence[Outputs]) -> PromptRows | None:
    """Return the prompts; refuse a different class for each output, which would explain everything."""
    check_has_prompts(args, "prompt_sigma", "text_encoder", "rcond")
    prompts = read_prompts(args.prompts, sets[0])
    if prompts is None or args.text_encoder is not None:
        return prompts
    distinct = len(set(prompts.values))
    if distinct >= 0.9 * len(prompts.values):
        raise ValueError(
            f"Expected --text-encoder for {distinct} distinct prompts of {len(prompts.values)} outputs, but got none: "
            "as separate classes they would explain all of the variety of any outputs."
        )
    return prompts


def _measure(args: Namespace, sets: Sequence[Outputs], prompts: PromptRows | None, progress: Progress) -> Measurement:
    (outputs, *real), comm = sets, current_processes()
    if args.sigma is None:
        check_not_zero(sets)
    of = given_settings(args, DiversitySettings) | {
        "prompts": None if prompts is None else prompts.values,
        "n_samples": len(outputs),
        "kernel": _kernel(args.sigma),
        "prompt_kernel": None if prompts is None else _kernel(args.prompt_sigma),
        "num_features": None if args.sigma is None and args.prompt_sigma is None else args.num_features,
    }
    encoder = None if prompts is None else prompt_encoder(args, prompts)
    given: dict[str, Any] = {"prompt_encoder": encoder, "batch_size": args.batch_size, "prefix": NAME}
    evaluator = DiversityEvaluator(DiversitySettings.of(**of), **given)
    samples = as_samples(outputs, default_device())
    reference = ImageSet(as_samples(real[0], default_device()).images.cpu() if real else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with evaluator.threads():
            report = evaluator.fit(reference, samples.images[:PROBE], comm, progress)
        found = evaluate_fitted(evaluator, samples.of_rank(comm), evaluator.seed, comm)
    errors = evaluator.standard_errors(samples, comm, progress)
    of_errors = [ValueSpec(key, detail=True, error_of=key.removesuffix("_error")) for key in errors]
    return Measurement(
        title="Variety of the outputs",
        findings=[*evaluator.tracker.narrow(found.spread), state(found.values | errors, len(outputs), outputs.kind)],
        values=found.values | errors,
        specs=[*evaluator.values(), *of_errors],
        split=f"{len(outputs)} {outputs.kind}{f', {len(real[0])} real ones' if real else ''}",
        rows={"modes": _modes(found, outputs, prompts)},
        figures=_figures(found, sets, prompts),
        notes=[*(str(x.message) for x in caught), *report.notes, *input_notes(args, sets, prompts)],
        evaluator=evaluator,
    )


def _kernel(sigma: float | None) -> Kernel:
    return CosineKernel() if sigma is None else GaussianKernel.from_sigma(sigma)


def _figures(found: DiversityEvaluation, sets: Sequence[Outputs], prompts: PromptRows | None) -> dict[str, Drawing]:
    """Draw the images at the ends of the modes; none for other outputs."""
    bounds = (0.0, 1.0)
    if sets[0].images is not None:
        found = replace(found, ends=ModeEnds(sets[0].images.read(found.ends.indices), found.ends.indices))
        bounds = value_range(sets)
    return mode_figures(found, None if prompts is None else Prompts(prompts.values), bounds)


def _modes(found: DiversityEvaluation, outputs: Outputs, prompts: PromptRows | None) -> list[dict[str, Any]]:
    """Return the model's own modes with the outputs at their ends."""
    named = None if prompts is None else prompts.values
    modes = []
    for number, ends in enumerate(found.ends.indices.tolist()):
        one, other = ends[: len(ends) // 2], ends[len(ends) // 2 :][::-1]
        mode: dict[str, Any] = {"mode": number + 1, "share": found.shares[number]}
        for name, end in (("one end", one), ("the other end", other)):
            mode[name] = [outputs.label(row, named) for row in end[:3]]
        modes.append(mode)
    return modes
