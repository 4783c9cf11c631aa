# SPDX-License-Identifier: Apache-2.0
"""Types of arguments that several commands share. Help texts must be ASCII."""

from __future__ import annotations

import argparse
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from genmonitor.evaluation.settings import Settings

IMAGES = "a folder of image files, or a .npy or .npz file"
MAX_SEED = 2**63 - 1


def nonempty(text: str) -> str:
    """Return a path as typed; refuse an empty one, which would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a path, but got an empty one")
    return text


def apart(*places: str) -> tuple[str, ...]:
    """Name sets by the last parts of their paths, or by whole paths if these are equal.

    Example:
        >>> apart("runs/new", "runs/old"), apart("new/images", "old/images")
        (('new', 'old'), ('new/images', 'old/images'))
    """
    names = tuple(Path(place).name for place in places)
    return names if all(names) and len({*names}) == len(names) else places


def nonempty_path(text: str) -> Path:
    """Return a path; refuse an empty one."""
    return Path(nonempty(text))


def whole_number(minimum: int, maximum: int = MAX_SEED) -> Callable[[str], int]:
    """Return a parser of integers within bounds.

    Example:
        >>> whole_number(1)("12")
        12
    """
    bounds = f"of at least {minimum}" if maximum == MAX_SEED else f"from {minimum} to {maximum}"
    return number_within(f"a whole number {bounds}", minimum - 1, maximum + 1, int)


def number_within(
    expected: str, low: float = -math.inf, high: float = math.inf, kind: Callable[[str], Any] = float
) -> Callable[[str], Any]:
    """Return a parser of numbers between two bounds, both excluded.

    Args:
        expected: Description for the message, such as "a number above 0".
        low: Lower bound.
        high: Upper bound.
        kind: `float` or `int`.

    Example:
        >>> number_within("a number above 0", low=0)("0.5")
        0.5
    """

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low < value < high:
            limit = " and below 2^63" if isinstance(value, int) and value > MAX_SEED else ""
            raise argparse.ArgumentTypeError(f"expected {expected}{limit}, but got {text}")
        return value

    return parse


def add_folder_arguments(parser: ArgumentParser) -> None:
    """Add the options for reading the pictures of a folder."""
    parser.add_argument("--size", type=whole_number(1), metavar="S", help="crop and resize a folder's images to SxS")
    text = "leave out image files that cannot be read, with a note"
    parser.add_argument("--skip-bad", action="store_true", help=text)


def add_setup_argument(parser: ArgumentParser, returns: str) -> None:
    """Add the option for the user's function that sets up a training; `returns` is its result in the help."""
    text = f"a function without arguments that returns {returns}"
    parser.add_argument("--setup", metavar="FILE.py:FUNCTION", type=nonempty, required=True, help=text)


def add_settings(parser: ArgumentParser, kind: type[Settings], *names: str) -> None:
    """Add the options of settings, as declared by the fields of their class, which keeps the defaults.

    Args:
        parser: Parser of the command.
        kind: Class of the settings.
        names: Names of the settings.
    """
    declared = {field.name: field for field in fields(kind)}
    for name in names:
        field, allowed = declared[name], declared[name].metadata
        option, text = f"--{name.replace('_', '-')}", allowed["help"]
        default = "" if field.default is None else f" (default: {field.default:g})"
        if field.default is True:
            parser.add_argument(f"--not-{name}", dest=name, action="store_false", default=None, help=text)
        elif allowed["one_of"]:
            parser.add_argument(option, choices=allowed["one_of"], help=text)
        elif allowed["least"] is not None:
            parser.add_argument(option, metavar="N", type=whole_number(allowed["least"]), help=f"{text}{default}")
        elif allowed["above"] is not None:
            above = number_within(f"a number above {allowed['above']:g}", allowed["above"])
            parser.add_argument(option, metavar="X", type=above, help=f"{text}{default}")
        else:
            parser.add_argument(option, metavar="FILE", type=nonempty_path, help=text)


def given_settings(args: Namespace, kind: type[Settings]) -> dict[str, Any]:
    """Return the given arguments that are settings of a kind; others keep their defaults."""
    values = {field.name: getattr(args, field.name, None) for field in fields(kind)}
    return {name: value for name, value in values.items() if value is not None}


def add_sigma_arguments(parser: ArgumentParser, of_outputs: str, of_prompts: str) -> None:
    """Add the options for the widths of both Gaussian kernels, within the range of 1 / (2 sigma^2) in float32.

    Args:
        parser: Parser of the command.
        of_outputs: Default of the outputs' kernel in the help.
        of_prompts: Default of the prompts' kernel in the help.
    """
    sigma = number_within("a number between 1e-18 and 1e18", 1e-18, 1e18)
    for option, of, default in (("--sigma", "outputs", of_outputs), ("--prompt-sigma", "prompts", of_prompts)):
        text = f"width of the {of}' Gaussian kernel exp(-|x-y|^2 / (2 S^2)) (default: {default})"
        parser.add_argument(option, metavar="S", type=sigma, help=text)
