# SPDX-License-Identifier: Apache-2.0
"""Measures whether a diagnosis is right: where a fault is, what kind it is, how much of the distance it explains.

python benchmarks/diagnosis.py                            # all tables, about an hour on two cores
python benchmarks/diagnosis.py --tables kinds nothing     # some of them
python benchmarks/diagnosis.py --runs 2 --null 12         # a look, in minutes
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

mpl.use("Agg")
import matplotlib.pyplot as plt

sys.path[:0] = [str(Path(__file__).parent)]
from detection_images import source  # noqa: E402
from diagnosis_faults import KINDS, OTHERS, PAIRS  # noqa: E402
from diagnosis_generators import GENERATORS  # noqa: E402
from diagnosis_images import SETS  # noqa: E402
from diagnosis_kinds import PROPORTIONS, around_rows, kind_row, nothing_row, pair_row, proportions_row, trained_row  # noqa: E402
from diagnosis_map import METHODS, STRENGTHS, N, level_row, map_row, region_row, seconds_rows  # noqa: E402
from diagnosis_trainings import EVALUATIONS, TRAININGS, training  # noqa: E402
from stamp import processor, stamp  # noqa: E402

TABLES = (
    "kinds",
    "areas",
    "around",
    "others",
    "pairs",
    "proportions",
    "nothing",
    "map",
    "regions",
    "seconds",
    "trained",
    "trainings",
)
HEAD = """# Is the diagnosis right: where, what kind of fault, how much of the distance?

`{command}` on {threads} threads of {processor}: torch {torch},
scipy {scipy}, scikit-learn {sklearn}; {commit}.

{n} "generated" against {n} real images of six sets: digits, clothes and ovals (28×28, gray), faces, scenes and
photographs (32×32, color). "Generated" are held-out real images with a planted fault, or samples of generators.

