# SPDX-License-Identifier: Apache-2.0
"""Train configurations with several seeds each: mean and band of every cluster's curve, and which is learned first.

python examples/compare_seeds.py --config examples/configs/dcgan-digits.yaml --seeds 5
python examples/compare_seeds.py --config examples/configs/dcgan-digits.yaml examples/configs/ddpm-digits.yaml

Whatever else is on the command line goes to `examples/train.py`: `--trainer.max_epochs 40`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest import mock

import torch
from matplotlib.figure import Figure
from torch import Tensor
from train import command_line

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.plotting.style import (
    FAINT,
    INK,
    add_axes,
    cluster_color,
    cluster_name,
    cms_axis,
    epoch_axis,
    new_figure,
    show_regions,
)

COLLAPSED = 5
"""A seed has collapsed where its image's loss, -log CMS, ends at more than so many times the median seed's."""
LEARNED = 0.1
"""A cluster is learned once its loss has fallen to this fraction of what it was at the first evaluation."""


@dataclass(frozen=True)
class Runs:
    """The evaluations of one configuration's runs, by seed, and their clusters, the same for all."""

    name: str
    histories: dict[int, list[dict[str, float]]]
    labels: Tensor

    @property
    def regions(self) -> dict[str, int]:
        """The curves' names and labels."""
        return {f"cluster_{label}": label for label in range(1, int(self.labels.max()) + 1)}

    @property
    def epochs(self) -> list[float]:
        """One per evaluation."""
        return [record["epoch"] for record in next(iter(self.histories.values()))]

    def collapsed(self) -> list[int]:
        """Name the seeds whose loss ends far above the others'."""
        ends = {seed: loss(history[-1]["image"]) for seed, history in self.histories.items()}
        return [seed for seed, end in ends.items() if end > COLLAPSED * median(ends.values())]

    def curves(self, region: str) -> list[list[float]]:
        """Return a region's CMS for each seed that has not collapsed, one per evaluation."""
        return [[c[region] for c in h] for seed, h in self.histories.items() if seed not in self.collapsed()]

    def goal(self, region: str) -> float:
        """Return the loss at which a region counts as learned."""
        return LEARNED * loss(self.mean(region)[0])

    def mean(self, region: str) -> list[float]:
        """Return a region's CMS, the mean over the seeds that have not collapsed, one per evaluation."""
        return [fmean(values) for values in zip(*self.curves(region), strict=True)]

    def learned(self, region: str) -> float:
        """Return the epoch at which a region's mean curve was learned, between two evaluations; infinite if never."""
        goal, losses = self.goal(region), [loss(value) for value in self.mean(region)]
        for (start, before), (end, after) in pairwise(zip(self.epochs, losses, strict=True)):
            if after <= goal:
                return start + (end - start) * math.log(before / goal) / math.log(before / max(after, 1e-12))
        return math.inf


def loss(cms: float) -> float:
    """Return -log CMS."""
    return -math.log(max(cms, 1e-12))


def run_seeds(config: Path, seeds: int, words: Sequence[str], out: Path) -> Runs:
    """Train a configuration with seeds 0, 1, …; what a run measured is kept in `out` and not trained again."""
    histories, labels = {}, torch.zeros(0)
    for seed in range(seeds):
        kept = out / f"{config.stem}-seed-{seed}.json"
        asked = {"config": config.read_text(), "words": list(words)}
        if not kept.exists() or json.loads(kept.read_text())["asked"] != asked:
            history, labels = run_seed(config, seed, words, out)
            kept.write_text(json.dumps({"asked": asked, "history": history, "labels": labels.tolist()}))
        known = json.loads(kept.read_text())
        histories[seed], labels = known["history"], torch.tensor(known["labels"])
    return Runs(config.stem, histories, labels)


