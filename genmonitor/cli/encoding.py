# SPDX-License-Identifier: Apache-2.0
"""Encoders by name: loaded from this machine, run with a progress bar, with features cached on disk."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace

import torch

from genmonitor._io import Progress
from genmonitor.cli.arguments import add_folder_arguments, nonempty, whole_number
from genmonitor.cli.outputs import Outputs
from genmonitor.cli.prompts import PromptRows
from genmonitor.distributed import Collective
from genmonitor.encoders.frozen import Encoder, FrozenEncoder, pixels
from genmonitor.encoders.pretrained import IMAGE_MODELS, TEXT_MODELS, image_encoder, text_encoder
from genmonitor.images.compared_sets import range_doubt
from genmonitor.images.sampler import Samples

PIXELS = "pixels"


def add_encoder_arguments(parser: ArgumentParser) -> None:
    """Add the options for the encoding of outputs and prompts."""
    add = parser.add_argument
    models = f"{', '.join(IMAGE_MODELS)}, the folder of a saved model, or pixels (default: pixels)"
    add("--encoder", metavar="NAME", type=nonempty, default=PIXELS, help=f"encoder of images: {models}")
    models = f"{', '.join(TEXT_MODELS)}, or the folder of a saved model"
    default = "(default: each distinct prompt is a class of its own)"
    add("--text-encoder", metavar="NAME", type=nonempty, help=f"encoder of prompts: {models} {default}")
    add_folder_arguments(parser)
    add("--batch-size", type=whole_number(1), default=100, metavar="N", help="outputs per batch (default: 100)")


def default_device() -> torch.device:
    """Return the GPU, or the CPU on a machine without one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def encode(
    args: Namespace, sets: Sequence[Outputs], device: torch.device, comm: Collective, progress: Progress
) -> list[Outputs]:
    """Return outputs with their features, each encoded once, by one of the processes. Every process calls it.

    Args:
        args: Options that `add_encoder_arguments` adds.
        sets: Sets of outputs of one kind.
        device: Device to compute on.
        comm: Processes that share the batches, which are the same as for one process.
        progress: Progress bar over the batches.

    Raises:
        ModuleNotFoundError: If the encoder needs a package that is not installed.
        FileNotFoundError: If there is no such model on this machine.
        ValueError: If the outputs do not match each other, or have no encoder.
    """
    with comm.all_ranks_or_none():
        encoder = _encoder(args, sets)
    if encoder is None:
        return list(sets)
    frozen, size = FrozenEncoder("encoder", encoder, args.batch_size), args.batch_size
    out = []
    for x in sets:
        assert x.images is not None  # others need no encoder
        mine = comm.rank_indices(-(-len(x) // size))
        rows = range(mine.start * size, min(mine.stop * size, len(x)))
        with comm.all_ranks_or_none(), x.images.reading():
            frozen.freeze(device)
            features = [frozen(batch.to(device)) for batch in x.images.batches(rows, size, progress)]
        own = torch.cat(features) if features else torch.empty(0, device=device)
        out.append(replace(x, features=comm.gather_rows(own).cpu()))
    return out


def _encoder(args: Namespace, sets: Sequence[Outputs]) -> Encoder | None:
    """Return the encoder of matching outputs; None for embeddings."""
    _check_together(sets)
    first = sets[0]
    if args.encoder != PIXELS and first.images is None:
        raise ValueError(f"Expected no --encoder for {first.kind}, but got {args.encoder}. Leave --encoder out.")
    if first.images is None:
        return None
    bounds = encoder_range(args, sets)
    return pixels if bounds is None else image_encoder(args.encoder, bounds)


def as_samples(outputs: Outputs, device: torch.device, first: int = 0) -> Samples:
    """Return the features as images of one pixel for an evaluator, numbered from `first`."""
    features = torch.empty(len(outputs), 0) if outputs.features is None else outputs.features
    return Samples(features[:, :, None, None].to(device), torch.arange(first, first + len(features), device=device))


def input_notes(args: Namespace, sets: Sequence[Outputs], prompts: PromptRows | None) -> list[str]:
    """Return notes on the comparison of outputs and prompts."""
    notes = [note for x in sets for note in x.notes]
    notes += () if prompts is None else prompts.notes
    if prompts is not None and prompts.are_texts and args.text_encoder is None:
        notes.append("each distinct prompt counts as a class of its own; --text-encoder compares what they say")
    if sets[0].images is not None and args.encoder == PIXELS:
        notes.append("images are compared pixel by pixel; --encoder compares what they show")
    return notes


def prompt_encoder(args: Namespace, prompts: PromptRows) -> Encoder | None:
    """Return the encoder of prompts; None for class labels."""
    if prompts.are_texts and args.text_encoder is not None:
        return text_encoder(args.text_encoder)
    if prompts.are_texts:
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts.values))}
        return lambda texts: torch.eye(len(places))[[places[text] for text in texts]]
    if args.text_encoder is not None:
        raise ValueError("Expected prompts that are texts with --text-encoder, but got labels. Leave it out.")
    return None


def check_not_zero(sets: Sequence[Outputs]) -> None:
    """Refuse zero outputs, such as black images, for which the cosine kernel is undefined."""
    for x in sets:
        zero = [] if x.features is None else (x.features == 0).all(1).nonzero()[:, 0].tolist()
        if zero:
            named = ", ".join(x.label(row) for row in zero[:5]) + (", …" if len(zero) > 5 else "")
            raise ValueError(
                f"Expected {x.kind} with values other than 0 for the cosine kernel, but {len(zero)} of {len(x)} of "
                f"{x.where} are all 0: {named}. Leave them out, or give --encoder or a Gaussian kernel's --sigma."
            )


def _check_together(sets: Sequence[Outputs]) -> None:
    """Refuse a set with a single output, and sets that differ in kind, shape or value range."""
    first, *others = sets
    for outputs in sets:
        if len(outputs) < 2:
            raise ValueError(f"Expected at least 2 {outputs.kind}, but {outputs.where} has {len(outputs)}. Give more.")
    for other in others:
        sides = [f"{x.where} holds {x.kind} of shape {x.shape}" for x in (first, other)]
        if (first.kind, first.shape) != (other.kind, other.shape):
            raise ValueError(
                f"Expected outputs of one kind and shape, but {sides[0]} and {sides[1]}. Give --size for images, or "
                "convert one of them."
            )
        if first.images is None or other.images is None:
            continue
        doubt = range_doubt(other.images.some(), first.images.some())
        if doubt:
            raise ValueError(f"Expected {first.where} and {other.where} in one value range, but {doubt}. Scale one.")


def encoder_range(args: Namespace, sets: Sequence[Outputs]) -> tuple[float, float] | None:
    """Return the value range of an image encoder's images; None without such an encoder.

    Raises:
        ValueError: If values are not in [0, 1].
    """
    if args.encoder == PIXELS or sets[0].images is None:
        return None
    low, high = value_range(sets)
    if low < -0.001 or high > 1.001:
        raise ValueError(
            f"Expected images in [0, 1] with --encoder, but got values from {low:.4g} to {high:.4g}. Scale them."
        )
    return 0.0, 1.0


def value_range(sets: Sequence[Outputs]) -> tuple[float, float]:
    """Return the lowest and highest value of the images, 0 and 1 for pictures."""
    images = [x.images.some() for x in sets if x.images is not None]
    return min(float(x.min()) for x in images), max(float(x.max()) for x in images)
