# SPDX-License-Identifier: Apache-2.0
"""Findings as data that all outputs show alike, and the levels of a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from genmonitor._formatting import format_p
from genmonitor._validation import check_fields
from genmonitor.functional.permutation import LEVEL

ALERT_RATIO = 1.25
"""Multiple of the best error ratio (at least 1) from which a region or samples are far worse; less is chance."""
MAX_PIXELS = 2**26
"""Largest number of pixels of a mask in a file."""
CLAIM = 0.02
"""Level of all that the findings of an evaluation claim, by the p-value of all its tests together."""


@dataclass(frozen=True)
class Area:
    """Subject of a finding: a region of the image, the whole image, a prompt or all samples.

    Attributes:
        name: Name, for example "cluster_2", "image" or "prompt 'a cat'".
        where: Place in words, such as "right half"; empty if it has none.
        region: Region of the partition; None for other areas.
        mask: Pixels of the area, bool [h, w]; None if unknown.
    """

    name: str
    where: str = ""
    region: str | None = None
    mask: Tensor | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault with the share of the distance that it explains.

    Attributes:
        name: Name, such as "blurred".
        strength: Strength in `unit`.
        unit: Unit in words, such as "px".
        share: Part of the distance that it explains, at most 1.
    """

    name: str
    strength: float
    unit: str
    share: float


@dataclass(frozen=True)
class Finding:
    """One result of an evaluation, in words and as data.

    Attributes:
        text: One or more sentences, the main one first.
        area: Subject of the finding.
        verdict: Finding in a few words, for the row of the area in a table; empty if another finding has it.
        measure: Key of the value whose curve and best `text` describes; None if there is none.
        fine: True if nothing is wrong; None if unknown.
        p: P-value; None if not tested.
        since: First epoch since which it holds without interruption; None if unknown.
        kinds: Kinds of fault, the one that explains most first.
        samples: Indices of samples that show it.
        as_of: Epoch of the diagnosis that found it; None for the evaluation itself.
        cause: Usual cause with its source, in sentences; empty if unknown.
        remedy: Advice against the cause; empty if unknown.
        detail: True if only tables show it, since another finding covers it.

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
    remedy: str = ""
    detail: bool = False

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain Python that JSON can hold."""
        area = {name: getattr(self.area, name) for name in ("name", "where", "region")}
        if self.area.mask is not None:
            area["mask"] = run_lengths(self.area.mask)
        kinds, samples = [asdict(kind) for kind in self.kinds], list(self.samples)
        return asdict(replace(self, area=Area(""))) | {"area": area, "kinds": kinds, "samples": samples}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Finding:
        """Make it from the result of `to_dict`.

        Raises:
            KeyError, TypeError: If the data has another form.
        """
        known = {x.name: saved[x.name] for x in fields(cls)}
        saved_area = dict(known["area"])
        mask = saved_area.pop("mask", None)
        area = check_fields(Area(**saved_area, mask=None if mask is None else from_run_lengths(mask)))
        kinds = tuple(check_fields(FaultKind(**kind)) for kind in known["kinds"])
        return check_fields(cls(**known | {"area": area, "kinds": kinds, "samples": tuple(known["samples"])}))


def headlines(findings: Sequence[Finding]) -> list[Finding]:
    """Return the few findings to show in full: the main one, and other faults or changes.

    Example:
        >>> area = Area("cluster_1")
        >>> dark = Finding("cluster_1 is too dark.", area, "", None, fine=False)
        >>> [str(x) for x in headlines([dark, Finding("cluster_1 differs.", area, "", None, fine=False, detail=True)])]
        ['cluster_1 is too dark.']
    """
    return [x for x in findings if not x.detail][:5]


def run_lengths(mask: Tensor) -> dict[str, list[int]]:
    """Return a mask as the lengths of its runs, row by row, beginning with false.

    Example:
        >>> run_lengths(torch.tensor([[False, True], [True, False]]))
        {'shape': [2, 2], 'runs': [1, 2, 1]}
    """
    runs = [(value, len(list(run))) for value, run in groupby(mask.flatten().tolist())]
    starts_true = bool(runs) and runs[0][0]
    return {"shape": list(mask.shape), "runs": [0] * starts_true + [length for _, length in runs]}


def from_run_lengths(saved: Mapping[str, Sequence[int]]) -> Tensor:
    """Return the mask from the result of `run_lengths`.

    Raises:
        ValueError: If the runs do not fill a mask of two dimensions, as in a file that was edited.
    """
    runs, (height, width) = list(saved["runs"]), saved["shape"]
    numbers = all(type(x) is int and x >= 0 for x in (height, width, *runs))
    if not numbers or sum(runs) != height * width or height * width > MAX_PIXELS:
        raise ValueError(f"Expected `runs` to fill a mask of {saved['shape']}, but got {runs!r:.60}.")
    return (
        (torch.arange(len(runs)) % 2 == 1).repeat_interleave(torch.tensor(runs, dtype=torch.long)).view(height, width)
    )


def overlap(mask: Tensor | None, other: Tensor | None) -> float:
    """Return the intersection over union of two masks; without both, 1 if both are None."""
    if mask is None or other is None or mask.shape != other.shape:
        return float(mask is other)
    return float((mask & other).sum() / (mask | other).sum().clamp_min(1))


def verdict_of(findings: Sequence[Finding], region: str) -> str:
    """Return all findings of a region in a few words.

    Example:
        >>> area = Area("cluster_1", region="cluster_1")
        >>> found = [Finding("", area, "differs (p = 0.01)", "p_1"), Finding("", area, "got worse", "distance_1")]
        >>> verdict_of(found, "cluster_1")
        'differs (p = 0.01), got worse'
    """
    return ", ".join(x.verdict for x in findings if x.area.region == region and x.verdict)


def differs(p: float) -> bool:
    """Return True if a p-value is significant."""
    return p <= LEVEL


def tested(p: float, differs: bool) -> str:
    """Return the verdict of a test with its p-value.

    Example:
        >>> tested(0.01, True)
        'differs (p = 0.01)'
    """
    return f"{'differs' if differs else 'no evidence of a difference'} ({format_p(p)})"
