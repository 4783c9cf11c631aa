# SPDX-License-Identifier: Apache-2.0
"""Kinds that `diagnosis.py` names for faults that were planted in real images, or trained into generators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from diagnosis_faults import KINDS, OTHERS, Fault, missing_class, planted, random_area, wrong_proportions
from diagnosis_generators import GENERATORS, HELD_OUT, samples
from diagnosis_images import SETS, generator_of, image_set
from diagnosis_map import N, overlap, sets_for
from diagnosis_peers import benjamini_hochberg, fidelity, pixel_p_values
from torch import Tensor

from genmonitor import compare, diagnose
from genmonitor._place_names import describe_place
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.diagnosed_areas import MOSTLY_ALL
from genmonitor.findings.finding import FaultKind, Finding
from genmonitor.functional.diagnosis.area import diagnose_area, distance_around
from genmonitor.functional.diagnosis.images import Images
from genmonitor.functional.discrepancy_map import discrepancy_map, significant_areas

WITH_CLASSES = ("digits", "clothes", "faces", "scenes")
AS_GOOD = 0.9
"""Share from which another kind describes the images as well: where all is black, clipping is brightness."""
MODES = (0.5, 0.8, 1.0)
"""How much of one class is missing."""
PROPORTIONS = ("one class is missing", "one class is half", "half of the classes are missing")
"""What is wrong with proportions alone."""


@dataclass(frozen=True)
class Said:
    """Findings of images: the one that explains most, and the kinds of all findings in their order."""

    first: Finding | None
    kinds: tuple[FaultKind, ...]

    @classmethod
    def of(cls, fake: Tensor, real: Tensor, seed: int = 0) -> Said:
        """Diagnose images."""
        findings = diagnose(fake=fake, real=real, seed=seed).findings
        return cls(findings[0] if findings else None, tuple(kind for x in findings for kind in x.kinds))

    @property
    def name(self) -> str:
        """Of the first kind of the first finding."""
        return self.first.kinds[0].name if self.first is not None and self.first.kinds else "no simple fault"

    @property
    def seen(self) -> bool:
        """Whether anything is found beyond chance."""
        return self.first is not None and not self.first.fine

    def as_good(self, right: bool) -> bool:
        """Whether another kind is named first that explains nearly all there is."""
        return not right and self.first is not None and sum(kind.share for kind in self.first.kinds) >= AS_GOOD

    def overlap(self, true: Tensor) -> float:
        """Return how far the first finding's area is the true one."""
        mask = None if self.first is None else self.first.area.mask
        return 0.0 if mask is None else overlap(mask.cpu().numpy(), true.numpy())


@dataclass(frozen=True)
class Outcome:
    """What came of one run: the right kind, another that explains as much, or nothing that is beyond chance."""

    right: bool
    as_good: bool
    seen: bool
    name: str
    error: float | None
    share: float | None
    overlap: float


def outcome(said: Said, fault: Fault, s: float, true: Tensor) -> Outcome:
    """Compare what is said with what was planted."""
    right = said.name in fault.names
    first = said.kinds[0] if right else None
    error = abs(abs(first.strength) - s) / s if first is not None and said.name == fault.names[0] else None
    share = first.share if first else None
    return Outcome(right, said.as_good(right), said.seen, said.name, error, share, said.overlap(true))


def faulty_runs(name: str, s: float, of_set: str, runs: int, local: bool) -> list[Outcome]:
    """Plant a fault in whole images, or in an area that is another one in each run."""
    fault, generator, out = (KINDS | OTHERS)[name], generator_of(name, s, of_set, local), []
    for run in range(runs):
        fake, real = image_set(of_set).draw(N, generator)
        height, width = fake.shape[2:]
        true = random_area(height, width, generator) if local else torch.ones(height, width, dtype=torch.bool)
        out.append(outcome(Said.of(planted(fault, fake, s, true, run), real, run), fault, s, true))
    return out


