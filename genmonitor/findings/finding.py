# SPDX-License-Identifier: Apache-2.0
"""Findings as data that every door shows alike, and the levels from which on something differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from genmonitor._formatting import format_p
from genmonitor.functional.permutation import LEVEL

ALERT_RATIO = 1.25
"""Times its best error ratio, 1 at least, beyond which a region is far worse, or samples may be: less is chance."""
SELDOM = LEVEL / 5
"""Level of what a diagnosis looks for beside areas: strange samples, and real images that none is like."""


@dataclass(frozen=True)
class Area:
    """What a finding is about: a region of the image, the whole image, a prompt or all samples.

    Attributes:
        name: For example "cluster_2", "image" or "prompt 'a cat'".
        where: Place in words, such as "right half"; empty where that says nothing.
        region: The region of the partition; None where it is none.
        mask: Its pixels, bool [h, w]; None where they are not known.
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
        name: Such as "blurred".
        strength: In `unit`.
        unit: In words, such as "px".
        share: Part of the distance that it explains, 1 for all.
    """

    name: str
    strength: float
    unit: str
    share: float


@dataclass(frozen=True)
class Finding:
    """One thing that an evaluation found.

    Attributes:
        text: One or more sentences, the finding first.
        area: What it is about.
        verdict: The same in a few words, for the row of the area in a table; empty where another finding says it.
        measure: Key of the value that says how much, whose curve and best `text` speaks of; None for one without.
        fine: True if nothing is wrong; None where that is not known.
        p: P-value; None where nothing was tested.
        since: Epoch since when it has held without a break; None where that is not known.
        kinds: Kinds of fault, the one that explains most first.
        samples: Indices of samples that show it.
        as_of: Epoch of the diagnosis that found it; None where that is the evaluation itself.
        cause: What usually causes it, with the source, in a sentence; empty where none is known.
        detail: True if tables alone show it, since another finding says it in fewer words.

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
            KeyError, TypeError: If it is something else.
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
    return [x for x in findings if not x.detail][:5]


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


def tested(p: float) -> str:
    """Return the verdict of a test with its p-value.

    Example:
        >>> tested(0.01)
        'differs (p = 0.01)'
    """
    return f"{'differs' if differs(p) else 'no evidence of a difference'} ({format_p(p)})"
