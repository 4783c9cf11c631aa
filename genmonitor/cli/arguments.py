# SPDX-License-Identifier: Apache-2.0
"""Types of arguments that several commands share. Help texts must be plain ASCII."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

IMAGES = (
    "a folder of image files or of tar files of these, one such tar file, a dataset that Hugging Face's save_to_disk "
    "wrote, or a file .npy, .npz, .pt or .safetensors"
)
PATCH_SIZE = "sites of PxP pixels (default: 1, or as many as leave at most 64x64 sites)"
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


def given_settings(args: argparse.Namespace, kind: Any) -> dict[str, Any]:
    """Return the arguments given that are settings of a kind, a dataclass: the others keep its defaults."""
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