def modes_runs(share: float, of_set: str, runs: int) -> list[Outcome]:
    """Leave out so much of a class."""
    generator, out = generator_of("modes", share, of_set), []
    for run in range(runs):
        fake, real = missing_class(image_set(of_set), share, N, generator)
        said = Said.of(fake, real, run)
        right, explained = said.name == "modes", said.kinds[0].share if said.kinds else None
        out.append(Outcome(right, said.as_good(right), said.seen, said.name, None, explained, 1.0))
    return out


def kind_row(name: str, level: int, runs: int, local: bool) -> list[str]:
    """Return a row of the table of kinds: in what part of the runs of each set the right one is named first."""
    if name == "modes":
        s, by_set = MODES[level], {x: modes_runs(MODES[level], x, runs) for x in WITH_CLASSES}
    else:
        fault = (KINDS | OTHERS)[name]
        s, fitting = (
            fault.strengths[level],
            [x for x in SETS if not fault.color or x in ("faces", "scenes", "photographs")],
        )
        by_set = {of_set: faulty_runs(name, s, of_set, runs, local) for of_set in fitting}
    every = [x for outcomes in by_set.values() for x in outcomes]
    cells = [f"{np.mean([x.right for x in by_set[y]]):.2f}" if y in by_set else "" for y in SETS]
    wrong = Counter(x.name for x in every if not x.right).most_common(2)
    seen = [x for x in every if x.seen]
    return [
        f"{name} {s:g}",
        f"{np.mean([x.right for x in every]):.2f}",
        f"{np.mean([x.right for x in seen]):.2f}" if seen else "",
        f"{np.mean([x.right or x.as_good for x in seen]):.2f}" if seen else "",
        *cells,
        middle(x.error for x in every),
        middle(x.share for x in every),
        f"{median(x.overlap for x in every):.2f}",
        ", ".join(f"{other} ({count})" for other, count in wrong),
    ]


def middle(values: Iterable[float | None]) -> str:
    """Return the median in percent of those that are known."""
    known = [x for x in values if x is not None]
    return f"{100 * median(known):.0f} %" if known else ""


def pair_row(first: str, second: str, of_set: str, runs: int) -> list[str]:
    """Plant two faults of middle strength in whole images, one after the other."""
    generator, names, shares = generator_of(first, second, of_set), [], []
    for run in range(runs):
        fake, real = image_set(of_set).draw(N, generator)
        whole = torch.ones(fake.shape[2:], dtype=torch.bool)
        for i, name in enumerate((first, second)):
            fake = planted(KINDS[name], fake, KINDS[name].strengths[1], whole, 2 * run + i)
        said = Said.of(fake, real, run)
        names.append([kind.name for kind in said.kinds[:3]])
        shares.append(sum(kind.share for kind in said.kinds[:3]))
    wanted = [KINDS[name].names for name in (first, second)]
    found = [[any(name in names_of for name in some) for names_of in wanted] for some in names]
    return [
        f"{first} {KINDS[first].strengths[1]:g} + {second} {KINDS[second].strengths[1]:g}",
        of_set,
        f"{np.mean([all(x) for x in found]):.2f}",
        f"{np.mean([any(x) for x in found]):.2f}",
        f"{100 * median(shares):.0f} %",
        " + ".join(names[0]) or "no simple fault",
    ]


def proportions_row(name: str, runs: int) -> list[str]:
    """Return what share of the distance is said to be wrong proportions, for each set in the median run."""
    cells = []
    for of_set in SETS:
        generator, found = generator_of("proportions", name, of_set), []
        for run in range(runs if of_set in WITH_CLASSES or name in KINDS else 0):
            if name in KINDS:
                fake, real = image_set(of_set).draw(N, generator)
                whole = torch.ones(fake.shape[2:], dtype=torch.bool)
                fake = planted(KINDS[name], fake, KINDS[name].strengths[1], whole, run)
            else:
                fake, real = wrong_proportions(image_set(of_set), name, N, generator)
            said = diagnose(fake=fake, real=real, seed=run)
            found += [] if said.findings[0].fine else [said.proportions]
        cells.append(f"{100 * median(found):.0f} %" if found else "")
    return [name, *cells]


