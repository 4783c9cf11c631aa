# SPDX-License-Identifier: Apache-2.0
"""Answers of the first screen of the page: progress, place and kind of fault, certainty, weights to keep, advice."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genmonitor._formatting import capitalized, format_p
from genmonitor.evaluation.regions.findings import RegionFindings
from genmonitor.evaluation.results import Record
from genmonitor.findings.finding import Area, Finding, differs, headlines
from genmonitor.findings.line import WHOLE, amount, and_more, change, clipped
from genmonitor.findings.tables import WIDTH
from genmonitor.findings.values import lookup
from genmonitor.findings.words import percent, with_strength
from genmonitor.functional.diagnosis.kinds import KINDS
from genmonitor.plotting.diagnosis import parts_of
from genmonitor.plotting.style import boundaries
from genmonitor.report.run import MonitorRun, Note

DOCS = "https://github.com/genmonitor/genmonitor/blob/main/docs"


def answers_of(run: MonitorRun) -> list[dict[str, Any]]:
    """Return the answers of each evaluation as plain data, the oldest first.

    Args:
        run: Run of a monitor.
    """
    alerted = {note.text for note in run.notes if note.alert is not None}
    regions = None if run.partition is None else RegionFindings.of(run.partition)
    told = [*run.headlines[:-1], run.headlines[-1] or headlines(run.findings)]
    key, so_far, out = run.best_key or _main_key(run), list[Record](), []
    for record, evaluation, given in zip(run.records, run.evaluations, told, strict=True):
        findings = given or [Finding(evaluation["message"], Area(""), "", None)]
        moment = {"epoch": record.get("epoch"), "step": record.get("step")}
        trend = {"better": "", "trend": "", "height": None}
        # a change since the best evaluation, which has no verdict of its own
        alerts = _lasting(run, record)
        news = run.best_key is not None and findings[0].measure == run.best_key and not findings[0].verdict
        if key in record:
            so_far.append(record)
            worse = _alert(alerts, record, regions) or (news and findings[0].text.partition(":")[0])
            trend = _progress(run, key, so_far, worse or "")
        repeated = [x.text in alerted or (bool(x.verdict) and x.area.name in alerts) for x in findings]
        others = [x.text for i, x in enumerate(findings) if i == 0 or not repeated[i]]
        faults = [x for x in findings if x.fine is False and (x.kinds or x.area.mask is not None)]
        answers = _finding(faults[0] if news and faults else findings[0])
        far = regions.far_worse(record) if regions is not None and answers["where"] == WHOLE[-1] else None
        if regions is not None and far is not None:
            answers["where"] += f", most in {regions.area(far)}"
        out.append({**moment, **trend, **answers, "texts": others})
    return out


def _lasting(run: MonitorRun, record: Record) -> dict[str, Note]:
    """Return the alerts that last at an evaluation by their subject, which may be alerted about again."""
    begun = [x for x in run.notes if x.alert is not None and x.step is not None and x.step <= record.get("step", -1)]
    return {str(x.alert): x for x in begun if (end_of(run, x) or math.inf) > record.get("epoch", -1)}


def _alert(lasting: Mapping[str, Note], record: Record, regions: RegionFindings | None) -> str:
    """Return alerts in few words, the region with the largest error ratio first; empty without any."""
    if not lasting:
        return ""
    keys = {} if regions is None else regions.values.error_ratio
    name = max(lasting, key=lambda x: record.get(keys.get(x, ""), 0.0))
    worse, first = " worse than best" if name in keys else "", lasting[name]
    since = first.epoch if first.since is None else first.since
    return f"alert: {name}{worse} since epoch {since:g}{and_more(lasting)}"


def _main_key(run: MonitorRun) -> str:
    """Return the key of the value of the main finding of a training whose evaluations have no order."""
    return "" if run.compared else next((x.measure for x in run.findings if x.measure in run.records[-1]), "") or ""


def _progress(run: MonitorRun, key: str, so_far: Sequence[Record], worse: str) -> dict[str, Any]:
    """Return the change of a value in words, its course, and its height in the line of all evaluations."""
    spec, now = lookup(run.values, key), so_far[-1][key]
    course = [so_far[0][key], now] if len(so_far) > 1 else [now]
    said = worse or (change(spec, so_far) if run.best_key else _beside_real(run, key, so_far))
    height = math.log10(max(now, 1.0)) if spec.unit == "×" else now
    return {"better": said and capitalized(said), "trend": amount(spec, *course), "height": height}


def _beside_real(run: MonitorRun, key: str, so_far: Sequence[Record]) -> str:
    """Return the change of a value without an order, beside that of real images if it was measured."""
    real = so_far[-1].get(f"real_{key}", 0.0)
    if real <= 0 or len(so_far) < 2:
        return ""
    was, now = (abs(math.log(max(record[key], 1e-12) / real)) for record in (so_far[0], so_far[-1]))
    return "" if was == now else f"{'nearer to' if now < was else 'farther from'} that of real images than at first"


def best_of(run: MonitorRun, folder: Path) -> dict[str, Any] | None:
    """Return the best evaluation with the file of its checkpoint, or why there is none; None for a comparison.

    Args:
        run: Run of a monitor.
        folder: Folder with its files.
    """
    best, key = run.best, run.best_key or _main_key(run)
    if best is None:
        if run.compared or not key:
            return None
        value = lookup(run.values, key).title.partition(" (")[0]
        return {"epoch": "no best epoch", "value": f"no order by {value} alone", "file": ""}
    values = best["values"]
    step = best.get("global_step", values.get("step"))  # a loop of one's own has its own steps alone
    path = None if step is None else find_checkpoint(folder.parent, step)
    file = "" if path is None else path.relative_to(folder.parent).as_posix()
    value = amount(lookup(run.values, str(run.best_key)), values[run.best_key])
    return {"epoch": f"epoch {values['epoch']:g}", "value": value, "file": file}


def title_of(run: MonitorRun) -> str:
    """Return the title of a monitor, with its prefix if there may be others."""
    title = str(run.manifest.get("title") or run.manifest.get("monitor") or run.prefix)
    return title if run.compared else f"{title} ({run.prefix})"


def closing(run: MonitorRun, folder: Path, alone: bool = True) -> str:
    """Return the answers of the last evaluation, and the best evaluation, as lines for the terminal.

    Args:
        run: Run of a monitor.
        folder: Folder with its files.
        alone: False to begin with the title, as for one of several monitors.
    """
    last, best = answers_of(run)[-1], best_of(run, folder)
    keep = [] if best is None else [f"{best['epoch']} ({best['value']})", best["file"]]
    told = {
        "Better?": ", ".join(filter(None, [last["trend"], last["better"][:1].lower() + last["better"][1:]])),
        "Where": last["where"],
        "What": ", ".join(filter(None, [last["what"], last["share"]])),
        "Sure?": f"{last['sure']} ({last['p']})" if last["p"] else last["sure"],
        "To try": last["next"] or last["how"],
        "Keep": ", ".join(filter(None, keep)),
    }
    lines = [clipped(f"{name:<9}{text}", WIDTH) for name, text in told.items() if text]
    return "\n".join(lines if alone else [title_of(run), *lines])


def find_checkpoint(run: Path, step: int, places: tuple[str, ...] = ("", "checkpoints/")) -> Path | None:
    """Return the checkpoint that was saved at a step, which its name or the file itself tells; None if there is none.

    Args:
        run: Folder of the run.
        step: Step of the Trainer.
        places: Folders below it, as patterns; a run that shares its folder with others has its own there.
    """
    for path in (path for place in places for path in sorted(run.glob(f"{place}*.ckpt"))):
        named = re.search(r"step=(\d+)", path.name)
        if (int(named[1]) if named else _saved_step(path)) == step:
            return path
    return None


def _saved_step(path: Path) -> int | None:
    """Return the Trainer's step that a checkpoint holds; None if it cannot be read safely."""
    with suppress(Exception):  # a file cut short, or with objects of the user's, may raise anything
        return int(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["global_step"])
    return None


