# SPDX-License-Identifier: Apache-2.0
"""Prompts in words: what is measured of each one's samples, and the finding that some became worse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from genmonitor._formatting import capitalized, format_p
from genmonitor.evaluation.findings import Area, Finding
from genmonitor.evaluation.prompts.estimates import Change, Estimate, PromptGroups
from genmonitor.evaluation.results import Record
from genmonitor.evaluation.values import ValueSpec

CURVES = 20
"""Prompts whose measure has a curve, the first ones."""
NAMED = 5
"""Further prompts that an alert names."""


@dataclass(frozen=True)
class PromptMeasure:
    """A measure of each prompt's samples, by which alerts go, and what they say.

    Attributes:
        name: its keys are `name_1`, `name_2` and so on.
        about: what it measures.
        chart: title of the chart of all prompts.
        better: whether the highest or the lowest value of a prompt is its best.
        verdict: what became of prompts that are worse; "{their}" stands for "its" where one prompt is judged alone.
        how: says how the samples of the worst are, up to the epoch of its best.
        value: of a prompt, as it is named after the worst.
        before_p: of the worst, in front of the p-value.
    """

    name: str
    about: str
    chart: str
    better: Literal["high", "low"]
    verdict: str
    how: Callable[[Change], str]
    value: Callable[[Change], str]
    before_p: Callable[[Change], str] = lambda _: ""

    def specs(self, groups: PromptGroups) -> dict[str, ValueSpec]:
        """Return the declaration of the value of each group that has a curve, by its name."""
        return {
            group: ValueSpec(
                f"{self.name}_{number}",
                self.about,
                f"{self.name} of {group}",
                chart=self.chart,
                better=self.better,
                detail=True,
            )
            for number, group in enumerate(groups.names[:CURVES], start=1)
        }

    def values(self, found: Mapping[str, Estimate], groups: PromptGroups) -> dict[str, float]:
        """Return the estimates that have a curve, by key."""
        return {spec.key: found[group].value for group, spec in self.specs(groups).items() if group in found}

    def findings(self, changes: Sequence[Change], record: Record, groups: PromptGroups) -> list[Finding]:
        """Return a finding about the prompts that became worse, none where none has.

        Args:
            changes: the prompts, the surest first.
            record: of the evaluation.
            groups: that are judged.
        """
        if not changes:
            return []
        first, specs = changes[0], self.specs(groups)
        their, the = ("its", "its") if groups.by_prompt else ("their", "the")
        area = Area(f"prompt {quoted(first.prompt)}" if groups.by_prompt else first.prompt)
        verdict = self.verdict.format(their=their)
        text = (
            f"{capitalized(area.name)} {verdict}: at epoch {record['epoch']:g} and the evaluation before, {the} "
            f"samples {self.how(first)} at epoch {first.epoch:g}, {their} best "
            f"({self.before_p(first)}{format_p(first.p)}){self._others(changes)}."
        )
        measure = specs[first.prompt].key if first.prompt in specs else None
        return [Finding(text, area, verdict, measure, False, first.p)]

    def _others(self, changes: Sequence[Change]) -> str:
        """Name the prompts after the first, with a value each; "" where there are none."""
        if len(changes) < 2:
            return ""
        some = [f"{quoted(change.prompt)} ({self.value(change)})" for change in changes[1 : NAMED + 1]]
        more = f" and {len(changes) - 1 - NAMED} more" if len(changes) > NAMED + 1 else ""
        return f"; so did {', '.join(some)}{more}"


def quoted(prompt: object) -> str:
    """Return a prompt in quotes, cut where it is long."""
    # repr, since what a prompt holds must not move a terminal's cursor
    text = str(prompt)
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
