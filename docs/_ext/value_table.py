# SPDX-License-Identifier: Apache-2.0
"""The table of logged values, written from their declarations."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from genmonitor.evaluation import DisagreementEvaluator, DisagreementSettings, DiversityEvaluator, DiversitySettings
from genmonitor.evaluation.classes import P_CLASS
from genmonitor.evaluation.diversity_findings import FIDELITY, diversity_values
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.findings.values import RUN_VALUES, ValueSpec

PLACE = "<!-- the values -->"
RANGES = {"cms": "0 to 1", "p": "0 to 1", "share": "parts of 1", "log": "from about 0", "signed": "any", "linear": ""}
SAID = re.compile(r", (?:in \[(-?\d+), (\d+)\]|(at least 1|0 or more))")
"""Where a meaning itself says the range: it then stands in the column."""
BETTER = {"high": "higher", "low": "lower", None: ""}


def declared() -> dict[str, Collection[ValueSpec]]:
    """Return the declarations of each monitor: of two regions and the constant pixels, or of two classes."""
    prompts, regions = range(2), ["cluster_1", "cluster_2", "constant"]
    diversity = [*diversity_values(1000, True, True, True), *FIDELITY]
    diversity += DiversityEvaluator(DiversitySettings.of(prompts)).values()
    of_regions = RegionValues(regions, ["image", "product", "mmd", *regions]).specs
    return {
        "`PixelClusterMonitor`: `cms/…`": [*of_regions, P_CLASS],
        "`DiversityMonitor`: `diversity/…`": {x.key: x for x in diversity}.values(),
        "`DisagreementMonitor`: `disagreement/…`": DisagreementEvaluator(DisagreementSettings.of(prompts)).values(),
        "Every monitor": RUN_VALUES,
    }


def rows(specs: Collection[ValueSpec]) -> list[str]:
    """Return a row for each meaning, with the keys that have it."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for spec in specs:
        chart = "hidden" if spec.detail else spec.chart if spec.chart else "its own"
        said = SAID.search(spec.about)
        limits = RANGES[spec.scale] if said is None else said[3] or f"{said[1]} to {said[2]}"
        row = (SAID.sub("", spec.about), limits, BETTER[spec.better], chart)
        alike.setdefault(row, []).append(f"`{spec.key}`")
    out = []
    for (about, *rest), keys in alike.items():
        named = ", ".join(keys[:2]) + " …" * (len(keys) > 2)
        out.append(f"| {' | '.join([named, about[:1].upper() + about[1:], *rest])} |")
    return out


def tables() -> str:
    """Return a table for each monitor."""
    head = ["| key | meaning | range | better | chart |", "| --- | --- | --- | --- | --- |"]
    return "\n\n".join("\n".join([f"## {title}", "", *head, *rows(specs)]) for title, specs in declared().items())


def on_read(app: Any, docname: str, source: list[str]) -> None:
    """Put the tables where the page asks for them."""
    if PLACE in source[0]:
        source[0] = source[0].replace(PLACE, tables())


def setup(app: Any) -> dict[str, bool]:
    """Write the tables before the page is parsed."""
    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