def end_of(run: MonitorRun, alert: Note) -> float | None:
    """Return the epoch of the first later evaluation without the fault of an alert; None if all have it."""
    later = (x for x in run.evaluations if x["values"].get("step", -1) > (alert.step or 0))
    return next((x["values"].get("epoch") for x in later if alert.alert not in x["wrong"]), None)


def _finding(first: Finding) -> dict[str, Any]:
    """Return place, kind, certainty and remedy of the main finding."""
    at = "" if first.as_of is None else f" (as at epoch {first.as_of:g})"
    mask, kinds = first.area.mask, first.kinds
    explained = sum(kind.share for kind in kinds)
    what = " and ".join(map(with_strength, kinds)) or first.verdict or first.text
    whole = first.area.name in WHOLE or first.area.region == "image" or (mask is not None and bool(mask.all()))
    return {
        "fine": first.fine,
        "where": WHOLE[-1] if whole else str(first.area),
        "what": ("no difference beyond chance" if first.fine else what) + at,
        "share": f"{percent(explained)} explained" if explained else "",
        "sure": "not tested" if first.p is None else "yes" if differs(first.p) and not first.fine else "no",
        "p": "" if first.p is None else format_p(first.p),
        "next": first.remedy,
        "how": f"{DOCS}/how-to/next-step.md" if first.fine is False and not first.remedy else "",
        "cause": first.cause,
        "gallery": f"{DOCS}/pictures/kinds/{kinds[0].name}.png" if kinds and kinds[0].name in KINDS else "",
        "outline": "" if whole or mask is None else _outline(mask),
        "size": [1, 1] if mask is None else list(mask.shape),
        "bar": _shares(first),
    }


def _shares(finding: Finding) -> list[tuple[str, float]]:
    """Return the parts of the distance; empty if nothing was explained."""
    shares = {with_strength(kind): kind.share for kind in finding.kinds}
    if finding.fine or max([0.0, *shares.values()]) <= 0:
        return []
    return list(parts_of(shares).items())


def _outline(mask: Tensor) -> str:
    """Return the edges of a mask [h, w] as an SVG path."""
    segments = boundaries(mask.numpy().astype(int), border=True) + 0.5
    return "".join(f"M{x0:g} {y0:g}L{x1:g} {y1:g}" for (x0, y0), (x1, y1) in segments.tolist())
