# SPDX-License-Identifier: Apache-2.0
"""A gate: conditions on measured values, such as "p < 0.01", under which a command fails."""

from __future__ import annotations

import argparse
import math
import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from xml.etree import ElementTree

from genmonitor._formatting import format_p, significant
from genmonitor.findings.values import ValueSpec, by_key, lookup
from genmonitor.functional.permutation import NUM_PERMUTATIONS
from genmonitor.partition import region_key

OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class Condition:
    """A condition of the form NAME OPERATOR NUMBER.

    Attributes:
        name: Key of a value or, if there is none of this name, a measure of the image and every region.
        symbol: One of `OPERATORS`.
        bound: Number to compare with.
    """

    name: str
    symbol: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.symbol} {self.bound:g}"


def condition(text: str) -> Condition:
    """Parse a condition.

    Example:
        >>> print(condition("error_ratio>3"))
        error_ratio > 3
    """
    parts = re.fullmatch(r"\s*(\w+)\s*([<>]=?)\s*(\S+)\s*", text)
    with suppress(ValueError):
        if parts is not None and math.isfinite(float(parts[3])):
            return Condition(parts[1], parts[2], float(parts[3]))
    raise argparse.ArgumentTypeError(f"expected NAME < NUMBER (or <=, >, >=), such as 'p < 0.01', but got {text!r}")


def failures(
    conditions: Sequence[Condition], specs: Sequence[ValueSpec], values: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return the values that meet a condition, the most extreme first.

    Args:
        conditions: Conditions, each of which is a reason to fail.
        specs: Declarations of the values.
        values: Values by key.

    Returns:
        For each value "condition", "key", "value" and "reason".

    Raises:
        ValueError: If a condition does not name a measured value.

    Example:
        >>> specs = [ValueSpec("share_1", region="cluster_1"), ValueSpec("share_2", region="cluster_2")]
        >>> [x["reason"] for x in failures([condition("share > 0.5")], specs, {"share_1": 0.3, "share_2": 0.7})]
        ['share_2 = 0.7 (share > 0.5)']
    """
    found = []
    for wanted in conditions:
        keys = [spec.key for spec in specs if spec.key == wanted.name]
        keys = keys or [spec.key for spec in specs if _means(wanted.name, spec)]
        measured = {key: values[key] for key in keys if not math.isnan(values.get(key, math.nan))}
        if not measured:
            raise ValueError(f"Expected --fail-if to name a value that was measured, but {wanted.name} was not.")
        met = {key: value for key, value in measured.items() if OPERATORS[wanted.symbol](value, wanted.bound)}
        for key, value in sorted(met.items(), key=lambda item: item[1], reverse=">" in wanted.symbol):
            p = lookup(by_key(specs), key).scale == "p"
            said = format_p(value).removeprefix("p ") if p else f"= {significant(value, 4)}"
            reason = f"{key} {said} ({wanted})"
            found.append({"condition": str(wanted), "key": key, "value": value, "reason": reason})
    return found


def junit(conditions: Sequence[Condition], failed: Sequence[Mapping[str, Any]]) -> str:
    r"""Return an XML report in JUnit's format, with a test case for each condition.

    Args:
        conditions: All conditions.
        failed: Result of `failures` for them.

    Example:
        >>> gate = condition("p < 0.01")
        >>> print(junit([gate], []).replace("><", ">\n<"))
        <testsuite name="genmonitor" tests="1" failures="0">
        <testcase classname="genmonitor" name="not p &lt; 0.01" time="0" />
        </testsuite>
    """
    reasons = {str(wanted): [x["reason"] for x in failed if x["condition"] == str(wanted)] for wanted in conditions}
    count = sum(map(bool, reasons.values()))
    suite = ElementTree.Element("testsuite", name="genmonitor", tests=str(len(reasons)), failures=str(count))
    for name, why in reasons.items():
        case = ElementTree.SubElement(suite, "testcase", classname="genmonitor", name=f"not {name}", time="0")
        if why:
            ElementTree.SubElement(case, "failure", message=", ".join(why))
    return ElementTree.tostring(suite, encoding="unicode")


def check_names(conditions: Sequence[Condition], specs: Sequence[ValueSpec]) -> None:
    """Refuse an unknown name, and a condition that no value can meet, before anything is measured.

    Args:
        conditions: Conditions to check.
        specs: Declarations for an image with one region, since the number of regions is unknown.
    """
    for wanted in conditions:
        name = re.sub(r"\d+$", "1", wanted.name)
        if not any(_means(given, spec) for spec in specs for given in (name, wanted.name)):
            near = get_close_matches(name, [spec.key.removesuffix("_1") for spec in specs], 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"Expected --fail-if to name a value, such as error_ratio, but got {wanted.name}.{hint}")
        measure = wanted.name.partition("_")[0]
        if measure in ("p", "share") and not 0 <= wanted.bound <= 1:
            raise ValueError(f"Expected a number from 0 to 1, between which {wanted.name} lies, but got {wanted}.")
        permuted = measure == "p" and not wanted.name.startswith("p_worse")
        least = 1 / (NUM_PERMUTATIONS + 1)
        if permuted and "<" in wanted.symbol and not OPERATORS[wanted.symbol](least, wanted.bound):
            raise ValueError(
                f"Expected a number above {least:g}, the smallest p-value of {NUM_PERMUTATIONS} permutations, but got "
                f"{wanted}, which passes whatever the images are."
            )


def _means(name: str, spec: ValueSpec) -> bool:
    return name == spec.key or (spec.region is not None and region_key(name, spec.region) == spec.key)
