# SPDX-License-Identifier: Apache-2.0
"""Findings of an evaluation of regions: which differ from real images, and which got worse or better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch

from genmonitor._formatting import format_distance, format_p, format_ratio
from genmonitor.evaluation.findings import Area, Finding, differs, p_values_of_change, recovered
from genmonitor.evaluation.regions.values import CONSTANT, IMAGE, RegionValues
from genmonitor.functional.mmd_influence import MMDInfluence
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.functional.relative_similarity import check_comparable, relative_similarity_from_influences
from genmonitor.partition import PixelPartition

Records = Sequence[Mapping[str, float]]
BY_CHANCE = 2.0
"""Distances up to it, in standard deviations of chance, are what real images have in place of generated ones."""
UNTESTED = f"Too few images for a verdict: a test needs {MIN_SAMPLES} on each side."

LEAST_BEST = 2.0
"""Standard deviations of chance as which a best value below them counts: less cannot be told from real images."""


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
            best: epoch of the best evaluation of each distance, by key, which may be of another run; that of the
                smallest in the records by default.

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
        """Return the regions, those that differ most first.

        Of regions with one p-value, such as the smallest that the permutations allow, the larger error ratio is first.
        """
        p, ratio = self.values.p, self.values.error_ratio
        names = self.partition.regions()
        return sorted(names, key=lambda name: (record.get(p[name], 1.0), -record.get(ratio[name], 0.0)))

    def most_different(self, record: Mapping[str, float]) -> str | None:
        """Return the region that differs most from real images; None where there is no evidence that one does."""
        first = self.ranked(record)[0]
        return first if self._differs(record, first) else None

    def scores(self, record: Mapping[str, float]) -> dict[str, float]:
        """Return by how many standard errors each distance is better than at its best, by key; nan where not known."""
        return {
            key: record.get(self.values.vs_best[view][name], math.nan)
            for view, keys in self.values.distance.items()
            for name, key in keys.items()
            if name != IMAGE
        }

    def got_worse(self, records: Records, region: str, best: Mapping[str, float]) -> Finding:
        """Return the finding that a region is farther from real images than at its best, in one view or both.

        Args:
            records: the last is the evaluation that is worse.
            region: its name.
            best: epoch of the best evaluation of each distance, by key.
        """
        last, p, area = records[-1], self._p_of_change(records[-1], worse=True), self.area(region)
        keys = {view: of[region] for view, of in self.values.distance.items()}
        worse = sorted((view for view in keys if differs(p[keys[view]])), key=lambda view: p[keys[view]])
        first = keys[worse[0]]
        lasting = list(takewhile(lambda x: differs(self._p_of_change(x, worse=True)[first]), reversed(records)))
        since = lasting[-1]["epoch"] if len(lasting) > 1 else None
        changes = [f"{view} {self._change(records, keys[view], best)} ({format_p(p[keys[view]])})" for view in worse]
        text = (
            f"{area} got worse{'' if since is None else f' since epoch {since:g}'}, distance at epoch "
            f"{last['epoch']:g}: {', '.join(changes)}."
        )
        verdict = (
            f"{' and '.join(worse)} worse than at {'its' if len(worse) == 1 else 'their'} best ({format_p(p[first])})"
        )
        return Finding(text, area, verdict, first, False, p[first], since)

    def recovered(self, region: str) -> Finding:
        """Return the finding that a region which got worse is no longer far from its best: its alert is over."""
        return recovered(self.area(region), next(iter(self.values.distance.values()))[region])

    def _change(self, records: Records, key: str, best: Mapping[str, float]) -> str:
        """Return a distance and its best in words; the best of the records where another run's is not known."""
        epoch = best.get(key)
        if epoch is None:
            epoch = min((x for x in records[:-1] if key in x), key=lambda x: x[key])["epoch"]
        at_best = next((x[key] for x in records[:-1] if x.get("epoch") == epoch and key in x), None)
        then = "less" if at_best is None else format_distance(at_best) if at_best > BY_CHANCE else "within chance"
        return f"{format_distance(records[-1][key])}, at its best {then} at epoch {epoch:g}"

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
        if self._differs(last, worst):
            since = self._since(records, lambda record: self._differs(record, worst))
            count = sum(self._differs(last, name) for name in ranked)
            of = f"{count} of {len(ranked)}" if count < len(ranked) else "Both" if count == 2 else f"All {count}"
            others = "" if count == 1 else f" {of} regions differ."
            # the ratio of pixels that never vary is of the image's error: it says little of them
            ratio = "" if worst == CONSTANT else f": error ratio {format_ratio(last[self.values.error_ratio[worst]])}"
            text = (
                f"{self.area(worst)} differs from real images{_in_words(since, records)}{ratio} "
                f"({format_p(last[p[worst]])}).{others}"
            )
            return Finding(text, self.area(worst), "", self.values.error_ratio[worst], False, last[p[worst]], since)
        if differs(last[p[IMAGE]]):
            since = self._since(records, lambda record: self.most_different(record) is None)
            text = (
                f"Whole images differ from real ones{_in_words(since, records)} ({format_p(last[p[IMAGE]])}), though "
                "there is no evidence of a difference in any one region."
            )
            return Finding(text, everything, "", IMAGE, False, last[p[IMAGE]], since)
        since = self._since(records, lambda x: self.most_different(x) is None and not differs(x.get(p[IMAGE], 0.0)))
        smallest = last[p[worst]]
        text = (
            f"No evidence of a difference from real images in any region{_in_words(since, records)} (smallest "
            f"{format_p(smallest)})."
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
            keys = {view: of[name] for view, of in self.values.distance.items()}
            if any(differs(worse[key]) for key in keys.values()):
                found.append(self.got_worse(records, name, best))
            for view in (view for view, key in keys.items() if differs(better[key])):
                key, verdict = keys[view], f"{view} better than ever before ({format_p(better[keys[view]])})"
                text = f"{self.area(name)}: {verdict}: distance from real images {format_distance(last[key])}."
                found.append(Finding(text, self.area(name), verdict, key, None, better[key], detail=True))
        return found

    def _p_of_change(self, record: Mapping[str, float], *, worse: bool) -> dict[str, float]:
        """Return p-values of the distances' change from their best, by key, 1 where there is none."""
        return p_values_of_change(self.scores(record), worse=worse)

    def _differs(self, record: Mapping[str, float], region: str) -> bool:
        return differs(record.get(self.values.p[region], 1.0))

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
        epochs: of each region's best evaluation.
    """

    def __init__(self) -> None:
        self._influence: MMDInfluence | None = None
        self.epochs: dict[str, float] = {}

    def scores(self, current: MMDInfluence) -> dict[str, float]:
        """Return by how many standard errors each region's MMD² is lower than at its best before; {} at first.

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

    def farther_by(self, current: MMDInfluence, factor: float) -> set[str]:
        """Name the regions whose MMD² is so many times that of their best before, at one of the kernel's gammas.

        What was as near to real images as these are to each other counts as far from them as chance may bring it.

        The mean over gammas alone would hide faults of a generator that is far from real images: under noise in all
        pixels the narrow Gaussians are so far off that the mean hardly moves, and the wide ones see the rest.
        """
        best = self._comparable(current)
        if best is None:
            return set()
        least = LEAST_BEST * best.by_chance
        farther = (current.by_gamma >= factor * torch.maximum(best.by_gamma, least)).any(1)
        return {name for name, yes in zip(current.regions, farther.tolist(), strict=True) if yes}

    def update(self, current: MMDInfluence, epoch: float) -> None:
        """Take note of an evaluation; where it cannot be compared with those before, it is the first."""
        best = self._comparable(current)
        if best is None:
            self._influence, self.epochs = current, dict.fromkeys(current.regions, epoch)
            return
        better = current.mmd < best.mmd
        self.epochs |= {name: epoch for name, yes in zip(current.regions, better.tolist(), strict=True) if yes}
        rows = better[:, None]
        self._influence = best._replace(
            mmd=torch.where(better, current.mmd, best.mmd),
            fake=torch.where(rows, current.fake, best.fake),
            real=torch.where(rows, current.real, best.real),
            second_order=torch.where(better, current.second_order, best.second_order),
            by_gamma=torch.where(rows, current.by_gamma, best.by_gamma),
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
        return {"influence": influence | {"regions": list(influence["regions"])}, "epochs": dict(self.epochs)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self._influence, self.epochs = None, {}
        if state:
            self._influence = MMDInfluence(**state["influence"] | {"regions": tuple(state["influence"]["regions"])})
            self.epochs = dict(state["epochs"])
