# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers, flags and counts."""

from __future__ import annotations

import math
import re


def check_at_least(name: str, value: object, minimum: int) -> int:
    """Return a whole number no smaller than `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"Expected `{name}` to be a whole number >= {minimum}, but got {value!r}.")
    return value


def check_at_most(name: str, value: int, maximum: int, memory: str) -> None:
    """Refuse a number whose work would take more than so much memory."""
    if value > maximum:
        raise ValueError(f"Expected `{name}` to be at most {maximum} to stay within {memory}, but got {value}.")


def check_positive(name: str, value: object) -> float:
    """Return a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"Expected `{name}` to be a positive finite number, but got {value!r}.")
    return float(value)


def check_order(name: str, value: object) -> float:
    """Return the order of an entropy: positive, infinity allowed."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(
            f"Expected `{name}` to be a positive number or math.inf, but got {value!r}. "
            "1 is Shannon's entropy, 2 that of RKE."
        )
    return float(value)


def check_relative_cutoff(name: str, value: object) -> float:
    """Return a number between 0 and 1, both excluded."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise ValueError(
            f"Expected `{name}` to be a number between 0 and 1, but got {value!r}. "
            "It is relative to the largest eigenvalue; None takes the default."
        )
    return float(value)


def check_bool(name: str, value: object) -> bool:
    """Return True or False; a word such as "no" would pass for True."""
    if not isinstance(value, bool):
        raise TypeError(f"Expected `{name}` to be True or False, but got {value!r}.")
    return value


def check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words."""
    if value not in allowed:
        raise ValueError(f"Expected `{name}` to be one of {', '.join(map(repr, allowed))}, but got {value!r}.")
    return str(value)


def check_prefix(name: str, value: object) -> str:
    """Return a word that log keys and file names can begin with."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", value):
        raise ValueError(
            f"Expected `{name}` of letters and digits with single '_' or '-' between them, since log keys and file "
            f"names begin with it, but got {value!r}."
        )
    return value


def check_callable(name: str, value: object, what: str) -> None:
    """Refuse what is neither None nor callable."""
    if value is not None and not callable(value):
        raise TypeError(f"Expected `{name}` to be a callable {what}, or None, but got {value!r}.")


def check_height_and_width(name: str, value: object) -> None:
    """Refuse what is not a pair of positive whole numbers."""
    sides = list(value) if isinstance(value, (tuple, list)) else []
    if len(sides) != 2 or any(isinstance(x, bool) or not isinstance(x, int) or x < 1 for x in sides):
        raise ValueError(f"Expected `{name}` as (height, width), whole numbers >= 1, but got {value!r}.")


def check_count(name: str, count: int, call: str) -> None:
    """Refuse to compute from fewer than 2 samples, saying how to add some."""
    if count < 2:
        raise ValueError(f"Expected at least 2 {name} before `compute`, but got {count}. Call `{call}`.")


def check_some_prompts(count: int, outputs: int) -> None:
    """Refuse to average over no prompt."""
    if count == 0:
        raise ValueError(
            f"Expected a prompt with at least {outputs} outputs, but got none. Draw more outputs of each prompt."
        )


def check_whole_blocks(name: str, count: int, block_size: int | None) -> None:
    """Refuse samples that do not fill whole blocks: a short block has another bias than the others."""
    if block_size is not None and count % block_size:
        raise ValueError(
            f"Expected the number of {name} samples to be a multiple of `block_size`={block_size}, but got {count}. "
            f"Use {count - count % block_size} samples or another block size."
        )
