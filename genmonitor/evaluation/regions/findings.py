# SPDX-License-Identifier: Apache-2.0
"""Findings of an evaluation of regions: those that differ from real images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from genmonitor._formatting import format_error_ratio, format_p
from genmonitor.evaluation.regions.values import CONSTANT, IMAGE, P, RegionValues
from genmonitor.findings.finding import ALERT_RATIO, CLAIM, Area, Finding, differs, tested
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.partition import PixelPartition

UNTESTED = f"Too few images for a verdict: a test needs {MIN_SAMPLES} on each side."


@dataclass(frozen=True)
class RegionFindings:
    """Makes findings from the records of a run.

    Attributes:
        partition: Regions.
        values: Declarations of their values.
    """

    partition: PixelPartition
    values: RegionValues

    @classmethod
    def of(cls, partition: PixelPartition) -> RegionFindings:
        """Make it for the regions of a partition."""
        return cls(partition, RegionValues(partition.regions()))

    def find(self, records: Sequence[Mapping[str, float]]) -> tuple[Finding, ...]:
        """Return the verdict on the last record, then those on each region, the largest difference first.

        Args:
            records: One or more records, the oldest first.

        Example:
            >>> halves = PixelPartition.grid((4, 4), 1, 2)
            >>> fine = {"epoch": 0, "p_image": 0.3, "p_1": 0.4, "p_2": 0.5, "error_ratio_1": 1.0, "error_ratio_2": 1.0}
            >>> wrong = fine | {"epoch": 1, "p_2": 0.005, "error_ratio_2": 12.0}
            >>> print(RegionFindings.of(halves).find([fine, wrong])[0])
            cluster_2 (right half) differs from real images since epoch 1: error ratio 12 × (p = 0.005).
            >>> print(RegionFindings.of(halves).find([wrong, fine | {"epoch": 2}])[0])
            No evidence of a difference from real images in any region since epoch 2 (smallest p = 0.4).
        """
        last, tests = records[-1], self.values.p
        regions = [self._of_region(last, name) for name in self.ranked(last)]
        if any(tests[name] not in last for name in (IMAGE, *self.partition.regions())):
            return (Finding(UNTESTED, Area("the image", region=IMAGE), "", IMAGE), *regions)
        return (self._verdict(records), *regions)

    def ranked(self, record: Mapping[str, float]) -> list[str]:
        """Return the regions by their error ratio, the largest first, those that differ before the others."""
        ratio = self.values.error_ratio
        names = self.partition.regions()
        return sorted(names, key=lambda name: (not self._differs(record, name), -record.get(ratio[name], 0.0)))

    def far_worse(self, record: Mapping[str, float]) -> str | None:
        """Return the region that differs and is far worse than any other; None if there is none.

        Example:
            >>> halves = PixelPartition.grid((4, 4), 1, 2)
            >>> record = {"p_1": 0.001, "p_2": 0.001, "error_ratio_1": 4.0, "error_ratio_2": 9.5}
            >>> RegionFindings.of(halves).far_worse(record)
            'cluster_2'
            >>> RegionFindings.of(halves).far_worse(record | {"error_ratio_1": 9.0})
        """
        regions = self.partition.regions()
        compact = {x for x in regions if not self.partition.location(regions[x]).startswith("scattered")}
        names = [name for name in self.ranked(record) if name in compact - {CONSTANT}]
        if len(names) < 2 or not self._differs(record, names[0]):
            return None
        first, second = (max(record.get(self.values.error_ratio[name], 1.0), 1.0) for name in names[:2])
        return names[0] if first >= ALERT_RATIO * second else None

    def area(self, region: str) -> Area:
        """Return a region with its place in words."""
        label = self.partition.regions()[region]
        return Area(region, self.partition.location(label) if label else "pixels that never vary", region)

    def _verdict(self, records: Sequence[Mapping[str, float]]) -> Finding:
        last, p = records[-1], self.values.p
        subject = self._subject(last)

        def holds(record: Mapping[str, float]) -> bool:
            now = self._subject(record)
            if subject is None or subject == IMAGE or now is None:
                return now == subject
            return self._differs(record, subject)

        lasting = list(takewhile(holds, reversed(records)))
        since = lasting[-1].get("epoch") if len(records) > 1 else None
        when = "" if since is None else f" since epoch {since:g}"
        if when and since == records[0].get("epoch"):
            when = " at every evaluation so far"
        everything = Area("the image", region=IMAGE)
        if subject is None:
            smallest, of = last.get(P, 0.0), ""
            if smallest <= CLAIM:  # by another test, such as that for copies
                smallest, of = min(last[p[name]] for name in self.partition.regions()), "smallest "
            least = f"{of}{format_p(smallest)}"
            text = f"No evidence of a difference from real images in any region{when} ({least})."
            return Finding(text, everything, "", IMAGE, True, smallest, since)
        found = last[p[subject]]
        if subject == IMAGE:
            text = (
                f"Whole images differ from real ones{when} ({format_p(found)}), though there is no evidence of a "
                "difference in any one region."
            )
            return Finding(text, everything, "", IMAGE, False, found, since)
        area, measure = self.area(subject), self.values.error_ratio[subject]
        # the ratio of pixels that never vary is relative to the image's error and says little about them
        ratio = "" if subject == CONSTANT else f": error ratio {format_error_ratio(last[measure])}"
        text = f"{area} differs from real images{when}{ratio} ({format_p(found)}).{self._count(last)}"
        return Finding(text, area, "", measure, False, found, since)

    def _count(self, record: Mapping[str, float]) -> str:
        names = list(self.partition.regions())
        count = sum(self._differs(record, name) for name in names)
        if count == 1:
            return ""
        which = f"{count} of {len(names)}" if count < len(names) else "Both" if count == 2 else f"All {count}"
        return f" {which} regions differ."

    def _of_region(self, record: Mapping[str, float], region: str) -> Finding:
        area, key, p = self.area(region), self.values.error_ratio[region], record.get(self.values.p[region])
        if p is None:
            return Finding(f"{area}: not tested.", area, "not tested", key, detail=True)
        wrong = self._differs(record, region)
        verdict = tested(p, wrong)
        return Finding(f"{area}: {verdict}.", area, verdict, key, not wrong, p, detail=True)

    def _subject(self, record: Mapping[str, float]) -> str | None:
        """Return the region that differs most, or the image if no region does; None without evidence."""
        first = self.ranked(record)[0]
        if self._differs(record, first):
            return first
        return IMAGE if self._differs(record, IMAGE) else None

    def _differs(self, record: Mapping[str, float], region: str) -> bool:
        claims = record.get(P, 0.0) <= CLAIM  # of all tests together
        return claims and differs(record.get(self.values.p[region], 1.0))
