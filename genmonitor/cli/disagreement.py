# SPDX-License-Identifier: Apache-2.0
"""`genmonitor disagreement`: prompts for which two models differ, and the differences."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from genmonitor._io import Progress
from genmonitor.cli import results
from genmonitor.cli.arguments import add_settings, add_sigma_arguments, apart, given_settings, nonempty
from genmonitor.cli.encoding import (
    as_samples,
    default_device,
    input_notes,
    prompt_encoder,
    value_range,
)
from genmonitor.cli.outputs import Outputs, cut
from genmonitor.cli.prompts import HELP, PromptRows, check_has_prompts, read_prompts
from genmonitor.cli.results import CHANCE, Measurement, Result
from genmonitor.distributed import current_processes
from genmonitor.evaluation.disagreement import DisagreementEvaluator
from genmonitor.evaluation.disagreement_findings import (
    DRAWN_MODES,
    DisagreementEvaluation,
    DisagreementPresenter,
    disagreement_finding,
    most_of,
)
from genmonitor.evaluation.evaluator import PROBE, evaluate_fitted
from genmonitor.evaluation.modes import Disagreement, Mode, thumbnail
from genmonitor.evaluation.settings import ONE_HOT_KERNEL, DisagreementSettings
from genmonitor.findings.finding import differs
from genmonitor.findings.values import ValueSpec
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.plotting.disagreement import ModePrompts, PromptSides, mode_prompts
from genmonitor.plotting.style import Drawing

NAME = "disagreement"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    others = "outputs of the model to compare it with, of the same kind"
    results.add_input_arguments(parser, "of a model", f"{HELP}; of both models. Without prompts this is KEN", others)
    add("--other-prompts", metavar="FILE", type=nonempty, help="prompts of OTHERS (default: those of --prompts)")
    add_sigma_arguments(parser, "by OTHERS' median distance", "by the median distance")
    add_settings(parser, DisagreementSettings, "eta", "num_modes", "num_features", "seed")
    results.add_out_argument(parser, NAME)


def run(args: Namespace) -> tuple[Result, str]:
    """Measure, and write figures, tables, a manifest and the page."""
    return results.run_measurement(NAME, args, [args.outputs, args.others], _find_prompts, _measure)


def _find_prompts(args: Namespace, sets: Sequence[Outputs]) -> PromptRows | None:
    """Return the prompts of both sides, one side after the other; None without prompts."""
    check_has_prompts(args, "other_prompts", "prompt_sigma", "text_encoder")
    first = read_prompts(args.prompts, sets[0])
    second = read_prompts(args.other_prompts or args.prompts, sets[1])
    if (first is None) != (second is None):
        lacking = sets[first is not None]
        raise ValueError(f"Expected prompts of both sides or none, but {lacking.where} has none. Give --other-prompts.")
    if first is None or second is None:
        return None
    if args.text_encoder is None and args.prompt_sigma is None and set(first.values).isdisjoint(second.values):
        raise ValueError(
            f"Expected prompts that both sides have, but {sets[0].where} and {sets[1].where} share none: each distinct "
            "prompt is a class of its own, so any two models would differ. Give outputs for the same prompts, or "
            "--text-encoder to compare what the prompts say."
        )
    return first + second


def _measure(args: Namespace, sets: Sequence[Outputs], prompts: PromptRows | None, progress: Progress) -> Measurement:
    evaluator, comm = _evaluator(args, sets, prompts), current_processes()
    samples = as_samples(sets[0], default_device())
    others = as_samples(sets[1], default_device(), first=len(sets[0]))
    with evaluator.threads():
        evaluator.fit(ImageSet(others.images.cpu()), samples.images[:PROBE], comm, progress)
    evaluator.take_first_samples(others.of_rank(comm), comm)
    found = evaluate_fitted(evaluator, samples.of_rank(comm), evaluator.seed, comm)
    first, second = _titles(sets)
    modes = _mode_rows(found.found, sets, prompts)
    notes = input_notes(args, sets, prompts)
    if any(mode["only in"] == CHANCE for mode in modes):
        at_chance = "no larger than those that the same outputs have with their sides drawn at random"
        notes.append(f"modes at chance, {CHANCE} on the page, are {at_chance}")
    if differs(found.found.p) and found.values["total"] <= found.values["baseline_total"]:
        notes.append(
            "the total is no larger than by chance: the p-value is of distances, which show smaller differences"
        )
    most = [] if prompts is None else found.most()
    of_page = [
        ValueSpec("total", f"how much {first} has that {second} lacks; it grows with the number of modes"),
        *(replace(x, chart=None) for x in evaluator.values() if x.key in ("p", "baseline_total")),
    ]
    return Measurement(
        title="What two models do differently",
        findings=[disagreement_finding(found.values, most, second, of=first)],
        values=found.values,
        specs=of_page,
        split=f"{len(sets[0])} and {len(sets[1])} {sets[0].kind}. Modes above zero only {first} has, those below only "
        f"{second}",
        rows={"prompts": [] if prompts is None else _prompt_rows(found), "modes": modes},
        figures=_figures(found, sets, None if prompts is None else evaluator.prompts),
        notes=notes,
        evaluator=evaluator,
    )


def _evaluator(args: Namespace, sets: Sequence[Outputs], prompts: PromptRows | None) -> DisagreementEvaluator:
    """Make the evaluator of both sides' samples, with common numbers. Without prompts all share one (KEN)."""

    def kernel(sigma: float | None) -> Kernel:
        return GaussianKernel() if sigma is None else GaussianKernel.from_sigma(sigma)

    one_hot = (
        prompts is None
        or len(set(prompts.values)) == 1  # whose distances have no median
        or not (prompts.are_texts and args.text_encoder)
    )
    default = one_hot and args.prompt_sigma is None
    of = given_settings(args, DisagreementSettings) | {
        "prompts": [0] if prompts is None else prompts.values,
        "n_samples": sum(map(len, sets)),
        "reference": "start",  # OTHERS stand in for the samples at the start, with which later ones are compared
        "kernel": kernel(args.sigma),
        "prompt_kernel": ONE_HOT_KERNEL if default else kernel(args.prompt_sigma),
    }
    encoder = None if prompts is None else prompt_encoder(args, prompts)
    encoding: dict[str, Any] = {"prompt_encoder": encoder, "batch_size": args.batch_size}
    return DisagreementEvaluator(DisagreementSettings.of(**of), **encoding, baseline_draws=9, prefix=NAME)


