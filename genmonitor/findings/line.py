# SPDX-License-Identifier: Apache-2.0
"""The line printed for an evaluation: distance from real images, its change, and the main fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

from genmonitor._formatting import format_p, times_real
from genmonitor.findings.finding import ALERT_RATIO, Finding
from genmonitor.findings.tables import WIDTH
from genmonitor.findings.values import Values, ValueSpec, lookup
from genmonitor.findings.words import percent, with_strength

LONGEST_STATUS = 70
"""Largest number of characters of a status; the text of an alert is in its warning."""
GAP = "   "
WHOLE = ("image", "whole image")

Records = Sequence[Values]
Specs = Mapping[str, ValueSpec]


def evaluation_line(
    findings: Sequence[Finding],
    history: Records,
    specs: Specs,
    best_key: str | None = None,
    alerts: Sequence[Finding] = (),
    of: str = "",
) -> str:
    """Return the line about the last evaluation.

    Args:
        findings: Findings of the evaluation, the main one first.
        history: Records so far.
        specs: Declarations by key.
        best_key: Key of the value that is lowest for the best evaluation; None without one.
        alerts: Alerts that begin at this evaluation.
        of: Name of the monitor; empty if it is the only one.

    Example:
        >>> ratio = {"error_ratio_image": ValueSpec("error_ratio_image", unit="×", better="low")}
        >>> history = [{"epoch": 10, "error_ratio_image": 35.0}, {"epoch": 11, "error_ratio_image": 28.0}]
        >>> evaluation_line([], history, ratio, "error_ratio_image")
        'epoch 11    28 × real   better (was 35), best so far'
    """
    record = history[-1]
    head = f"epoch {record['epoch']:>2g}  {of}".rstrip() if "epoch" in record else of
    status = ""
    if best_key is not None and best_key in record:
        spec = lookup(specs, best_key)
        head += f"  {amount(spec, record[best_key]):>{11 if spec.unit == '×' else 15}}"
        status = change(spec, history)
    if alerts:
        status = _alert(alerts, specs, history)
    back = [x.area.name for x in findings if x.verdict == "recovered"]
    status = ", ".join([*filter(None, [status]), *(f"{name} recovered" for name in back[:1])])
    # as wide as a usual status, so that findings are aligned
    parts = [head, f"{clipped(status, LONGEST_STATUS):<33}"] if status else [head]
    repeated = any(x.area.name == findings[0].area.name for x in alerts) if findings else True
    said = "" if repeated else " ".join(brief(findings[0], record, specs).split())
    room = WIDTH - len(GAP.join([*parts, ""]))
    if len(said) > room and ", real " in said:  # a reading without what is less important than its value
        said = said.partition(", real ")[0]
        said = said if len(said) <= room else said.rpartition(", ")[2]
    return clipped(GAP.join([*parts, said] if said else parts), WIDTH)


def brief(finding: Finding, record: Values, values: Specs) -> str:
    """Return a finding in a few words: kind, place and share, or the size of the difference of an area.

    Args:
        finding: Finding of an evaluation.
        record: Values of the evaluation.
        values: Declarations by key.
    """
    place = "whole image" if finding.area.name in WHOLE else str(finding.area)
    if finding.as_of is not None:
        return f"as at epoch {finding.as_of:g}"
    if finding.kinds:
        kind = finding.kinds[0]
        return f"{with_strength(kind)}, {place}, {percent(kind.share)}"
    if finding.fine and finding.p is not None:
        return f"no difference beyond chance ({format_p(finding.p)})"
    key = finding.measure or ""
    if finding.area.region is not None and key in record and finding.p is not None:
        amount = lookup(values, key).format(record[key])
        return f"{place}: {amount} ({format_p(finding.p)})"
    if finding.fine is False and finding.area.name in WHOLE:
        said = finding.text.partition(": ")[2] or finding.text
        return said.partition(" (in ")[0]  # the first reading, without its share
    return f"{place}: {finding.verdict}" if finding.verdict else finding.text


def clipped(text: str, room: int) -> str:
    """Return text of limited length, cut between words.

    Example:
        >>> clipped("blurred, in the upper left quarter", 20)
        'blurred, in the…'
    """
    text = text.rstrip(" .")
    if len(text) <= room:
        return text
    kept = text[: room - 1]
    return f"{(kept.rpartition(' ')[0] or kept).rstrip(' ,;:(')}…"


def amount(spec: ValueSpec, *values: float) -> str:
    """Return a value in words, or its course; a ratio below 1 is chance and counts as 1.

    Example:
        >>> amount(ValueSpec("error_ratio_image", unit="×", better="low"), 159.0, 28.0), amount(ValueSpec("total"), 2.0)
        ('159 → 28 × real', 'total 2')
    """
    numbers = " → ".join(_number(spec, value) for value in values)
    return f"{numbers} × real" if spec.unit == "×" else f"{spec.title} {numbers}"


def _number(spec: ValueSpec, value: float) -> str:
    return times_real(value) if spec.unit == "×" else spec.format(value)


def change(spec: ValueSpec, history: Records) -> str:
    """Return the change from the evaluation before, and the best evaluation.

    A value near the best is within a quarter of it, for a ratio that of real images at least, or two standard errors.

    Args:
        spec: Declaration of the value that orders evaluations, where lower is better.
        history: Records so far.
    """
    known = [record for record in history if spec.key in record]
    *earlier, now = [record[spec.key] for record in known]
    if not earlier:
        return "first evaluation"
    best, was = min(earlier), _number(spec, earlier[-1])
    if now < best:
        return "as before, best so far" if _number(spec, now) == was else f"better (was {was}), best so far"
    at_best = f"{_number(spec, best)} at epoch {known[earlier.index(best)].get('epoch', 0):g}"
    error = known[-1].get(f"{spec.key}_error", 0.0)
    if now <= max(ALERT_RATIO * max(best, float(spec.unit == "×")), best + 2 * error):
        return f"near the best ({at_best})"
    if now < earlier[-1]:
        return f"better (was {was}), best {at_best}"
    return f"worse than best ({at_best})"


def and_more(alerts: Sized) -> str:
    """Return the number of alerts besides the first, as a remark."""
    return f" and {len(alerts) - 1} more" if len(alerts) > 1 else ""


def _alert(alerts: Sequence[Finding], values: Specs, history: Records) -> str:
    """Name the alert whose value is largest, and the number of others."""
    first = max(alerts, key=lambda x: (x.area.region is not None) * history[-1].get(x.measure or "", 0.0))
    key, others = first.measure or "", and_more(alerts)
    known = [record for record in history[:-1] if key in record]
    if first.area.region is not None and known:
        best = min(known, key=lambda record: record[key])
        amount = _number(lookup(values, key), best[key])
        about = f"{first.area.name} worse than best ({amount} × at epoch {best['epoch']:g})"
    else:
        about = f"{first.area.name} {first.verdict}" if first.verdict else first.text
    return clipped(f"ALERT: {about}", LONGEST_STATUS - len(others)) + others
