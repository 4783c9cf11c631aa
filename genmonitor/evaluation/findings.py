# SPDX-License-Identifier: Apache-2.0
"""Findings as data that every door shows alike, and the levels from which on something differs or got worse."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from genmonitor._formatting import capitalized
from genmonitor.functional.permutation import LEVEL
from genmonitor.functional.relative_similarity import holm

HEADLINES = 5
"""Findings that are given in full at most."""

SELDOM = LEVEL / 5
"""Level of what a diagnosis looks for beside areas: sizes of detail, strange samples, real images that none is like."""

ALERT_LEVEL = 0.002
"""The level of each of the two evaluations that an alert needs; `benchmarks/detection.py` says what comes of it."""
EVALUATIONS_BELOW = 2
ALERT_FACTOR = 2.0
"""How many times the squared distance of its best evaluation a prompt has that deserves an alert, however sure."""
ALERT_RATIO = 1.25
"""How many times its best error ratio, 1 at least, a region has that deserves an alert, however sure the change."""


@dataclass(frozen=True)
class Area:
    """What a finding is about: a region of the image, the whole image, a prompt or all samples.

    Attributes:
        name: for example "cluster_2", "image" or "prompt 'a cat'".
        where: place in words, such as "right half"; empty where that says nothing.
        region: the region of the partition; None where it is none.
        mask: its pixels, bool [h, w]; None where they are not known.
    """

    name: str
    where: str = ""
    region: str | None = None
    mask: Tensor | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault, and how much of the distance it explains.

    Attributes:
        name: such as "blurred".
        strength: in `unit`.
        unit: in words, such as "px".
        share: part of the distance that it explains, 1 for all.
    """

    name: str
    strength: float
    unit: str
    share: float