def around_rows(cache: Path, runs: int) -> list[list[str]]:
    """Return how far all around the areas of the map is from real images, as a part of how far these are."""
    sides: dict[str, list[tuple[Tensor, Tensor]]] = {"planted in an area": []}
    for name, fault in ((name, fault) for name, fault in KINDS.items() if fault.local):
        for of_set in sets_for(fault.color):
            generator = generator_of("around", name, of_set)
            for run in range(runs):
                fake, real = image_set(of_set).draw(N, generator)
                area = random_area(*fake.shape[2:], generator)
                sides["planted in an area"].append((planted(fault, fake, fault.strengths[1], area, run), real))
    for name in GENERATORS:
        for of_set in GENERATORS[name][1]:
            fake, real = samples(name, of_set, 0, N, cache), image_set(of_set).images.clamp(0, 1)[-N:]
            sides.setdefault(name, []).append((fake, real))
    rows = []
    for name, pairs in sides.items():
        parts = [part for pair in pairs if (part := _part_around(*pair)) is not None]
        quantiles = np.quantile(parts, (0, 0.5, 0.9, 1)) if parts else []
        rows.append(
            [name, f"{len(parts)} of {len(pairs)}", *(f"{x:.2f}" for x in quantiles), *[""] * (4 * (not parts))]
        )
    return rows


def _part_around(fake: Tensor, real: Tensor) -> float | None:
    images = Images.of(fake, real, 0, ())
    drawn = discrepancy_map(images.fake, images.real)
    masks = [mask for mask in significant_areas(drawn) if describe_place(mask) not in MOSTLY_ALL]
    if not masks:
        return None
    areas = [diagnose_area(images, mask, (), p=float(drawn["p_map"][mask].min())) for mask in masks]
    return max(0.0, distance_around(images, torch.stack(masks).any(0))) / max(x.distance for x in areas)


def nothing_row(of_set: str, runs: int) -> list[str]:
    """Diagnose real images, and compare them as the command does."""
    generator = generator_of("nothing", of_set)
    kinds, differ = Counter[str](), 0
    for run in range(runs):
        fake, real = image_set(of_set).draw(2 * N, generator)
        kinds.update(kind.name for kind in Said.of(fake[:N], real[:N], run).kinds[:1])
        differ += compare(real=real, fake=fake[:N], settings=RegionSettings(seed=run)).findings[0].fine is False
    said = ", ".join(f"{name} ({count})" for name, count in kinds.most_common(3))
    return [of_set, str(runs), f"{kinds.total() / runs:.3f}", said, f"{differ / runs:.3f}"]


def trained_row(name: str, of_set: str, seed: int, cache: Path) -> list[str]:
    """Diagnose a generator that was trained with a known fault, beside what others say of it."""
    generator, whole = GENERATORS[name][0], image_set(of_set).images.clamp(0, 1)
    fake = samples(name, of_set, seed, N, cache)
    # what was memorized is compared with the images it was learned from
    real, others = (whole[:N], whole[N : 2 * N]) if "memor" in name else (whole[-N:], whole[-HELD_OUT:][:N])
    said = Said.of(fake, real, seed)
    rank = next((i for i, kind in enumerate(said.kinds, 1) if kind.name in generator.names), None)
    in_place = generator.area and said.first is not None and generator.area in str(said.first.area)
    found, baseline = fidelity(fake, real), fidelity(others, real)
    fidelities = [f"{found[x]:.2g} ({baseline[x]:.2g})" for x in ("fid", "kid", "precision", "recall", "coverage")]
    rejected = benjamini_hochberg(pixel_p_values(fake, real)).mean()
    return [
        f"{name}: {of_set}, seed {seed}",
        generator.area or " or ".join(generator.names),
        "" if said.first is None else said.first.text.replace("|", "/").replace("\n", " "),
        "1st" if in_place or rank == 1 else f"{rank}." if rank else "no",
        *fidelities,
        f"{100 * rejected:.0f} %",
    ]
