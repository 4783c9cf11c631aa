# SPDX-License-Identifier: Apache-2.0
"""Tracker of the error ratio of each region, and of the readings of the best evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genmonitor._formatting import format_error_ratio, format_p
from genmonitor.evaluation.regions.values import IMAGE
from genmonitor.evaluation.tracker import Change, Tracker
from genmonitor.findings.finding import ALERT_RATIO, Area, Finding
from genmonitor.findings.values import Values
from genmonitor.functional.diagnosis.images import SAMPLES
from genmonitor.functional.diagnosis.readings import READINGS, Said, differing, read, usable_readings
from genmonitor.functional.relative_similarity import (
    MMDInfluence,
    check_comparable,
    relative_similarity_from_influences,
)
from genmonitor.partition import region_key


class Look(NamedTuple):
    """Readings of an evaluation compared with those of the best one before.

    Attributes:
        readings: Readings of the samples [N, R].
        finding: Finding of readings that are visibly worse; None if there are none.
    """

    readings: Tensor
    finding: Finding | None


class RegionTracker(Tracker):
    """Tracks the error ratio of image and regions, with the influences of the best evaluation of each.

    Sample i has the same seed at all evaluations, so samples are compared with those of the best in pairs.
    """

    quantity = "error ratio"
    better = "low"

    def __init__(self) -> None:
        super().__init__()
        self.influence: MMDInfluence | None = None
        self.readings: Tensor | None = None  # of the image's best evaluation

    def far(self, values: Values) -> list[str]:
        """Return the names of the regions that are 1.25 times as far as at their best, or as 1 if the best is lower."""
        return [x for x, best in self.best.items() if x != IMAGE and values[x] >= ALERT_RATIO * max(best, 1.0)]

    def written(self, value: float) -> str:
        """Return an error ratio as text."""
        return format_error_ratio(value)

    def verdict(self, change: Change) -> str:
        """Return the words for a change in a table."""
        return f"worse than at its best ({format_p(change.p)})"

    def scores(self, current: MMDInfluence) -> dict[str, float]:
        """Return the decrease of each distance from its best before, in standard errors; {} at first.

        It is nan, as 0 / 0, if real images do not vary.
        """
        if self.influence is None or not _comparable(current, self.influence):
            return {}
        found = relative_similarity_from_influences(current, self.influence, paired=True)
        return {name: float(test.difference / test.standard_error) for name, test in found.items()}

    def update(
        self, current: MMDInfluence, ratios: Values, scores: Values, epoch: float, readings: Tensor | None = None
    ) -> list[Change]:
        """Add an evaluation; return the regions that newly deserve an alert.

        If it is not comparable with those before, for example after a change of an encoder, it counts as the first.

        Args:
            current: Influences of the samples.
            ratios: Error ratios of image and regions.
            scores: Scores of the regions, as `scores` returned them.
            epoch: Epoch of the evaluation.
            readings: Readings of the samples, if any.
        """
        if self.influence is None or not _comparable(current, self.influence):
            self.best, self.epochs, self.influence = {}, {}, current
        improved = self.improved(ratios)
        self.influence = _replaced(self.influence, improved, current)
        if IMAGE in improved:
            self.readings = readings
        return self.track(ratios, scores, epoch)

    def look(self, fake: Tensor, real: Tensor, ratio: float, seed: int, aligned: bool = True) -> Look:
        """Compare the readings of samples with those of the best evaluation before.

        Args:
            fake: Generated images [N, C, H, W].
            real: Real images [M, C, H, W].
            ratio: Error ratio of the image.
            seed: Seed of the permutations.
            aligned: True if the same places of images can be compared.
        """
        low, span = float(real.min()), float(real.max() - real.min()) or 1.0
        readings = usable_readings(READINGS, real, aligned)
        now, target = (read(readings, (x[:500].float() - low) / span) for x in (fake, real))
        best = self.readings
        if best is None or best.shape[1] != now.shape[1] or not ratio > ALERT_RATIO * max(self.best[IMAGE], 1.0):
            return Look(now, None)
        middle = dict(zip((x.name for x in readings), target.median(0).values.tolist(), strict=True))
        # 0.001 for all readings together is the smallest p-value of 999 permutations
        changed = differing(readings, now, best, 0.001, seed)
        # a change in fewer images comes and goes while a generator learns
        worse = [x for x in changed if x.share >= 0.3 and _is_worse(x, middle[x.reading.name])]
        if not worse:
            return Look(now, None)
        said = "; ".join(x.beside("was") for x in worse)
        text = f"Visibly worse than at epoch {self.epochs[IMAGE]:g}, its best: {said}; {format_p(worse[0].p)}."
        samples = tuple(worse[0].order[:SAMPLES].tolist())
        ratio_key = region_key("error_ratio", IMAGE)
        return Look(now, Finding(text, Area("image"), "", ratio_key, fine=False, p=worse[0].p, samples=samples))

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain Python."""
        influence = None
        if self.influence is not None:
            influence = self.influence._asdict() | {"regions": list(self.influence.regions)}
        return super().state_dict() | {"influence": influence, "readings": self.readings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        super().load_state_dict(state)
        influence, self.readings = state["influence"], state["readings"]
        self.influence = None
        if influence is not None:
            self.influence = MMDInfluence(**influence | {"regions": tuple(influence["regions"])})


def _comparable(current: MMDInfluence, best: MMDInfluence) -> bool:
    """Return True if both were measured against the same real samples with the same kernel."""
    if best.fake.shape != current.fake.shape:
        return False
    try:
        check_comparable(current, best)
    except ValueError:
        return False
    return True


def _replaced(best: MMDInfluence, improved: Sequence[str], current: MMDInfluence) -> MMDInfluence:
    """Return influences in which improved regions have the current ones."""
    better = torch.tensor([name in improved for name in current.regions])
    taken: dict[str, Any] = {}
    for name in ("mmd", "fake", "real", "second_order"):
        now, before = getattr(current, name), getattr(best, name)
        taken[name] = torch.where(better if now.ndim == 1 else better[:, None], now, before)
    return best._replace(**taken)


def _is_worse(change: Said, target: float) -> bool:
    """Return True if a reading is visibly farther from that of real images than it was."""
    return abs(change.fake - target) >= abs(change.real - target) + change.reading.visible