Of faults: in what part of the runs the right kind is named first; in what part of those in which anything is found
beyond chance; and in what part of these it is the right one or one that explains 90 % or more, which describes the
images as well.
"""
LOOKS = ("blur 0.5", "blur 1", "noise σ 0.05", "noise σ 0.02", "contrast − 0.2", "brightness + 0.05")

Rows = Iterable[list[str]]


def table(title: str, columns: list[str], rows: Rows) -> list[list[str]]:
    """Print a table, a row as soon as it is there; return its rows."""
    print(f"## {title}\n\n| {' | '.join(columns)} |\n| --- |{' ---: |' * (len(columns) - 1)}")
    printed = []
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
        printed.append(row)
    print()
    return printed


class Tables:
    """Prints the tables; rows are computed side by side, in so many processes."""

    def __init__(self, args: argparse.Namespace, pool: ProcessPoolExecutor) -> None:
        self.runs, self.null, self.seeds, self.cache, self.pool = args.runs, args.null, args.seeds, args.cache, pool

    def _rows(self, make: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        futures = [self.pool.submit(make, *some) for some in arguments]
        return (future.result() for future in futures)

    def _kinds(self, title: str, names: Iterable[str], local: bool) -> list[list[str]]:
        columns = [
            "fault",
            "right",
            "of those seen",
            "or as good",
            *SETS,
            "error of the strength",
            "share",
            "overlap of the area",
            "taken for",
        ]
        arguments = [(name, level, self.runs, local) for name in names for level in range(3)]
        return table(title, columns, self._rows(kind_row, arguments))

    def kinds(self) -> None:
        """Faults in whole images."""
        title = "Runs in which the right kind is named first: planted in whole images"
        names = [name for name in KINDS if name != "parts that do not fit"]
        draw(self._kinds(title, [*names, "modes"], local=False))

    def areas(self) -> None:
        """Faults in an area that nobody tells."""
        title = "Runs in which the right kind is named first: planted in an area that the map must find"
        self._kinds(title, [name for name, fault in KINDS.items() if fault.local], local=True)

    def around(self) -> None:
        """Whether the place is news."""
        title = "Distance of all around the areas of the map, as a part of theirs; from 0.5 on no place is said"
        columns = ["what is wrong", "with areas", "least", "median", "of nine in ten at most", "most"]
        table(title, columns, self.pool.submit(around_rows, self.cache, self.runs).result())

    def others(self) -> None:
        """Faults that no kind describes exactly."""
        self._kinds("Faults of no family: runs in which the nearest kind is named first", OTHERS, local=False)

    def pairs(self) -> None:
        """Two faults at once."""
        columns = ["faults", "images", "both named", "one named", "share of all", "the first run's words"]
        arguments = [(*pair, of_set, self.runs) for pair in PAIRS for of_set in ("digits", "faces", "photographs")]
        table("Pairs of faults in whole images", columns, self._rows(pair_row, arguments))

    def proportions(self) -> None:
        """Right images in wrong proportions, and wrong images in right ones."""
        names = (*PROPORTIONS, "blurred", "noisy", "brighter", "shifted", "less varied")
        rows = self._rows(proportions_row, [(name, self.runs) for name in names])
        table("Share of the distance that is said to be wrong proportions", ["what is wrong", *SETS], rows)

    def nothing(self) -> None:
        """Nothing wrong."""
        columns = ["images", "runs", "a kind is named", "which", "first line of `compare` says that they differ"]
        rows = self._rows(nothing_row, [(of_set, per_set(self.null)) for of_set in SETS])
        table("Nothing wrong: real images in place of generated ones", columns, rows)

    def map(self) -> None:
        """Where."""
        columns = ["fault in an area", "runs", "test of that area", *METHODS]
        title = "Where: the method's peak inside the area, and the overlap (IoU) of what it calls significant"
        table(title, columns, self._rows(map_row, [(name, self.runs) for name in STRENGTHS]))
        columns = ["images", "runs", *METHODS, "test of images"]
        rows = self._rows(level_row, [(of_set, per_set(self.null)) for of_set in SETS])
        table("Level: real images in place of generated ones, in which something is seen", columns, rows)

    def regions(self) -> None:
        """Regions of photographs."""
        photographs = source("photographs")
        faults = [(name, float(size)) for name, _, size in (look.rpartition(" ") for look in LOOKS)]
        arguments = [(photographs, name, size, 5 * self.runs) for name, size in faults]
        rows = self._rows(region_row, arguments)
        table(
            "Photographs of detection.md: runs in which the test names the right region",
            ["fault", "runs", "right"],
            rows,
        )

    def seconds(self) -> None:
        """Time."""
        table(f"Seconds: {N} v {N} images of 32×32×3, one core", ["call", "seconds"], seconds_rows())

    def trained(self) -> None:
        """Generators with a known fault."""
        measures = ["FID (of real)", "KID", "precision", "recall", "coverage", "pixels that KS rejects"]
        columns = ["generator", "expected", "what is said", "named", *measures]
        arguments = [
            (name, of_set, seed, self.cache)
            for name, (_, sets) in GENERATORS.items()
            for of_set in sets
            for seed in range(self.seeds)
        ]
        table("Generators that were trained with a known fault", columns, self._rows(trained_row, arguments))

    def trainings(self) -> None:
        """Alerts."""
        columns = [
            "training",
            "alert",
            "the curve it names",
            "moves its way",
            "curves against it",
            "samples are worse in",
        ]
        found = self._rows(training, [(*some, EVALUATIONS) for some in TRAININGS[: max(2, 5 * self.runs)]])
        rows = table("Trainings: each alert beside curves and samples", columns, chain.from_iterable(found))
        alerts = [row for row in rows if row[1] != "none"]
        contradicted, unseen = (sum(row[i] == word for row in alerts) for i, word in ((3, "no"), (5, "nothing")))
        print(
            f"{len(alerts)} alerts; {contradicted} that their curve contradicts, {unseen} that samples do not show.\n"
        )


def per_set(count: int) -> int:
    """Return how many of some runs each set has."""
    return max(1, count // len(SETS))


def draw(rows: list[list[str]]) -> None:
    """Draw in what part of the runs the right kind is named, by set and kind, the strengths side by side."""
    shares = np.array([[float(cell) if cell else np.nan for cell in row[4 : 4 + len(SETS)]] for row in rows])
    names = [row[0].rpartition(" ")[0] for row in rows[::3]]
    figure, panels = plt.subplots(1, 3, figsize=(10, 0.33 * len(names) + 1.6), layout="constrained", sharey=True)
    for level, (panel, title) in enumerate(zip(panels, ("weak", "middle", "strong"), strict=True)):
        panel.imshow(shares[level::3], cmap="Greens", vmin=0, vmax=1.2, aspect="auto")
        for (y, x), share in np.ndenumerate(shares[level::3]):
            if not np.isnan(share):
                color = "white" if share > 0.6 else "black"
                panel.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=8, color=color)
        panel.set_xticks(range(len(SETS)), list(SETS), rotation=45, ha="right")
        panel.set_yticks(range(len(names)), names)
        panel.set_title(title, loc="left", fontsize=11)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
    figure.suptitle(
        "Fault planted in real images: how often is its kind named first? (% of the runs)", x=0.01, ha="left"
    )
    figure.savefig(Path(__file__).with_name("diagnosis.png"), dpi=110)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4, help="runs of each fault, strength and set (4)")
    parser.add_argument("--null", type=int, default=420, help="comparisons of real images, of all sets together (420)")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each generator with a known fault (1)")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, help="which (all)")
    parser.add_argument("--processes", type=int, default=2, help="side by side (2), one thread each")
    folder = Path(tempfile.gettempdir()) / "genmonitor-diagnosis"
    parser.add_argument("--cache", type=Path, default=folder, help=f"where samples of generators are kept ({folder})")
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    args = arguments()
    torch.set_num_threads(1)
    versions = {"torch": version("torch"), "scipy": version("scipy"), "sklearn": version("scikit-learn")}
    machine = {"threads": args.processes, "processor": processor()}
    command = " ".join(["python benchmarks/diagnosis.py", *sys.argv[1:]])
    print(HEAD.format(command=command, commit=stamp(), **machine, **versions, n=N))
    context = get_context("spawn")
    with ProcessPoolExecutor(args.processes, context, torch.set_num_threads, (1,)) as pool:
        tables = Tables(args, pool)
        for name in args.tables:
            getattr(tables, name)()


if __name__ == "__main__":
    main()