def _titles(sets: Sequence[Outputs]) -> tuple[str, ...]:
    return apart(*(x.where for x in sets))


def _mode_rows(found: Disagreement, sets: Sequence[Outputs], prompts: PromptRows | None) -> list[dict[str, Any]]:
    """Return the modes of either sign with their prompts, and the outputs of both sides that show them."""
    names, rows = _titles(sets), []
    texts = None if prompts is None else prompts.values
    of_sides = (texts, texts and texts[len(sets[0]) :])
    for owner, modes in zip(names, (found.top, found.bottom), strict=True):
        for mode in modes:
            only = owner if found.beyond_chance(mode) else CHANCE
            row: dict[str, Any] = {"eigenvalue": mode.eigenvalue, "only in": only}
            if prompts is not None:
                row["prompts"] = [cut(prompt, 40) for prompt, _ in most_of(mode.prompts)]
            chosen = (mode.samples, mode.reference_samples)
            for name, side, numbers, known in zip(names, sets, chosen, of_sides, strict=True):
                row[name] = [side.label(number, known) for number in numbers[:3]]
            rows.append(row)
    return rows


def _prompt_rows(found: DisagreementEvaluation) -> list[dict[str, Any]]:
    """Return the prompts that differ most, of those that do by more than chance."""
    p = found.found.prompt_p
    return [{"prompt": cut(x, 60), "share": share, "p": p.get(x)} for x, share in found.differing[:20]]


def _figures(found: DisagreementEvaluation, sets: Sequence[Outputs], prompts: Prompts | None) -> dict[str, Drawing]:
    """Draw images of both sides for the modes and for the prompts that differ most; none for other outputs."""
    images = [x.images for x in sets]
    if images[0] is None or images[1] is None:
        return {}
    bounds, (name, against) = value_range(sets), _titles(sets)
    if prompts is None:
        rows = _drawn_modes(found.found, (images[0], images[1]))
        return {"modes": partial(mode_prompts, rows, bounds, against, name)} if rows else {}
    current = replace(found.current, shown=thumbnail(images[0].read(found.current.shown_indices)))
    of_others = found.reference.shown_indices.cpu() - len(images[0])
    reference = replace(found.reference, shown=thumbnail(images[1].read(of_others)))
    shown = replace(found, current=current, reference=reference)
    return DisagreementPresenter(prompts, against, bounds, model=name).drawings(shown)


def _drawn_modes(found: Disagreement, images: tuple[ImageSet, ImageSet]) -> list[ModePrompts]:
    """Return the largest modes of either sign with the images of both sides that show them."""

    def sides(mode: Mode) -> PromptSides:
        current, reference = thumbnail(images[0].read(mode.samples)), thumbnail(images[1].read(mode.reference_samples))
        return PromptSides("", mode.eigenvalue, current, reference)

    return [ModePrompts(name, mode.eigenvalue, [sides(mode)]) for name, mode in found.named(DRAWN_MODES)]
