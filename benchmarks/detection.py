# SPDX-License-Identifier: Apache-2.0
"""Measures whether faults are found, the right region is named, and nothing is said where nothing is wrong.

python benchmarks/detection.py                     # all tables, about an hour on one core
python benchmarks/detection.py --tables seconds    # one of them: naming, alerts, real, seconds
python benchmarks/detection.py --runs 4 --null 22  # a look, in two minutes
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import matplotlib as mpl
import numpy as np
import torch
from lightning import Trainer
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader

from genmonitor import GaussianKernel, PixelPartition, TwoSampleTest
from genmonitor.evaluation.baseline import simultaneous_bands
from genmonitor.evaluation.regions.best import BestSoFar
from genmonitor.evaluation.regions.clustering import find_clusters
from genmonitor.evaluation.regions.metrics import RegionMetric
from genmonitor.evaluation.verdicts import ALERT_FACTOR, LEVEL, RegressionDetector
from genmonitor.functional import relative_similarity_test, two_sample_test
from genmonitor.functional.mmd_influence import RealSide

mpl.use("Agg")
import matplotlib.pyplot as plt

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
from dcgan import DCGAN  # noqa: E402
from detection_methods import FAULTS, P_VALUES, SIMILARITIES, Values, contrast, measured  # noqa: E402
from planted import planted_images  # noqa: E402
from regions import digits, photographs, three_regions  # noqa: E402

N = 500
CLUSTERS = 5
TABLES = ("naming", "alerts", "real", "seconds")
HEAD = """# Is the fault found, the right region named, and silence kept otherwise?

`{command}` on {threads} threads of {processor}: torch {torch},
scipy {scipy}, scikit-learn {sklearn}.

{n} "generated" against {n} real images (digits: 400 against 400), {clusters} clusters found in further images.
"Generated" are held-out real images, with a fault planted in one cluster. Images: scikit-learn's digits (8×8), patches
of its two photographs (16×16), the examples' planted regions (16×16), and drawn faces of three regions (28×28).
"""


@dataclass(frozen=True)
class Source:
    """Images to draw from, and regions found in images that are drawn nowhere else."""

    images: Tensor
    partition: PixelPartition
    n: int

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return as many generated and real images, none of them the same."""
        order = torch.randperm(len(self.images), generator=generator)
        return self.images[order[: self.n]].clone(), self.images[order[self.n : 2 * self.n]]


def sources() -> dict[str, Source]:
    """Return the sets of images, in [0, 1]."""
    loaded = {
        "digits": (digits()[0], 900, 400),
        "photographs": (photographs(6000)[0], 2000, N),
        "planted": ((planted_images(6000, seed=1) + 1) / 2, 2000, N),
        "faces": ((three_regions(6000, 28)[0] + 1) / 2, 2000, N),
    }
    out = {}
    for name, (images, for_clusters, n) in loaded.items():
        images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))]
        some = images[:for_clusters]
        kernel = GaussianKernel().resolved(some.flatten(1))
        count = {"planted": 4, "faces": 3}.get(name, CLUSTERS)
        out[name] = Source(images[for_clusters:], find_clusters(some, kernel, count, 1).partition, n)
    return out


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
        below, before = bands_left([null["CMS, one width"] for null in nulls])
        yield [name, str(len(nulls)), *(f"{x:.3f}" for x in (any_region, image, below, before, ks, trained))]


def bands_left(values: list[Values]) -> tuple[float, float]:
    """Return how often some region is below its band of 20 draws: the simultaneous one, and its own 5 % quantile."""
    left, by_quantile, generator = [], [], np.random.default_rng(0)
    for _ in range(1000):
        *draws, new = (values[i] for i in generator.choice(len(values), 21, replace=False))
        by_region = {name: [draw[name] for draw in draws] for name in new}
        bands = simultaneous_bands(by_region, list(by_region))
        left.append(any(new[name] < bands[name][0] - 1e-9 for name in new))
        by_quantile.append(any(new[name] < np.quantile(v, 0.05) - 1e-9 for name, v in by_region.items()))
    return float(np.mean(left)), float(np.mean(by_quantile))


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


