# SPDX-License-Identifier: Apache-2.0
"""Findings of an evaluation of regions: which differ from real images, and which got worse or better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch

from genmonitor._formatting import format_error_ratio, format_p
from genmonitor.evaluation.findings import Area, Finding, differs, p_values_of_change, recovered
from genmonitor.evaluation.regions.values import CONSTANT, IMAGE, P, RegionValues
from genmonitor.functional.mmd_influence import MMDInfluence
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.functional.relative_similarity import check_comparable, relative_similarity_from_influences
from genmonitor.partition import PixelPartition

Records = Sequence[Mapping[str, float]]
UNTESTED = f"Too few images for a verdict: a test needs {MIN_SAMPLES} on each side."


@dataclass(frozen=True)
class RegionFindings:
    """Makes findings from the records of a run.

    Attributes:
        partition: the regions.
        values: their values.
    """

    partition: PixelPartition
    values: RegionValues

    @classmethod
    def of(cls, partition: PixelPartition) -> RegionFindings:
        """Make it for the regions of a partition."""
        return cls(partition, RegionValues(partition.regions()))

    def find(self, records: Records, best: Mapping[str, float] | None = None) -> tuple[Finding, ...]:
        """Return the verdict on the last record, then what was found of each region, those that differ most first.

        Args:
            records: one or more, the oldest first.
            best: epoch of the best evaluation of each region, which may be of another run; that of the smallest error
                ratio in the records by default.

        Example:
            >>> halves = PixelPartition.grid((4, 4), 1, 2)
            >>> fine = {"epoch": 0, "p_image": 0.3, "p_1": 0.4, "p_2": 0.5, "error_ratio_1": 1.0, "error_ratio_2": 1.0}
            >>> wrong = fine | {"epoch": 1, "p_2": 0.005, "error_ratio_2": 12.0}
            >>> print(RegionFindings.of(halves).find([fine, wrong])[0])
            cluster_2 (right half) differs from real images since epoch 1: error ratio 12 × (p = 0.005).
            >>> print(RegionFindings.of(halves).find([wrong, fine | {"epoch": 2}])[0])
            No evidence of a difference from real images in any region since epoch 2 (smallest p = 0.4).
        """
        ranked = self.ranked(records[-1])
        states = [self._state(records, name) for name in ranked]
        return (self._verdict(records, ranked), *states, *self._changes(records, ranked, best or {}))

    def ranked(self, record: Mapping[str, float]) -> list[str]:
        """Return the regions by their error ratio, the largest first, those that differ before the others."""
        ratio = self.values.error_ratio
        names = self.partition.regions()
        return sorted(names, key=lambda name: (not self._differs(record, name), -record.get(ratio[name], 0.0)))

    def most_different(self, record: Mapping[str, float]) -> str | None:
        """Return the region that differs most from real images; None where there is no evidence that one does."""
        first = self.ranked(record)[0]
        return first if self._differs(record, first) else None

    def scores(self, record: Mapping[str, float]) -> dict[str, float]:
        """Return by how many standard errors each region is better than at its best; nan where that is not known."""
        return {name: record.get(self.values.vs_best[name], math.nan) for name in self.partition.regions()}

    def got_worse(self, records: Records, region: str, best: Mapping[str, float]) -> Finding:
        """Return the finding that a region is farther from real images than at its best.

        Args:
            records: the last is the evaluation that is worse.
            region: its name.
            best: epoch of the best evaluation of each region.
        """
        last, key, area = records[-1], self.values.error_ratio[region], self.area(region)
        p = self._p_of_change(last, worse=True)[region]
        lasting = list(takewhile(lambda x: differs(self._p_of_change(x, worse=True)[region]), reversed(records)))
        since = lasting[-1]["epoch"] if len(lasting) > 1 else None
        epoch = best.get(region)
        if epoch is None:
            epoch = min((x for x in records[:-1] if key in x), key=lambda x: x[key])["epoch"]
        at_best = next((x[key] for x in records[:-1] if x.get("epoch") == epoch and key in x), None)
        then = "less" if at_best is None else format_error_ratio(at_best)
        text = (
            f"{area} got worse{'' if since is None else f' since epoch {since:g}'}: error ratio "
            f"{format_error_ratio(last[key])} at epoch {last['epoch']:g}, {then} at epoch {epoch:g}, its best "
            f"({format_p(p)})."
        )
        return Finding(text, area, f"worse than at its best ({format_p(p)})", key, False, p, since)

    def recovered(self, region: str) -> Finding:
        """Return the finding that a region which got worse is no longer far from its best: its alert is over."""
        return recovered(self.area(region), self.values.error_ratio[region])

    def area(self, region: str) -> Area:
        """Return a region with its place in words."""
        label = self.partition.regions()[region]
        return Area(region, self.partition.location(label) if label else "pixels that never vary", region)

    def _verdict(self, records: Records, ranked: Sequence[str]) -> Finding:
        last, everything = records[-1], Area("the image", region=IMAGE)
        p = self.values.p
        if any(p[name] not in last for name in (IMAGE, *ranked)):
            return Finding(UNTESTED, everything, "", IMAGE)
        worst = ranked[0]
        if self._claims(last) and self._differs(last, worst):
            since = self._since(records, lambda record: self._claims(record) and self._differs(record, worst))
            count = sum(self._differs(last, name) for name in ranked)
            of = f"{count} of {len(ranked)}" if count < len(ranked) else "Both" if count == 2 else f"All {count}"
            others = "" if count == 1 else f" {of} regions differ."
            # the ratio of pixels that never vary is of the image's error: it says little of them
            ratio = format_error_ratio(last[self.values.error_ratio[worst]])
            ratio = "" if worst == CONSTANT else f": error ratio {ratio}"
            text = (
                f"{self.area(worst)} differs from real images{_in_words(since, records)}{ratio} "
                f"({format_p(last[p[worst]])}).{others}"
            )
            return Finding(text, self.area(worst), "", self.values.error_ratio[worst], False, last[p[worst]], since)
        if self._claims(last) and differs(last[p[IMAGE]]):
            since = self._since(records, lambda record: self.most_different(record) is None)
            text = (
                f"Whole images differ from real ones{_in_words(since, records)} ({format_p(last[p[IMAGE]])}), though "
                "there is no evidence of a difference in any one region."
            )
            return Finding(text, everything, "", IMAGE, False, last[p[IMAGE]], since)
        since = self._since(records, lambda x: not self._finds(x))
        smallest = last.get(P, min(last[p[name]] for name in ranked))
        text = (
            f"No evidence of a difference from real images in any region{_in_words(since, records)} "
            f"({'' if P in last else 'smallest '}{format_p(smallest)})."
        )
        return Finding(text, everything, "", IMAGE, True, smallest, since)

    def _state(self, records: Records, region: str) -> Finding:
        last, area, key = records[-1], self.area(region), self.values.error_ratio[region]
        p = last.get(self.values.p[region])
        if p is None:
            return Finding(f"{area}: not tested.", area, "not tested", key, detail=True)
        if differs(p):
            since = self._since(records, lambda record: self._differs(record, region))
            text = f"{area} differs from real images{_in_words(since, records)} ({format_p(p)})."
            return Finding(text, area, f"differs ({format_p(p)})", key, False, p, since, detail=True)
        text = f"{area}: no evidence of a difference from real images ({format_p(p)})."
        return Finding(text, area, f"no evidence of a difference ({format_p(p)})", key, True, p, detail=True)

    def _changes(self, records: Records, ranked: Sequence[str], best: Mapping[str, float]) -> list[Finding]:
        """Return which regions are worse than at their best evaluation, or better than ever before."""
        last, found = records[-1], []
        worse, better = (self._p_of_change(last, worse=worse) for worse in (True, False))
        for name in ranked:
            if differs(worse[name]):
                found.append(self.got_worse(records, name, best))
            elif differs(better[name]):
                key, verdict = self.values.error_ratio[name], f"better than ever before ({format_p(better[name])})"
                text = f"{self.area(name)}: {verdict}: error ratio {format_error_ratio(last[key])}."
                found.append(Finding(text, self.area(name), verdict, key, None, better[name], detail=True))
        return found

    def _p_of_change(self, record: Mapping[str, float], *, worse: bool) -> dict[str, float]:
        """Return p-values of the regions' change from their best, 1 where there is none."""
        return p_values_of_change(self.scores(record), worse=worse)

    def _differs(self, record: Mapping[str, float], region: str) -> bool:
        return differs(record.get(self.values.p[region], 1.0))

    def _claims(self, record: Mapping[str, float]) -> bool:
        """Return True if the p-value of all tests together allows to call something wrong."""
        return differs(record.get(P, 0.0))

    def _finds(self, record: Mapping[str, float]) -> bool:
        found = self.most_different(record) is not None or differs(record.get(self.values.p[IMAGE], 0.0))
        return found and self._claims(record)

    def _since(self, records: Records, holds: Callable[[Mapping[str, float]], bool]) -> float | None:
        """Return the epoch since when something has held without a break; None where epochs are not known."""
        lasting = list(takewhile(holds, reversed(records)))
        return lasting[-1]["epoch"] if len(records) > 1 and "epoch" in lasting[-1] else None