@dataclass(frozen=True)
class Finding:
    """One thing that an evaluation found.

    Attributes:
        text: one or more sentences, the finding first.
        area: what it is about.
        verdict: the same in a few words, for the row of the area in a table; empty where another finding says it.
        measure: key of the value that says how much, whose curve and best `text` speaks of; None for one without.
        fine: whether nothing is wrong; None where that is not known.
        p: p-value; None where nothing was tested.
        since: epoch since when it has held without a break; None where that is not known.
        kinds: kinds of fault, the one that explains most first.
        samples: indices of samples that show it.
        as_of: epoch of the diagnosis that found it; None where that is the evaluation itself.
        cause: what usually causes it, with the source, in a sentence; empty where none is known.
        detail: whether tables alone show it, since another finding says it in fewer words.

    Example:
        >>> finding = Finding("The left half is too dark.", Area("left half"), "too dark", "brightness_1", fine=False)
        >>> Finding.from_dict(finding.to_dict()) == finding
        True
    """

    text: str
    area: Area
    verdict: str
    measure: str | None
    fine: bool | None = None
    p: float | None = None
    since: float | None = None
    kinds: tuple[FaultKind, ...] = ()
    samples: tuple[int, ...] = ()
    as_of: float | None = None
    cause: str = ""
    detail: bool = False

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python that JSON can hold."""
        area = {name: getattr(self.area, name) for name in ("name", "where", "region")}
        if self.area.mask is not None:
            area["mask"] = run_lengths(self.area.mask)
        kinds, samples = [asdict(kind) for kind in self.kinds], list(self.samples)
        return asdict(replace(self, area=Area(""))) | {"area": area, "kinds": kinds, "samples": samples}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Finding:
        """Make it from what `to_dict` returned.

        Raises:
            KeyError, TypeError: if it is something else.
        """
        known = {x.name: saved[x.name] for x in fields(cls)}
        saved_area = dict(known["area"])
        mask = saved_area.pop("mask", None)
        area = Area(**saved_area, mask=None if mask is None else from_run_lengths(mask))
        kinds = tuple(FaultKind(**kind) for kind in known["kinds"])
        return cls(**known | {"area": area, "kinds": kinds, "samples": tuple(known["samples"])})


def headlines(findings: Sequence[Finding]) -> list[Finding]:
    """Return the few findings that are given in full: what to look at first, and what else is wrong or has changed.

    Example:
        >>> area = Area("cluster_1")
        >>> dark = Finding("cluster_1 is too dark.", area, "", None, fine=False)
        >>> [str(x) for x in headlines([dark, Finding("cluster_1 differs.", area, "", None, fine=False, detail=True)])]
        ['cluster_1 is too dark.']
    """
    return [x for x in findings if not x.detail][:HEADLINES]


def run_lengths(mask: Tensor) -> dict[str, list[int]]:
    """Return a mask as the lengths of its runs, row by row, that of false first.

    Example:
        >>> run_lengths(torch.tensor([[False, True], [True, False]]))
        {'shape': [2, 2], 'runs': [1, 2, 1]}
    """
    runs = [(value, len(list(run))) for value, run in groupby(mask.flatten().tolist())]
    starts_true = bool(runs) and runs[0][0]
    return {"shape": list(mask.shape), "runs": [0] * starts_true + [length for _, length in runs]}


def from_run_lengths(saved: Mapping[str, Sequence[int]]) -> Tensor:
    """Return the mask that `run_lengths` was given."""
    runs = torch.tensor(saved["runs"])
    return (torch.arange(len(runs)) % 2 == 1).repeat_interleave(runs).view(*saved["shape"])


def verdict_of(findings: Sequence[Finding], region: str) -> str:
    """Return all that was found of a region in a few words.

    Example:
        >>> area = Area("cluster_1", region="cluster_1")
        >>> found = [Finding("", area, "differs (p = 0.01)", "p_1"), Finding("", area, "got worse", "distance_1")]
        >>> verdict_of(found, "cluster_1")
        'differs (p = 0.01), got worse'
    """
    return ", ".join(x.verdict for x in findings if x.area.region == region and x.verdict)


def differs(p: float) -> bool:
    """Return True if a p-value is at the level of a verdict."""
    return p <= LEVEL


def p_values_of_change(scores: Mapping[str, float], *, worse: bool) -> dict[str, float]:
    """Return how likely each change for the worse (or the better) is by chance, for all of them together (Holm).

    Args:
        scores: by how many standard errors each is better than at its best; nan where nothing is known.
        worse: what to test for.

    Example:
        >>> found = p_values_of_change({"cluster_1": -3.0, "cluster_2": 0.0}, worse=True)
        >>> {name: round(p, 4) for name, p in found.items()}
        {'cluster_1': 0.0027, 'cluster_2': 0.5}
    """
    known = {name: NormalDist().cdf(z if worse else -z) for name, z in scores.items() if not math.isnan(z)}
    p = torch.tensor(list(known.values()), dtype=torch.float64)
    adjusted = holm(p, torch.ones_like(p, dtype=torch.bool)).tolist()
    return dict.fromkeys(scores, 1.0) | dict(zip(known, adjusted, strict=True))


def recovered(area: Area, measure: str | None) -> Finding:
    """Return the finding that what was far worse than at its best no longer is: its alert is over."""
    text = f"{capitalized(str(area))}: recovered, no longer far worse than at its best."
    return Finding(text, area, "recovered", measure, fine=True)


class DegradationDetector:
    """Names what is far worse than at its best at two evaluations in a row, each once until it recovers.

    Attributes:
        recovered: names that were far worse until the last evaluation, and no longer are.

    Example:
        >>> detector = DegradationDetector()
        >>> [detector.update({"cluster_1": z}, far=["cluster_1"]) for z in (0.3, -9.0, -9.0, -9.0, 0.1)]
        [[], [], ['cluster_1'], [], []]
    """

    def __init__(self) -> None:
        self.below: dict[str, int] = {}
        self.recovered: list[str] = []

    def update(self, scores: Mapping[str, float], far: Collection[str]) -> list[str]:
        """Take in one evaluation; return the names that are far worse from now on.

        Args:
            scores: as for `p_values_of_change`.
            far: those whose change is large enough to deserve an alert.
        """
        degraded, standing = [], self.standing()
        for name, p in p_values_of_change(scores, worse=True).items():
            self.below[name] = self.below.get(name, 0) + 1 if p <= ALERT_LEVEL and name in far else 0
            if self.below[name] == EVALUATIONS_BELOW:
                degraded.append(name)
        self.recovered = [name for name in standing if not self.below[name]]
        return degraded

    def standing(self) -> list[str]:
        """Return the names that are far worse at the last evaluation and the one before, whenever they were named."""
        return [name for name, count in self.below.items() if count >= EVALUATIONS_BELOW]

    def state_dict(self) -> dict[str, int]:
        """Return plain Python only."""
        return dict(self.below)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Take over a saved state."""
        self.below = dict(state)
