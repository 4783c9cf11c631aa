# SPDX-License-Identifier: Apache-2.0
"""Declarations of values: the meaning of each number of an evaluation, and the way to draw it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from genmonitor._formatting import format_cms, format_error_ratio, format_p, format_ratio, significant
from genmonitor._validation import check_fields

Scale = Literal["linear", "log", "cms", "p", "share", "signed"]
Better = Literal["high", "low"]
Values = Mapping[str, float]
"""Numbers by their keys, or by names of regions or prompts."""


@dataclass(frozen=True)
class ValueSpec:
    """Declaration of a value, on which loggers, charts, tables and messages rely, instead of on its key.

    Attributes:
        key: Name in the history, without the monitor's prefix.
        about: Meaning, one sentence in Markdown without the full stop.
        label: Readable name; the key with spaces by default.
        scale: Axis: "linear", "log", "cms" (log of the distance to 1), "p" (log, with a line at 0.05), "share" (stacked
            parts of 1) or "signed" (log on both sides of 0).
        unit: Unit behind the number; "×" with `better="low"` means a multiple of the value of real images.
        region: Part of the image: "image", or a region of the partition; None for neither.
        chart: Title of a shared chart; None for a chart of its own, or for no chart if it is a detail.
        column: Heading of its column in the table of regions; None for no column.
        better: "high" if higher values are better, "low" if lower ones are; None for neither.
        detail: True if the page and history.csv have it, but a logger only with all values requested.
        baseline_of: Key of the value for which this is the value of real images.
        error_of: Key of the value of which this is the standard error or deviation.
        repeatable: True if the same samples reproduce it, independently of clock, start and history of a run.

    Raises:
        ValueError: If the key is empty, or `scale` or `better` is not one of these.

    Example:
        >>> brightness = ValueSpec("brightness", "mean pixel less that of real images", scale="signed")
        >>> brightness.title, ValueSpec.from_dict(brightness.to_dict()) == brightness
        ('brightness', True)
    """

    key: str
    about: str = ""
    label: str = ""
    scale: Scale = "linear"
    unit: str = ""
    region: str | None = None
    chart: str | None = None
    column: str | None = None
    better: Better | None = None
    detail: bool = False
    baseline_of: str | None = None
    error_of: str | None = None
    repeatable: bool = True

    def __post_init__(self) -> None:
        if not self.key or not isinstance(self.key, str):
            raise ValueError(f"Expected `key` to be the name of a value, but got {self.key!r}.")
        for name, allowed in {"scale": get_args(Scale), "better": (*get_args(Better), None)}.items():
            given = getattr(self, name)
            if given not in allowed:
                raise ValueError(f"Expected `{name}` of {self.key} to be one of {allowed}, but got {given!r}.")

    @property
    def title(self) -> str:
        """Readable name."""
        return self.label or self.key.replace("_", " ")

    def format(self, value: float) -> str:
        """Return a number of this value as text.

        Example:
            >>> ValueSpec("share_1", scale="share").format(0.2), ValueSpec("error_ratio_1", unit="×").format(12.345)
            ('20 %', '12 ×')
        """
        if self.scale == "cms":
            return format_cms(value)
        if self.scale == "share":
            return f"{100 * value:z.0f} %"
        if self.scale == "p":
            return format_p(value)
        if self.unit == "×":
            return format_error_ratio(value) if self.better == "low" else format_ratio(value)
        return f"{significant(value, 3)}{f' {self.unit}' if self.unit else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, as plain Python."""
        given = asdict(self)
        return {x.name: given[x.name] for x in fields(self) if x.default is MISSING or given[x.name] != x.default}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> ValueSpec:
        """Make it from the result of `to_dict`; unknown fields are ignored."""
        return check_fields(cls(**{x.name: saved[x.name] for x in fields(cls) if x.name in saved}))


def declared(table: str) -> dict[str, ValueSpec]:
    """Return the declarations in a table of `values.toml`, by key.

    Example:
        >>> declared("regions")["error_ratio"].unit
        '×'
    """
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {key: ValueSpec(key, **fields) for key, fields in tables[table].items()}


RUN_VALUES = tuple(declared("run").values())
"""Values that every monitor logs in addition to those of its evaluator."""


def by_key(specs: Iterable[ValueSpec]) -> dict[str, ValueSpec]:
    """Return declarations by key."""
    return {spec.key: spec for spec in specs}


def lookup(specs: Mapping[str, ValueSpec], key: str) -> ValueSpec:
    """Return the declaration of a value; an undeclared one has a plain axis and a chart of its own."""
    return specs.get(key) or ValueSpec(key)


def grouped_by_chart(specs: Iterable[ValueSpec]) -> dict[str, list[ValueSpec]]:
    """Return the values of each chart by its title; a value without a chart has its own unless it is a detail.

    Example:
        >>> specs = [ValueSpec("a", chart="Both"), ValueSpec("b"), ValueSpec("c", chart="Both")]
        >>> {title: [spec.key for spec in shared] for title, shared in grouped_by_chart(specs).items()}
        {'Both': ['a', 'c'], 'b': ['b']}
    """
    charts: dict[str, list[ValueSpec]] = {}
    for spec in specs:
        if spec.chart is not None or not spec.detail:
            charts.setdefault(spec.chart or spec.title, []).append(spec)
    return charts


def main_keys(specs: Iterable[ValueSpec]) -> list[str]:
    """Return the keys that a logger gets by default: at most 20, without details.

    Values of whole images come first, then those of regions, whose charts are complete or left out.

    Example:
        >>> main_keys([ValueSpec("image", region="image"), ValueSpec("p_image", detail=True)])
        ['image']
    """
    groups: dict[str, list[str]] = {}
    shown = [spec for spec in specs if not spec.detail]
    for spec in sorted(shown, key=lambda spec: spec.region not in (None, "image")):
        of_image = spec.region in (None, "image")
        groups.setdefault(spec.key if of_image else spec.chart or spec.key, []).append(spec.key)
    keys: list[str] = []
    for group in groups.values():
        keys += group if len(keys) + len(group) <= 20 else []
    return keys