def run_seed(config: Path, seed: int, words: Sequence[str], out: Path) -> tuple[list[dict[str, float]], Tensor]:
    """Train once; return the evaluations and the map of the clusters."""
    where = ["--trainer.logger.save_dir", str(out), "--trainer.logger.name", f"{config.stem}-seed-{seed}"]
    with mock.patch.object(sys, "argv", sys.argv[:1]):  # which Lightning takes for a second command line
        trainer = command_line(["fit", "--config", str(config), "--seed_everything", str(seed), *where, *words]).trainer
    monitor = next((c for c in trainer.callbacks if isinstance(c, PixelClusterMonitor)), None)
    if monitor is None or monitor.partition is None:
        raise ValueError(f"Expected a PixelClusterMonitor among the callbacks of {config}, but there is none. Add one.")
    return monitor.history, monitor.partition.pixel_labels()


def comparison(runs: Sequence[Runs]) -> Figure:
    """Draw a row for each configuration: curves as mean and band over the seeds, and the map of the clusters."""
    height = 330
    note = "line: mean over seeds; band: lowest to highest; ring: learned, the loss is a tenth of what it was"
    figure = new_figure(1000, 70 + height * len(runs), "CMS per cluster over several seeds", note)
    axes = [add_axes(figure, 92, 52 + height * (len(runs) - 1 - row), 560, height - 85) for row in range(len(runs))]
    values = [x for of in runs for region in of.regions for curve in of.curves(region) for x in curve]
    cms_axis(axes, values)
    for row, (of, ax) in enumerate(zip(runs, axes, strict=True)):
        epoch_axis(ax, of.epochs)
        draw_row(ax, of)
        place = 100 + height * (len(runs) - 1 - row)
        show_regions(add_axes(figure, 720, place, 190, 190), of.labels.numpy())
    return figure


def draw_row(ax: Any, of: Runs) -> None:
    """Draw one configuration's curves."""
    lost = of.collapsed()
    for region, label in of.regions.items():
        curves, color = torch.tensor(of.curves(region)), cluster_color(label)
        ax.fill_between(of.epochs, curves.amin(0), curves.amax(0), color=color, alpha=0.2, linewidth=0)
        ax.plot(of.epochs, of.mean(region), color=color, linewidth=2, label=cluster_name(label))
        for seed in lost:
            ax.plot(of.epochs, [record[region] for record in of.histories[seed]], ":", color=color, linewidth=1)
        epoch = of.learned(region)
        if epoch < math.inf:
            ax.plot(
                epoch, math.exp(-of.goal(region)), "o", markersize=9, color="white", markeredgecolor=color, zorder=3
            )
    seeds = len(of.histories) - len(lost)
    said = f", collapsed (dotted): seed {', '.join(map(str, lost))}" if lost else ""
    ax.set_title(f"{of.name}, seeds: {seeds}{said}", loc="left", fontsize=11, color=INK)
    ax.legend(loc="lower right", fontsize=9, frameon=False, labelcolor=FAINT)


def table(runs: Sequence[Runs]) -> str:
    """Say in which order each configuration learns its clusters, and which seeds collapsed."""
    lines = []
    for of in runs:
        order = sorted(of.regions, key=of.learned)
        said = [
            f"{region} ({'not' if of.learned(region) == math.inf else f'epoch {of.learned(region):.1f}'})"
            for region in order
        ]
        lines += [f"{of.name}: learned in the order {', '.join(said)}"]
        lost = ", ".join(map(str, of.collapsed()))
        lines += [f"{of.name}: collapsed seeds: {lost or 'none'}"]
    return "\n".join(lines)


def main(args: Sequence[str] | None = None) -> None:
    """Train, draw, and say what was learned first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/compare-seeds"), help="where runs and figure go")
    given, words = parser.parse_known_args(args)
    runs = [run_seeds(config, given.seeds, words, given.out) for config in given.config]
    comparison(runs).savefig(given.out / "comparison.png")
    print(table(runs))
    print(f"Figure: {given.out / 'comparison.png'}")


if __name__ == "__main__":
    main()
