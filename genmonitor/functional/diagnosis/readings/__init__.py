# SPDX-License-Identifier: Apache-2.0
"""Readings: statistics of single images that a person can name, one class each, by family."""

from __future__ import annotations

from genmonitor.functional.diagnosis.readings import detail, shape, tone
from genmonitor.functional.diagnosis.readings.base import Look, Reading
from genmonitor.functional.diagnosis.readings.compare import Said, checked_readings, differing, read, usable_readings


def _is_reading(x: object) -> bool:
    return isinstance(x, type) and issubclass(x, Reading) and bool(x.name)


READINGS: tuple[Reading, ...] = tuple(
    x() for family in (tone, detail, shape) for x in vars(family).values() if _is_reading(x)
)
"""Readings: every public class of the files of families."""

__all__ = ["READINGS", "Look", "Reading", "Said", "checked_readings", "differing", "read", "usable_readings"]