def alert_rows(source: Source, evaluations: int, runs: int) -> Iterator[list[str]]:
    """Yield false alarms per 1,000 evaluations, and the delay of each fault in evaluations."""
    for name, size in {"real images": 0.0, "generator of contrast −30 %, unchanging": 0.3}.items():

        def dull(x: Tensor, _: int, size: float = size) -> Tensor:
            return contrast(x, torch.ones_like(x[0], dtype=torch.bool), size)

        alarms = sum(bool(names) for run in range(runs) for names in alerts(source, run, evaluations, dull))
        yield [name, f"{runs} × {evaluations}", f"{1000 * alarms / (runs * evaluations):.2f}", "", ""]
    start = 10
    for fault, (spoil, sizes) in FAULTS.items():
        for size in sizes[1:]:
            delays, named = [], []
            for run in range(runs):
                label = 1 + run % source.partition.num_clusters
                inside = source.partition.pixel_labels() == label

                def spoiled(x: Tensor, i: int, spoil=spoil, inside=inside, size=size) -> Tensor:
                    return x if i < start else spoil(x, inside, size)

                raised = [(i, names) for i, names in enumerate(alerts(source, 100 + run, start + 10, spoiled)) if names]
                raised = [(i, names) for i, names in raised if i >= start]
                delays.append(raised[0][0] - start + 1 if raised else float("inf"))
                named.append(bool(raised) and raised[0][1] == [f"cluster_{label}"])
            yield [f"{fault} {size:g}", str(runs), "", f"{median(delays):g}", f"{np.mean(named):.2f}"]


def alerts(source: Source, seed: int, evaluations: int, spoil: Callable[[Tensor, int], Tensor]) -> list[list[str]]:
    """Return what is alerted of at each evaluation of fresh images."""
    generator = torch.Generator().manual_seed(seed)
    side = RealSide.of(source.draw(generator)[1], None, source.partition)
    best, detector, out = BestSoFar(), RegressionDetector(), []
    for i in range(evaluations):
        influence = side.influence(spoil(source.draw(generator)[0], i).flatten(1))
        scores = {name: z for name, z in best.scores(influence).items() if name != "image"}
        out.append(detector.update(scores, best.farther_by(influence, ALERT_FACTOR)))
        best.update(influence, i)
    return out


def real_fault_rows() -> Iterator[list[str]]:
    """Yield what the test says of faults of real generators, of whole images."""
    images, labels = digits()[0], torch.tensor(load_digits().target)
    for missing in (1, 3, 8):
        found = []
        for seed in range(20):
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
            fake, real = order[:800], order[800:1400]
            found.append(float(two_sample_test(images[fake[labels[fake] != missing]], images[real])) <= LEVEL)
        yield [f"digits, class {missing} never drawn", f"{np.mean(found):.2f}"]
    gray = photographs(2000)[0]
    color = torch.cat([gray, gray.roll(1, 2), gray.flip(3)], 1)
    found = []
    for seed in range(20):
        order = torch.randperm(2000, generator=torch.Generator().manual_seed(seed))
        fake, real = color[order[:N]].clone(), color[order[N : 2 * N]]
        fake[:, 2] = fake[:, 2].mean()
        found.append(float(two_sample_test(fake, real)) <= LEVEL)
    yield ["color patches, a dead channel", f"{np.mean(found):.2f}"]


def dcgan_samples(images: Tensor, epochs: int, n: int) -> Tensor:
    """Return what the examples' DCGAN draws after so many epochs on images in [0, 1]."""
    torch.manual_seed(0)
    module = DCGAN(lr=1e-3)
    loader = DataLoader(2 * images - 1, batch_size=128, shuffle=True, drop_last=True)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    Trainer(max_epochs=epochs, accelerator="cpu", **quiet).fit(module, loader)
    with torch.no_grad():
        return (module.eval().sample(n) + 1) / 2


