# SPDX-License-Identifier: Apache-2.0
"""Formatting of values: cosine mean similarities, p-values, distances and ratios."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

Band = tuple[float, float, float]
"""Lower end, median and upper end of a baseline."""
LEAST_P = 1e-4
"""Smallest p-value that is shown as a number: nobody needs to tell smaller ones apart."""
LEAST, LARGEST = 1e-9, 1e9
"""Sizes below and from which numbers are written with an exponent."""
RESOLUTION = 1e-6  # float32 sums cannot tell a CMS above 1 - 1e-6 from 1


def format_cms(value: float) -> str:
    """Format a CMS with four to six decimals, so that two digits of its distance to 1 are visible.

    Example:
        >>> [format_cms(value) for value in (0.51234, 0.999, 0.99964, 0.999964, 1.0)]
        ['0.5123', '0.9990', '0.99964', '0.999964', '1']
    """
    distance = abs(1 - value)
    if distance < RESOLUTION:
        return "1"
    digits = 4 if not math.isfinite(distance) else 1 + math.ceil(-math.log10(distance))
    return f"{value:.{min(6, max(4, digits))}f}"


def significant(value: float, digits: int = 2) -> str:
    """Format a number with significant digits, and whole if more stand before its point.

    Example:
        >>> [significant(x) for x in (134.2, 99.7, 12.0, 0.000031, -0.5)], significant(1234.5, 3)
        (['134', '100', '12', '0.000031', '-0.5'], '1234')
    """
    rounded = f"{value:.{digits}g}"
    size = abs(float(rounded))
    if 10**digits <= size < LARGEST:
        return f"{value:.0f}"
    return f"{Decimal(rounded):f}" if LEAST <= size < 1 else rounded


def format_p(p: float) -> str:
    """Format a p-value with two significant digits.

    Example:
        >>> format_p(0.4321), format_p(0.005), format_p(1.0), format_p(3e-9)
        ('p = 0.43', 'p = 0.005', 'p = 1', 'p < 0.0001')
    """
    return f"p < {LEAST_P:.4f}" if p < LEAST_P else f"p = {p:.2g}"


def format_ratio(ratio: float) -> str:
    """Format an error ratio with two significant digits.

    Example:
        >>> format_ratio(1.04), format_ratio(12.3), format_ratio(215.2)
        ('1.0 ×', '12 ×', '215 ×')
    """
    return f"{ratio:.{1 if ratio < 9.95 else 0}f} ×"


def format_error_ratio(ratio: float) -> str:
    """Format a multiple of the value of real images; values below 1 are chance.

    Example:
        >>> format_error_ratio(12.3), format_error_ratio(0.87)
        ('12 ×', '1 × (chance)')
    """
    return "1 × (chance)" if ratio < 1 else format_ratio(ratio)


def times_real(ratio: float) -> str:
    """Format an error ratio for the text before "× real"; values below 1 are chance.

    Example:
        >>> times_real(12.3), times_real(0.87)
        ('12', '1.0')
    """
    return format_ratio(max(ratio, 1.0)).removesuffix(" ×")


def as_sentence(text: str) -> str:
    """Return a note as a sentence; a name at its beginning, such as cluster_2, is unchanged.

    Example:
        >>> as_sentence("there is no validation data"), as_sentence("cluster_2 got worse.")
        ('There is no validation data.', 'cluster_2 got worse.')
    """
    start = capitalized(text)
    return start if start.endswith((".", "?")) else f"{start}."


def capitalized(text: str) -> str:
    """Return a text with a capital first letter, unless it begins with a name such as cluster_2."""
    return text if "_" in text.split(maxsplit=1)[0] else f"{text[0].upper()}{text[1:]}"


def short(value: Any) -> str:
    """Format a value for one line: a number with six digits, a tensor with several numbers as its shape.

    Example:
        >>> import torch
        >>> short(0.123456789), short(torch.tensor(3)), short(torch.zeros(2, 3))
        ('0.123457', '3', '[2, 3]')
    """
    shape = list(getattr(value, "shape", ()))
    return str(shape) if math.prod(shape) != 1 else significant(float(value), 6)
