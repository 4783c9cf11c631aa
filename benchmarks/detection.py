# SPDX-License-Identifier: Apache-2.0
"""Measures whether faults are found, the right region is named, and nothing is said where nothing is wrong.

python benchmarks/detection.py                     # all tables, about an hour on one core
python benchmarks/detection.py --tables alerts     # one of them: naming, level, bands, alerts, real
python benchmarks/detection.py --runs 4 --null 22  # a look, in two minutes
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from genmonitor.findings.finding import LEVEL
from genmonitor.functional import two_sample_test

mpl.use("Agg")
import matplotlib.pyplot as plt

sys.path[:0] = [str(Path(__file__).parent)]
from detection_alerts import alert_rows  # noqa: E402
from detection_bands import band_rows  # noqa: E402
from detection_images import CLUSTERS, N, Source, sources  # noqa: E402
from detection_methods import FAULTS, P_VALUES, SIMILARITIES, Values, measured  # noqa: E402
from detection_trained import real_fault_rows, trained_rows  # noqa: E402
from stamp import processor, stamp  # noqa: E402

TABLES = ("naming", "level", "bands", "alerts", "real")
NULLS = {  # kind: evaluations, of which seed, the samples' dimension and distribution, seed of the test where fixed
    "normal": (40_000, 11, 1, torch.randn, None),
    "uniform": (20_000, 12, 1, torch.rand, None),
    "cube of a normal": (20_000, 13, 1, lambda *shape, **kind: torch.randn(*shape, **kind) ** 3, None),
    "normal, 8 dimensions": (20_000, 14, 8, torch.randn, None),
} | {f"normal, seed {seed} throughout": (6000, 100 + seed, 1, torch.randn, seed) for seed in range(8)}
HEAD = """# Is the fault found, the right region named, and silence kept otherwise?

`{command}` on {threads} threads of {processor}: torch {torch},
scipy {scipy}, scikit-learn {sklearn}; {commit}.

