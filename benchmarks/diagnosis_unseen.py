# SPDX-License-Identifier: Apache-2.0
"""What `diagnose` and `compare` say of images that no choice of the package was made on, with a fault or without one.

make unseen-images                             # digits, emoji, sprites, flags, icons, letters and photographs, once
python benchmarks/diagnosis_unseen.py [SET …]  # an hour on two cores; prints a row for each fault and a summary

A first line is right if one of its kinds is the planted one, of two faults both; acceptable if a kind, a kind after
"or", or one of the readings that are said, is one that a person would name; wrong if its kind is another one. All else
names nothing: it says other readings, or that no simple fault explains it.
"""

from __future__ import annotations

import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from diagnosis_map import overlap, peak_of
from diagnosis_unseen_faults import BLIND_FAULTS, FAULTS, Fault, within
from diagnosis_unseen_images import BLIND, FIRST, LATER, images_of
from torch import Tensor

from genmonitor import PixelPartition, compare, diagnose
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.diagnosis import Diagnosis

N = 300
NOTHING = {"photographs": 100, "letters": 50, "flags": 50}
"""Comparisons of real images with others of the same set."""


class Row(NamedTuple):
    """What was said of a fault, or of none."""

    of_set: str
    fault: str
    verdict: str
    text: str
    has_kind: bool
    share: float
    modes: bool
    peak_inside: bool | None
    overlap: float
    seconds: float


def verdict(fault: Fault, found: Diagnosis) -> str:
    """Say what the first line of a diagnosis is worth."""
    finding = found.findings[0]
    kinds, text = [kind.name for kind in finding.kinds], str(finding)
    if kinds and set(fault.right) & set(kinds) and (len(fault.right) == 1 or len(kinds) > 1):
        return "right"
    if kinds:
        area = found.areas.get(finding.area.name)
        rivals = area.explained.rivals if area and area.explained else ()
        said = {*kinds, *(model.named(strength)[0] for ((model, strength),) in rivals)}
        return "acceptable" if {*fault.acceptable, *fault.right} & said else "wrong"
    if finding.fine is not False:
        return "missed"
    says = ", real " in text or "Hardly ever" in text
    return "acceptable" if says and re.search(fault.words, text.split(" Nearest kind")[0]) else "no name"


