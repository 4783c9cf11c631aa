# SPDX-License-Identifier: Apache-2.0
"""Time, memory and rate of each step of a comparison, from latents to 512×512×3, and how they grow; writes sizes.md.

python benchmarks/sizes.py                            # about a quarter of an hour
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import torch
from harness import machine, product_rate
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from genmonitor import compare
from genmonitor.evaluation import RegionSettings, diagnosed_areas
from genmonitor.evaluation.pixel_clusters import RegionEvaluator
from genmonitor.evaluation.regions.search import RegionFinder

STEPS = {
    "clusters": (RegionFinder, "_clusters"),
    "baseline": (RegionFinder, "_baseline"),
    "evaluation": (RegionEvaluator, "compute"),
    "map": (diagnosed_areas, "discrepancy_map"),
    "diagnosis": (RegionEvaluator, "_diagnose"),
}
"""Which functions the steps are; what one spends in another counts there."""


class Case(NamedTuple):
    """A comparison of n generated images with n real ones, beside 1.2 n for the regions."""

    shape: tuple[int, int, int]
    n: int
    clusters: int = 5

    def __str__(self) -> str:
        """Name it in the table."""
        return f"{'×'.join(map(str, self.shape))}, {self.n} v {self.n}, {self.clusters} clusters"


CASES = [
    Case((4, 64, 64), 100),
    Case((3, 128, 128), 100),
    Case((3, 128, 128), 100, 20),
    Case((3, 128, 128), 40),
    Case((3, 256, 256), 40),
    Case((3, 512, 512), 40),
    Case((3, 256, 256), 100),
]
GROWTH = {
    "d, 64²×4 to 128²×3": (0, 1, 3, 1),
    "d, 128² to 256²": (3, 4, 4, 1),
    "d, 256² to 512²": (4, 5, 4, 1),
    "d, 128² to 256², 100 v 100": (1, 6, 4, 1),
    "n, 40 to 100": (3, 1, 2.5, 2),
    "clusters, 5 to 20": (1, 2, 4, 0),
}
"""What grows: from which case to which, by what factor, and the largest exponent that the formulas have."""


def images(n: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    """Draw images of 64 soft squares that vary together in four groups."""
    generator = torch.Generator().manual_seed(seed)
    channels, side, _ = shape
    groups = torch.rand(n, channels, 2, 2, generator=generator).repeat_interleave(4, 2).repeat_interleave(4, 3)
    small = 0.7 * groups + 0.2 * torch.rand(n, channels, 8, 8, generator=generator)
    x = torch.nn.functional.interpolate(small, (side, side), mode="bilinear")
    return x.add_(torch.rand(x.shape, generator=generator), alpha=0.1)


class Meter:
    """Adds up what each step takes itself: seconds, multiplications and additions, and the most memory meanwhile."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}
        self._running: list[str] = []
        self._since, self._counted = 0.0, 0
        self.flops = FlopCounterMode(display=False)

    def watch(self, name: str, owner: Any, method: str) -> None:
        """Watch a function."""
        work = getattr(owner, method)

        @wraps(work)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._note()
            self._running.append(name)
            try:
                return work(*args, **kwargs)
            finally:
                self._note()
                self._running.pop()

        setattr(owner, method, watched)

    def _note(self) -> None:
        now, counted = time.perf_counter(), self.flops.get_total_flops()
        if self._running:
            of = self.found.setdefault(self._running[-1], {"seconds": 0, "operations": 0, "GiB": 0})
            of["seconds"] += now - self._since
            of["operations"] += counted - self._counted
            of["GiB"] = max(of["GiB"], most_gib())
        Path("/proc/self/clear_refs").write_text("5")  # the most memory is from now on
        self._since, self._counted = time.perf_counter(), counted


def most_gib() -> float:
    """Return the most memory that the process has had since that was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**20


def measure(case: Case) -> dict[str, Any]:
    """Measure a case in this process."""
    rate, meter = product_rate(2048), Meter()
    real, fake = (images(60, (3, 16, 16), seed) for seed in (0, 1))
    compare(real=real, fake=fake, settings=RegionSettings(n_clusters=2))  # what is loaded once
    for name, (owner, method) in STEPS.items():
        meter.watch(name, owner, method)
    real, fake = images(2 * case.n + case.n // 5, case.shape, 0), images(case.n, case.shape, 1)
    fake[..., case.shape[1] // 2 :] *= 0.8
    with meter.flops:
        compare(real=real, fake=fake, settings=RegionSettings(n_clusters=case.clusters))
    for of in meter.found.values():
        of["rate"] = of.pop("operations") / of["seconds"] / rate
    return meter.found


def exponent(before: float, after: float, factor: float) -> str:
    """Return the power of the factor that a step grew by."""
    return f"{math.log(after / before) / math.log(factor):.1f}"


def grown(found: list[dict[str, dict[str, float]]]) -> list[list[str]]:
    """Return the rows of exponents; a step that was not due in a case has none."""
    rows = []
    for what, (a, b, factor, expected) in GROWTH.items():
        pairs = [[found[i].get(step, {}).get("seconds", 0) for i in (a, b)] for step in STEPS]
        rows.append([what, *(exponent(*pair, factor) if all(pair) else "" for pair in pairs), str(expected)])
    return rows


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Lay out a table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))


def main() -> None:
    """Measure each case in a process of its own and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, help="measure one case here and print it as JSON")
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(measure(CASES[given.case])))
        return
    found = []
    for index, case in enumerate(CASES):
        print(f"{case} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-W", "ignore", __file__, "--case", str(index)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))

    def cells(of: Callable[[dict[str, float]], str]) -> list[list[str]]:
        cases = zip(CASES, found, strict=True)
        return [[str(case), *(of(steps[x]) if x in steps else "" for x in STEPS)] for case, steps in cases]

    text = f"""# A comparison of large images, step by step

`python benchmarks/sizes.py` on {machine()}

`compare` of n generated images with n real ones; 1.2 n others serve for the regions and the baseline. The size of the
sites is chosen: at most 64×64 of them. Each case has a process of its own; a step that calls another is without it.
Fewer than 100 images a side are not diagnosed, so diagnosis and map are missing where there are 40.

## Seconds

{table(["case", *STEPS], cells(lambda of: f"{of['seconds']:.2g}"))}

## Peak memory of the process, GiB

{table(["case", *STEPS], cells(lambda of: f"{of['GiB']:.2f}"))}

## Share of torch.mm's rate

Multiplications and additions of the products that a step makes, per second, over those of a large product in float32.
Clusters also take a linkage, which makes no products.

{table(["case", *STEPS], cells(lambda of: f"{of['rate']:.0%}"))}

## Exponents

Of seconds; expected: the largest exponent in the formulas. A fixed cost makes the measured one smaller.

{table(["what grows", *STEPS, "expected"], grown(found))}
"""
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