{n} "generated" against {n} real images (digits: 400 against 400), {clusters} clusters found in further images.
"Generated" are held-out real images, with a fault planted in one cluster. Images: scikit-learn's digits (8×8), patches
of its two photographs (16×16), the examples' planted regions (16×16), and drawn faces of three regions (28×28).
"""


class Granted:
    """Grants each similarity 5 % false alarms: its threshold is where 5 % of the evaluations of real images lie."""

    def __init__(self, nulls: list[dict[str, Values]]) -> None:
        self.center: dict[str, dict[str, tuple[float, float]]] = {}
        self.threshold: dict[str, float] = {}
        for name in SIMILARITIES:
            values = {region: [null[name][region] for null in nulls] for region in nulls[0][name]}
            self.center[name] = {r: (float(np.median(v)), float(np.std(v)) or 1.0) for r, v in values.items()}
            lowest = [min(self.score(name, null[name]).values()) for null in nulls]
            self.threshold[name] = float(np.quantile(lowest, LEVEL))

    def score(self, name: str, values: Values) -> Values:
        """Standardize the values of regions."""
        return {r: (x - self.center[name][r][0]) / self.center[name][r][1] for r, x in values.items()}

    def named(self, name: str, values: Values) -> str | None:
        """Return the region that a method names, None where it says that all is well."""
        regions = {r: x for r, x in values.items() if r != "image"}
        if not regions:
            return None
        limit = LEVEL if name in P_VALUES else self.threshold[name]
        suspects = regions if name in P_VALUES else self.score(name, regions)
        worst = min(suspects, key=lambda region: suspects[region])
        return worst if suspects[worst] <= limit + 1e-5 * (name in P_VALUES) else None


def nulls_of(source: Source, count: int) -> list[dict[str, Values]]:
    """Return what the methods say of real images in place of generated ones."""
    generator = torch.Generator().manual_seed(1)
    return [measured(*source.draw(generator), source.partition) for _ in range(count)]


def level_rows(found: dict[str, list[dict[str, Values]]]) -> Iterator[list[str]]:
    """Yield, for each set, in what part of the evaluations of real images something is called wrong."""
    for name, nulls in found.items():
        any_region = np.mean([min(v for r, v in null["test"].items() if r != "image") <= 0.0501 for null in nulls])
        image = np.mean([null["test"]["image"] <= LEVEL for null in nulls])
        ks = np.mean([min(null["KS"].values()) <= LEVEL for null in nulls])
        trained = np.mean([null["classifier"]["image"] <= LEVEL for null in nulls])
        yield [name, str(len(nulls)), *(f"{x:.3f}" for x in (any_region, image, ks, trained))]


def power_rows(source: Source, granted: Granted, runs: int) -> Iterator[list[str]]:
    """Yield, for each fault and strength, in what part of the runs each method names the right region."""
    for fault, (spoil, sizes) in FAULTS.items():
        for size in sizes:
            generator = torch.Generator().manual_seed(2)
            right: dict[str, list[bool]] = {name: [] for name in ("test", *SIMILARITIES, "KS")}
            image: dict[str, list[bool]] = {"test": [], "classifier": []}
            for run in range(runs):
                fake, real = source.draw(generator)
                label = 1 + run % source.partition.num_clusters
                inside = source.partition.pixel_labels() == label
                found = measured(spoil(fake, inside, size), real, source.partition)
                for name in right:
                    right[name].append(granted.named(name, found[name]) == f"cluster_{label}")
                for name in image:
                    image[name].append(found[name]["image"] <= LEVEL)
            cells = [float(np.mean(x)) for x in (*right.values(), *image.values())]
            yield [f"{fault} {size:g}", *(f"{x:.2f}" for x in cells)]


def null_rows() -> Iterator[list[str]]:
    """Yield how often the test rejects where both sides, 30 samples each, are drawn from one distribution."""
    rejected: list[bool] = []
    for name, (count, base, dim, distribution, fixed) in NULLS.items():
        generator, found = torch.Generator().manual_seed(base), []
        for i in range(count):
            x = distribution(60, dim, generator=generator, dtype=torch.float64)
            seed = base * 10**6 + i if fixed is None else fixed
            found.append(float(two_sample_test(x[:30], x[30:], seed=seed)) <= LEVEL)
        yield null_row(name, found)
        rejected += found
    yield null_row("all", rejected)


def null_row(name: str, rejected: list[bool]) -> list[str]:
    share = float(np.mean(rejected))
    return [name, f"{len(rejected):,}", f"{share:.4f} ± {(share * (1 - share) / len(rejected)) ** 0.5:.4f}"]


def table(title: str, columns: list[str], rows: Iterator[list[str]]) -> list[list[str]]:
    """Print a table, a row as soon as it is there; return its rows."""
    print(f"## {title}\n\n| {' | '.join(columns)} |\n| --- |{' ---: |' * (len(columns) - 1)}")
    printed = []
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
        printed.append(row)
    print()
    return printed


def draw(tables: dict[str, list[list[str]]], methods: list[str]) -> None:
    """Draw in what part of the runs each method names the right region, the darker the more."""
    figure, panels = plt.subplots(len(tables), 1, figsize=(9, 1.9 * len(tables) + 1), layout="constrained", sharex=True)
    for panel, (name, rows) in zip(panels, tables.items(), strict=True):
        shares = np.array([[float(cell) for cell in row[1 : 1 + len(methods)]] for row in rows]).T
        panel.imshow(shares, cmap="Greens", vmin=0, vmax=1.2, aspect="auto")
        for (y, x), share in np.ndenumerate(shares):
            color = "white" if share > 0.6 else "black"
            panel.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=9, color=color)
        panel.set_yticks(range(len(methods)), methods)
        panel.set_title(name, loc="left", fontsize=11)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
    panels[-1].set_xticks(range(len(rows)), [row[0] for row in rows], rotation=45, ha="right")
    figure.suptitle("Fault planted in one region: how often is that region named? (% of the runs)", x=0.01, ha="left")
    figure.savefig(Path(__file__).with_name("detection.png"), dpi=110)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each fault (20)")
    parser.add_argument("--null", type=int, default=420, help="evaluations of real images of each set (420)")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, help="which (all)")
    args = parser.parse_args()
    versions = {"torch": version("torch"), "scipy": version("scipy"), "sklearn": version("scikit-learn")}
    machine = {"threads": torch.get_num_threads(), "processor": processor()}
    command = " ".join(["python benchmarks/detection.py", *sys.argv[1:]])
    print(HEAD.format(command=command, commit=stamp(), **machine, **versions, n=N, clusters=CLUSTERS))
    sets = sources()
    if "naming" in args.tables:
        level_and_naming(sets, args.runs, args.null)
    if "level" in args.tables:
        title = (
            "Level: 30 samples against 30 of the same distribution, where nothing is named another seed for each test"
        )
        table(title, ["samples", "tests", "p ≤ 0.05"], null_rows())
    if "bands" in args.tables:
        columns = ["images", "evaluations", "simultaneous band", "its own 5 % quantile of 20 draws"]
        title = "Bands: real images in place of generated ones, some region of which is below"
        table(title, columns, band_rows(sets, args.null))
    if "alerts" in args.tables:
        columns = ["change", "runs", "false alarms in 1,000", "evaluations until the alert", "right region alone"]
        rows = alert_rows(sets["planted"], 100, args.runs)
        table("Alerts: planted regions, faults from the 11th evaluation on", columns, rows)
    if "real" in args.tables:
        table("Faults of real images, found in whole images", ["fault", "found"], real_fault_rows())
        columns = ["DCGAN of the digits", "p-value against real images", "p-value: farther than that of 81 epochs"]
        table("Generators that were trained", columns, trained_rows())


def level_and_naming(sets: dict[str, Source], runs: int, count: int) -> None:
    """Print how often each method is right about real and about faulty images, and draw the latter."""
    nulls = {name: nulls_of(source, count) for name, source in sets.items()}
    columns = ["images", "evaluations", "test, any region", "test, image"]
    title = "Level: real images in place of generated ones, of which something is called wrong"
    table(title, [*columns, "KS", "classifier"], level_rows(nulls))
    columns = ["fault in one cluster", "test", *SIMILARITIES, "KS", "any difference: test of images", "classifier"]
    named = {}
    for name, source in sets.items():
        rows = power_rows(source, Granted(nulls[name]), runs)
        named[name] = table(f"Runs in which the right cluster is named: {name}", columns, rows)
    draw(named, columns[1:5])


if __name__ == "__main__":
    main()