def trained_rows() -> Iterator[list[str]]:
    """Yield what the tests say of generators that were trained, against digits that they were not trained on."""
    images, labels = digits()[0], torch.tensor(load_digits().target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    training, real = order[:1200], images[order[1200:]]
    whole = dcgan_samples(images[training], 81, len(real))
    others = {
        "stopped after 20 epochs": dcgan_samples(images[training], 20, len(real)),
        "trained without the digit 3": dcgan_samples(images[training[labels[training] != 3]], 81, len(real)),
    }
    yield ["81 epochs", f"{float(two_sample_test(whole, real)):.3f}", ""]
    for name, samples in others.items():
        farther = relative_similarity_test(samples, whole, real, alternative="farther")
        yield [name, f"{float(two_sample_test(samples, real)):.3f}", f"{float(farther.p_value):.2g}"]


def seconds_rows() -> Iterator[list[str]]:
    """Yield the seconds of an evaluation's parts: 1200 v 1200 images of 64×64×3, 5 regions."""
    generator = torch.Generator().manual_seed(0)
    fake, real = (torch.rand(1200, 3, 64, 64, generator=generator) for _ in range(2))
    partition = PixelPartition.grid((64, 64), 1, 5)
    cms = RegionMetric(partition, GaussianKernel(1e-3), None, reset_real_features=False)
    test = TwoSampleTest(partition, reset_real_features=False)
    times: dict[str, list[float]] = {"CMS of image and regions": [], "test, B = 199": [], "change from the best": []}
    for metric in (cms, test):
        metric.update(real, real=True)
    side = RealSide.of(real, None, partition)
    for _ in range(4):
        for taken, metric in zip(times.values(), (cms, test, None), strict=True):
            if metric is not None:
                metric.reset()
                metric.update(fake, real=False)
            start = time.perf_counter()
            if metric is None:
                side.influence(fake.flatten(1))
            else:
                metric.compute()
            taken.append(time.perf_counter() - start)
    base = median(times["CMS of image and regions"][1:])
    for name, taken in times.items():
        yield [name, f"{median(taken[1:]):.2f}", f"{median(taken[1:]) / base:.2f}"]


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
    machine = {"threads": torch.get_num_threads(), "processor": platform.processor() or platform.machine()}
    command = " ".join(["python benchmarks/detection.py", *sys.argv[1:]])
    print(HEAD.format(command=command, **machine, **versions, n=N, clusters=CLUSTERS))
    sets = sources()
    if "naming" in args.tables:
        level_and_naming(sets, args.runs, args.null)
    if "alerts" in args.tables:
        columns = ["change", "runs", "false alarms in 1,000", "evaluations until the alert", "right region alone"]
        rows = alert_rows(sets["planted"], 100, args.runs)
        table("Alerts: planted regions, faults from the 11th evaluation on", columns, rows)
    if "real" in args.tables:
        table("Faults of real images, found in whole images", ["fault", "found"], real_fault_rows())
        columns = ["DCGAN of the digits", "p-value against real images", "p-value: farther than that of 81 epochs"]
        table("Generators that were trained", columns, trained_rows())
    if "seconds" in args.tables:
        table("Seconds: 1200 v 1200 images of 64×64×3, 5 regions", ["part", "seconds", "× CMS"], seconds_rows())


def level_and_naming(sets: dict[str, Source], runs: int, count: int) -> None:
    """Print how often each method is right about real and about faulty images, and draw the latter."""
    nulls = {name: nulls_of(source, count) for name, source in sets.items()}
    columns = ["images", "evaluations", "test, any region", "test, image", "below the band", "below 5 % quantiles"]
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
