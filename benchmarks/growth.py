# SPDX-License-Identifier: Apache-2.0
"""How seconds, memory and states grow with samples, their size, regions and windows; writes growth.md and growth.png.

python benchmarks/growth.py                           # about ten minutes
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from harness import machine, peak_gib
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor import (
    PRDC,
    CosineMeanSimilarity,
    GaussianKernel,
    PixelCKA,
    PixelPartition,
    RKEScore,
    ScendiScore,
    VendiScore,
)
from genmonitor.functional import discrepancy_map, prompt_split
from genmonitor.functional.discrepancy_map import SIDES
from genmonitor.plotting.style import cluster_color

BATCH = 1000


@dataclass(frozen=True)
class Series:
    """A metric at several sizes.

    Attributes:
        name: of the curve.
        over: what grows, "n", "d", "regions" or "windows".
        sizes: of what grows.
        slope: of seconds, in double logarithmic scale, that the formula has.
        run: does the work at a size and returns the metric, or None where it is a function.
    """

    name: str
    over: str
    sizes: tuple[int, ...]
    slope: float
    run: Callable[[int], Any]


def vectors(count: int, dim: int, seed: int = 0) -> Iterable[Tensor]:
    """Draw batches one at a time, so that no more than a batch is ever held."""
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, count, BATCH):
        yield torch.randn(min(BATCH, count - start), dim, generator=generator)


def images(count: int, channels: int, side: int, seed: int = 0) -> Iterable[Tensor]:
    """Draw batches of images of eight broad stripes with some noise."""
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, count, BATCH):
        n = min(BATCH, count - start)
        stripes = torch.randn(n, channels, 8, 1, generator=generator).repeat_interleave(side // 8, 2)
        yield torch.rand(n, channels, side, side, generator=generator).mul_(0.1).add_(stripes)


def fed(metric: Any, *sides: Iterable[Tensor]) -> Any:
    for some in zip(*sides, strict=True):
        metric.update(*some)
    metric.compute()
    return metric


def two_sided(metric: Any, fake: Iterable[Tensor], real: Iterable[Tensor]) -> Any:
    for side, is_real in ((fake, False), (real, True)):
        for some in side:
            metric.update(some, real=is_real)
    metric.compute()
    return metric


def split(n: int, pairs: int | None) -> None:
    sides = [torch.cat(list(vectors(n, 64, seed))) for seed in range(4)]
    prompt_split(*sides, num_features=pairs)


def squares(side: int, rows: int = 2) -> PixelPartition:
    return PixelPartition.grid((side, side), rows, rows)


def windows(side: int) -> int:
    """Return how many windows there are inside an image."""
    return sum((side - of_window + 1) ** 2 for of_window in SIDES)


def mapped(count: int) -> None:
    side = next(side for side in (16, 32, 48) if windows(side) == count)
    discrepancy_map(*(torch.cat(list(images(1000, 1, side, seed))) for seed in range(2)))


def cka(n: int, channels: int, side: int, patch: int) -> Any:
    metric = fed(PixelCKA(GaussianKernel(1 / (channels * side**2)), patch_size=patch), images(n, channels, side))
    PixelPartition.from_cka(metric.compute(), (side // patch, side // patch), 5)
    return metric


THOUSANDS = (1_000, 10_000, 100_000, 1_000_000)
SERIES = [
    Series("Vendi, cosine, 64 features", "n", THOUSANDS, 1, lambda n: fed(VendiScore(), vectors(n, 64))),
    Series(
        "Scendi, cosine, 64 + 64", "n", THOUSANDS, 1, lambda n: fed(ScendiScore(), vectors(n, 64), vectors(n, 64, 1))
    ),
    Series("CKA and clusters, 8×8", "n", THOUSANDS, 1, lambda n: cka(n, 1, 8, 1)),
    Series(
        "RKE, Gaussian, exact",
        "n",
        (3_000, 10_000, 30_000),
        2,
        lambda n: fed(RKEScore(GaussianKernel()), vectors(n, 64)),
    ),
    Series(
        "CMS, 8×8, 4 regions",
        "n",
        (1_000, 3_000, 10_000),
        2,
        lambda n: two_sided(CosineMeanSimilarity(squares(8)), images(n, 1, 8), images(n, 1, 8, 1)),
    ),
    Series("PRDC", "n", (1_000, 3_000, 10_000), 2, lambda n: two_sided(PRDC(), vectors(n, 64), vectors(n, 64, 1))),
    Series("PromptSplit, exact", "n", (3_000, 10_000), 2, lambda n: split(n, None)),
    Series("PromptSplit, 1,000 frequency pairs", "n", (3_000, 10_000, 30_000), 1, lambda n: split(n, 1_000)),
    Series("Vendi, cosine, n = 10,000", "d", (64, 256, 1024, 4096), 2, lambda d: fed(VendiScore(), vectors(10_000, d))),
    Series(
        "CKA and clusters of pixels, n = 1000", "d", (16**2, 32**2, 64**2), 2, lambda d: cka(1000, 3, math.isqrt(d), 1)
    ),
    Series(
        "CKA and clusters of 4×4 patches, n = 1000",
        "d",
        (16**2, 32**2, 64**2),
        2,
        lambda d: cka(1000, 3, 4 * math.isqrt(d), 4),
    ),
    Series(
        "CMS, 32×32×3, n = 1000",
        "regions",
        (4, 16, 64, 256),
        1,
        lambda regions: two_sided(
            CosineMeanSimilarity(squares(32, math.isqrt(regions))), images(1000, 3, 32), images(1000, 3, 32, 1)
        ),
    ),
    Series("Discrepancy map, n = 1000", "windows", tuple(map(windows, (16, 32, 48))), 1, mapped),
    Series(
        "CMS, 4 regions, n = 1000",
        "d",
        (3 * 16**2, 3 * 32**2, 3 * 64**2, 3 * 128**2),
        1,
        lambda d: two_sided(
            CosineMeanSimilarity(squares(math.isqrt(d // 3))),
            images(1000, 3, math.isqrt(d // 3)),
            images(1000, 3, math.isqrt(d // 3), 1),
        ),
    ),
]


def state_mib(metric: Any) -> float | None:
    if metric is None:
        return None
    states = [state if isinstance(state, list) else [state] for state in metric.metric_state.values()]
    return sum(part.numel() * part.element_size() for state in states for part in state) / 2**20


def measure(index: int, size: int) -> dict[str, Any]:
    """Measure one point in this process, which has done nothing else but the smallest size."""
    series = SERIES[index]
    series.run(series.sizes[0])
    before, start = peak_gib(), time.perf_counter()
    metric = series.run(size)
    return {
        "seconds": time.perf_counter() - start,
        "GiB": peak_gib() if size != series.sizes[0] else before,
        "state": state_mib(metric),
    }


def draw(points: list[list[dict[str, Any]]]) -> Figure:
    """Draw seconds and memory; a metric has one color in all panels, its further variants are dashed."""
    figure = Figure(figsize=(13, 9.6), layout="constrained")
    axes = figure.subplots(2, 2, sharex="col")
    metrics = list(dict.fromkeys(_metric(series) for series in SERIES if series.over in "nd"))
    seen: set[tuple[str, str]] = set()
    for series, found in zip(SERIES, points, strict=True):
        if series.over not in "nd":
            continue
        column, color = "nd".index(series.over), cluster_color(1 + metrics.index(_metric(series)))
        style = "--" if (series.over, _metric(series)) in seen else "-"
        seen.add((series.over, _metric(series)))
        for row, quantity in enumerate(("seconds", "GiB")):
            values = [point[quantity] for point in found]
            axes[row, column].loglog(series.sizes, values, f"o{style}", color=color, label=series.name)
    for column, (grows, label) in enumerate(
        (("number of samples", "samples n (a side)"), ("size d", "size d: features, sites, or values of an image"))
    ):
        for row, (what, unit) in enumerate((("Seconds", "seconds"), ("Memory", "peak of the process, GiB"))):
            ax = axes[row, column]
            ax.set_title(f"{what} against the {grows}", loc="left", fontsize=13, fontweight="bold")
            ax.set_ylabel(unit)
            ax.grid(alpha=0.3)
        axes[1, column].set_xlabel(label)
        axes[1, column].legend(fontsize=9, loc="upper left", bbox_to_anchor=(0, -0.12), ncols=2 - column, frameon=False)
    return figure


def _metric(series: Series) -> str:
    return series.name.split()[0].rstrip(",")


def written(table: Path) -> list[list[dict[str, Any]]]:
    """Read the points of the table that a run wrote, to three digits, in the order of `SERIES`."""
    rows = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in table.open(encoding="utf-8")]
    found = {row[0]: (row[3], row[6]) for row in rows if len(row) >= 7}
    return [
        [
            {"seconds": float(seconds), "GiB": float(gib)}
            for seconds, gib in zip(*(cells.split(" / ") for cells in found[series.name]), strict=True)
        ]
        for series in SERIES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Growth with n, d, regions and windows")
    parser.add_argument("--point", nargs=2, type=int, help="measure one point here and print it as JSON")
    parser.add_argument("--redraw", action="store_true", help="draw the table again that an earlier run wrote")
    arguments = parser.parse_args()
    if arguments.point:
        print(json.dumps(measure(*arguments.point)))
        return
    table = Path(__file__).with_suffix(".md")
    if arguments.redraw:
        draw(written(table)).savefig(table.with_suffix(".png"), dpi=80)
        return
    columns = ["metric", "grows", "sizes", "seconds", "last slope", "slope of the formula", "peak GiB", "state MiB"]
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    points = []
    for index, series in enumerate(SERIES):
        found = []
        for size in series.sizes:
            print(f"{series.name}: {size} ...", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--point", str(index), str(size)]
            found.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
        points.append(found)
        slope = math.log(found[-1]["seconds"] / found[-2]["seconds"]) / math.log(series.sizes[-1] / series.sizes[-2])
        cells = [
            series.name,
            series.over,
            ", ".join(f"{size:,}" for size in series.sizes).replace(", ", " / "),
            " / ".join(f"{point['seconds']:.3g}" for point in found),
            f"{slope:.1f}",
            f"{series.slope:g}",
            " / ".join(f"{point['GiB']:.2f}" for point in found),
            " / ".join("" if point["state"] is None else f"{point['state']:.3g}" for point in found).strip(" /"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    text = f"# Growth with n, d, regions and windows\n\n`python benchmarks/growth.py` on {machine()}\n\n"
    text += "![Growth](growth.png)\n\n"
    text += "Samples come in batches of 1000 that are drawn on the way, which the seconds include.\n\n"
    table.write_text(text + "\n".join(lines) + "\n")
    draw(points).savefig(table.with_suffix(".png"), dpi=80)


if __name__ == "__main__":
    main()
