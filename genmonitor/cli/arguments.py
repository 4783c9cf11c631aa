# SPDX-License-Identifier: Apache-2.0
"""The kinds of arguments that several commands take. What is said in `--help` must be plain ASCII."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

IMAGES = "a folder of image files, or a file .npy, .npz, .pt or .safetensors"
MAX_SEED = 2**63 - 1


def given(text: str) -> str:
    """Return an argument as it is, unless it is empty: an empty path would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a path, but got an empty one")
    return text


def given_path(text: str) -> Path:
    """Return an argument as a path, unless it is empty."""
    return Path(given(text))


def whole_number(minimum: int, maximum: int = MAX_SEED) -> Callable[[str], int]:
    """Return what reads a whole number within bounds.

    Example:
        >>> whole_number(1)("12")
        12
    """

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= maximum:
            bounds = f"of at least {minimum}" if value < minimum else f"of at most {maximum}"
            raise argparse.ArgumentTypeError(f"expected a whole number {bounds}, but got {text}")
        return value

    return read


def given_settings(args: argparse.Namespace, kind: Any) -> dict[str, Any]:
    """Return the arguments given that are settings of a kind, a dataclass: the others keep its defaults."""
    values = {field.name: getattr(args, field.name, None) for field in fields(kind)}
    return {name: value for name, value in values.items() if value is not None}


def number_above(minimum: float) -> Callable[[str], float]:
    """Return what reads a number greater than a bound.

    Example:
        >>> number_above(0)("0.5")
        0.5
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = minimum
        if not minimum < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number above {minimum:g}, but got {text}")
        return value

    return read