def drawn(fault: Fault, of_set: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw generated images, with a fault, and real ones."""
    images, classes = images_of(of_set)
    n = min(N, len(images) // 2)
    order = torch.randperm(len(images), generator=generator)
    rest = order[n:] if fault.classes != (1, 1) else order[n : 2 * n]
    kept = torch.where(classes[rest] == 0, *fault.classes) > torch.rand(len(rest), generator=generator)
    return fault.spoil(images[rest[kept][:n]].clone(), generator), images[order[:n]]


def faulty_row(of_set: str, name: str) -> Row:
    """Diagnose a fault."""
    torch.set_num_threads(1)
    fault = (FAULTS if of_set in FIRST else BLIND_FAULTS)[name]
    fake, real = drawn(fault, of_set, torch.Generator().manual_seed(zlib.crc32(f"{of_set} {name}".encode())))
    start = time.process_time()
    found = diagnose(fake=fake, real=real, skip_failing=True)
    seconds, first = time.process_time() - start, found.findings[0]
    true = np.zeros(real.shape[2:], dtype=bool)
    if fault.place:
        true[within(fault.place, real)] = True
    mask = np.zeros_like(true) if first.area.mask is None else first.area.mask.cpu().numpy()
    return Row(
        of_set,
        name,
        verdict(fault, found),
        str(first),
        bool(fault.right),
        sum(kind.share for kind in first.kinds),
        any(kind.name == "modes" for kind in first.kinds),
        bool(true[peak_of(found.map["map"].cpu().numpy())]) if fault.place and found.map else None,
        overlap(mask, true),
        seconds,
    )


def fine_row(of_set: str, seed: int) -> tuple[str, str, float]:
    """Compare real images with others: first lines of `diagnose` and `compare` that claim something, and p."""
    torch.set_num_threads(1)
    images, _ = images_of(of_set)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1000 + seed))
    n = min(N, len(images) // 2)
    first = diagnose(fake=images[order[:n]], real=images[order[n : 2 * n]], skip_failing=True).findings[0]
    part = min(N, len(images) // 3)
    quarters = RegionSettings(partition=PixelPartition.grid(tuple(images.shape[2:]), rows=2, columns=2))
    compared = compare(fake=images[order[:part]], real=images[order[part:]], settings=quarters)
    said = [str(x) if x.fine is False else "" for x in (first, compared.findings[0])]
    return said[0], said[1], compared.values["p"]


def wilson(count: int, of: int, z: float = 1.96) -> str:
    """Say a share with its 95 % bounds by Wilson."""
    of = max(1, of)
    p = count / of
    middle, half = p + z * z / (2 * of), z * np.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = ((middle + side * half) / (1 + z * z / of) for side in (-1, 1))
    return f"{count} of {of}: {100 * p:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"


def summary(rows: Sequence[Row]) -> Iterable[str]:
    """Yield the lines of the table of all faults."""
    faulty = [row for row in rows if row.fault != "nothing"]
    for name, of in {"all": faulty, "no kind": [x for x in faulty if not x.has_kind]}.items():
        counts = Counter(row.verdict for row in of)
        yield f"| {name}: right or acceptable | {wilson(counts['right'] + counts['acceptable'], len(of))} |"
        for word in ("right", "acceptable", "no name", "missed", "wrong"):
            yield f"| {name}: {word} | {wilson(counts[word], len(of))} |"
    sure = [row for row in faulty if row.share >= 0.85]
    yield f"| share of 85 % or more: wrong | {wilson(sum(row.verdict == 'wrong' for row in sure), len(sure))} |"
    modes = [row for row in rows if row.modes]
    yield f"| wrong proportions said: true | {sum(row.verdict == 'right' for row in modes)} of {len(modes)} |"
    places = [row for row in faulty if row.peak_inside is not None]
    yield f"| peak of the map inside the place | {wilson(sum(bool(x.peak_inside) for x in places), len(places))} |"
    yield f"| overlap with the place at least 0.5 | {wilson(sum(x.overlap >= 0.5 for x in places), len(places))} |"
    seconds = [row.seconds for row in rows]
    yield f"| CPU seconds of a diagnosis | median {np.median(seconds):.1f}, most {max(seconds):.1f} |"


def tasks(sets: Iterable[str]) -> list[tuple[str, str]]:
    """Return each set with each fault that can be planted in it."""
    out = []
    for of_set in sets:
        gray = images_of(of_set)[0].shape[1] == 1
        faults = FAULTS if of_set in FIRST else BLIND_FAULTS
        out += [(of_set, x) for x, y in faults.items() if of_set not in y.leaves_out and not (y.color and gray)]
    return out


def main() -> None:
    """Print the tables."""
    sets = sys.argv[1:] or [*FIRST, *BLIND, *LATER]
    with ProcessPoolExecutor(2) as pool:
        rows = []
        print("| set | fault | first line | verdict |\n| --- | --- | --- | --- |")
        for row in pool.map(faulty_row, *zip(*tasks(sets), strict=True)):
            rows.append(row)
            print(f"| {row.of_set} | {row.fault} | {row.text} | {row.verdict} |", flush=True)
        print("\n| what | count |\n| --- | --- |", *summary(rows), sep="\n")
        nothing = [(name, seed) for name in sets for seed in range(NOTHING.get(name, 0))]
        fine = list(pool.map(fine_row, *zip(*nothing, strict=True))) if nothing else []
    for what, wrong in {
        "`diagnose` claims something": [first for first, _, _ in fine if first],
        "`compare` claims something": [second for _, second, _ in fine if second],
        "`compare` has p < 0.05": [p for _, _, p in fine if p < 0.05],
    }.items():
        print(f"| nothing wrong: {what} | {wilson(len(wrong), len(fine))} |") if fine else None


if __name__ == "__main__":
    main()
