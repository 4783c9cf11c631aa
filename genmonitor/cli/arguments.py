# SPDX-License-Identifier: Apache-2.0
"""Types of arguments that several commands share. Help texts must be plain ASCII."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from genmonitor.evaluation.settings import Settings

IMAGES = (
    "a folder of image files or of tar files of these, one such tar file, or a file .npy, .npz, .pt or .safetensors"
)
MAX_SEED = 2**63 - 1


def nonempty(text: str) -> str:
    """Return a path as it was typed, unless it is empty: an empty path would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a path, but got an empty one")
    return text


def apart(*places: str) -> tuple[str, ...]:
    """Name sets by the last parts of their paths, or by the whole where that does not tell them apart.

    Example:
        >>> apart("runs/new", "runs/old"), apart("new/images", "old/images")
        (('new', 'old'), ('new/images', 'old/images'))
    """
    names = tuple(Path(place).name for place in places)
    return names if all(names) and len({*names}) == len(names) else places


def nonempty_path(text: str) -> Path:
    """Return a path, unless it is empty."""
    return Path(nonempty(text))


def whole_number(minimum: int, maximum: int = MAX_SEED) -> Callable[[str], int]:
    """Return a parser of whole numbers within bounds.

    Example:
        >>> whole_number(1)("12")
        12
    """

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= maximum:
            bounds = f"of at least {minimum}" if value < minimum else f"of at most {maximum}"
            raise argparse.ArgumentTypeError(f"expected a whole number {bounds}, but got {text}")
        return value

    return parse


def add_folder_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the pictures of a folder are read."""
    parser.add_argument("--size", type=whole_number(1), metavar="S", help="crop and resize a folder's images to SxS")
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave out image files that cannot be read, with a note"
    )


def add_settings(parser: argparse.ArgumentParser, kind: type[Settings], *names: str) -> None:
    """Add the options of settings, as the fields of their class declare them; the class keeps the defaults.

    Args:
        parser: of the command.
        kind: the class.
        names: of the settings.
    """
    declared = {field.name: field for field in fields(kind)}
    for name in names:
        field, allowed = declared[name], declared[name].metadata
        option = f"--{name.replace('_', '-')}"
        default = "" if field.default is None else f" (default: {field.default:g})"
        if field.default is True:
            option = f"--not-{name}"
            parser.add_argument(option, dest=name, action="store_false", default=None, help=allowed["help"])
        elif allowed["one_of"]:
            parser.add_argument(option, choices=allowed["one_of"], help=allowed["help"])
        elif allowed["least"] is not None:
            parse: Callable[[str], Any] = whole_number(allowed["least"])
            parser.add_argument(option, metavar="N", type=parse, help=f"{allowed['help']}{default}")
        elif allowed["above"] is not None:
            parse = number_above(allowed["above"])
            parser.add_argument(option, metavar="X", type=parse, help=f"{allowed['help']}{default}")
        else:
            parser.add_argument(option, metavar="FILE", type=nonempty_path, help=allowed["help"])


def given_settings(args: argparse.Namespace, kind: type[Settings]) -> dict[str, Any]:
    """Return the arguments given that are settings of a kind: the others keep its defaults."""
    values = {field.name: getattr(args, field.name, None) for field in fields(kind)}
    return {name: value for name, value in values.items() if value is not None}


def number_above(minimum: float) -> Callable[[str], float]:
    """Return a parser of finite numbers greater than a bound.

    Example:
        >>> number_above(0)("0.5")
        0.5
    """

    def parse(text: str) -> float:
        value = _number(text)
        if not minimum < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number above {minimum:g}, but got {text}")
        return value

    return parse


def gaussian_sigma(text: str) -> float:
    """Parse the width of a Gaussian kernel, within what float32 holds of 1 / (2 sigma^2)."""
    value = _number(text)
    if not 1e-18 <= value <= 1e18:
        raise argparse.ArgumentTypeError(f"expected a number from 1e-18 to 1e18, but got {text}")
    return value


def number(text: str) -> float:
    """Parse a finite number."""
    value = _number(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, but got {text}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