def _in_words(since: float | None, records: Records) -> str:
    if since is None:
        return ""
    return " at every evaluation so far" if since == records[0].get("epoch") else f" since epoch {since:g}"


class BestSoFar:
    """Keeps the influences of each region's best evaluation: all that a later one needs to be compared with it.

    Attributes:
        epochs: of each region's best evaluation, that of the smallest error ratio.
        ratios: these error ratios.
    """

    def __init__(self) -> None:
        self._influence: MMDInfluence | None = None
        self.epochs: dict[str, float] = {}
        self.ratios: dict[str, float] = {}

    def scores(self, current: MMDInfluence) -> dict[str, float]:
        """Return by how many standard errors each region's distance is lower than at its best before; {} at first.

        Sample i of all evaluations has one seed, so samples are compared in pairs. nan where real images do not vary.
        """
        best = self._comparable(current)
        if best is None:
            return {}
        found = relative_similarity_from_influences(current, best, paired=True)
        return {
            name: float(test.difference / test.standard_error) if test.standard_error > 0 else math.nan
            for name, test in found.items()
        }

    def farther_by(self, ratios: Mapping[str, float], factor: float) -> set[str]:
        """Name the regions whose error ratio is so many times that of their best before, which counts as 1 at least."""
        return {name for name, best in self.ratios.items() if ratios[name] >= factor * max(best, 1.0)}

    def update(self, current: MMDInfluence, ratios: Mapping[str, float], epoch: float) -> None:
        """Take note of an evaluation; where it cannot be compared with those before, it is the first."""
        best = self._comparable(current)
        if best is None:
            self._influence, self.ratios = current, dict(ratios)
            self.epochs = dict.fromkeys(current.regions, epoch)
            return
        better = torch.tensor([ratios[name] < self.ratios[name] for name in current.regions])
        names = [name for name, yes in zip(current.regions, better.tolist(), strict=True) if yes]
        self.epochs |= dict.fromkeys(names, epoch)
        self.ratios |= {name: ratios[name] for name in names}
        rows = better[:, None]
        self._influence = best._replace(
            mmd=torch.where(better, current.mmd, best.mmd),
            fake=torch.where(rows, current.fake, best.fake),
            real=torch.where(rows, current.real, best.real),
            second_order=torch.where(better, current.second_order, best.second_order),
        )

    def _comparable(self, current: MMDInfluence) -> MMDInfluence | None:
        """Return the best if it was measured against the same thing, which a resumed run's encoder may change."""
        best = self._influence
        if best is None or best.fake.shape != current.fake.shape:
            return None
        try:
            check_comparable(current, best)
        except ValueError:
            return None
        return best

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only."""
        if self._influence is None:
            return {}
        influence = self._influence._asdict()
        influence |= {"regions": list(influence["regions"])}
        return {"influence": influence, "epochs": dict(self.epochs), "ratios": dict(self.ratios)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self._influence, self.epochs, self.ratios = None, {}, {}
        if state:
            self._influence = MMDInfluence(**state["influence"] | {"regions": tuple(state["influence"]["regions"])})
            self.epochs, self.ratios = dict(state["epochs"]), dict(state["ratios"])
