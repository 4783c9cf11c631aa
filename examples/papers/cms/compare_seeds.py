# SPDX-License-Identifier: Apache-2.0
"""Train configurations with several seeds each: mean and band of every curve, and which cluster is learned first.

python examples/papers/cms/compare_seeds.py --config examples/configs/dcgan-digits.yaml --seeds 5

Several files after `--config` are compared with each other. Whatever else is on the command line goes to
`examples/train.py`: `--trainer.max_epochs 40`, or `--metrics FILE` for FID beside CMS. A seed has collapsed where its
image's loss, -log CMS, ends at more than five times the median seed's: curves and means leave it out, the table has
both, and `--with-collapsed` draws it like the others.
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

sys.path.insert(0, str(Path(__file__).parents[2]))

from curves import cms_axis, epoch_axis
from train import command_line

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.findings.tables import Table, aligned
from genmonitor.plotting.style import (
    FAINT,
    INK,
    add_axes,
    cluster_color,
    cluster_name,
    new_figure,
    show_regions,
)

COLLAPSED = 5
"""A seed has collapsed where its image's loss, -log CMS, ends at more than so many times the median seed's."""
LEARNED = 0.1
"""A cluster is learned once its loss has fallen to this fraction of what it was at the first evaluation."""
WHOLE = {
    "image": "CMS of the image (higher is better)",
    "product": "product of the clusters' CMS",
    "mmd": "squared MMD (lower is better)",
    "fid": "FID (lower is better)",
    "kid": "KID (lower is better)",
    "inception_score": "Inception score (higher is better)",
}
"""What is measured of whole images, as far as a run has it, by the name of its curve."""


@dataclass(frozen=True)
class Runs:
    """The evaluations of one configuration's runs, by seed, and their clusters, the same for all."""

    name: str
    histories: dict[int, list[dict[str, float]]]
    labels: Tensor
    with_collapsed: bool = False

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

    def left_out(self) -> list[int]:
        """Name the seeds that means and bands are without."""
        return [] if self.with_collapsed else self.collapsed()

    def curves(self, name: str) -> list[list[float]]:
        """Return a value for each seed that is not left out, one per evaluation."""
        return [[record[name] for record in h] for seed, h in self.histories.items() if seed not in self.left_out()]

    def goal(self, region: str) -> float:
        """Return the loss at which a region counts as learned."""
        return LEARNED * loss(self.mean(region)[0])

    def mean(self, name: str) -> list[float]:
        """Return a value's mean over the seeds that are not left out, one per evaluation."""
        return [fmean(values) for values in zip(*self.curves(name), strict=True)]

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


def run_seeds(config: Path, seeds: int, words: Sequence[str], out: Path, with_collapsed: bool) -> Runs:
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
    return Runs(config.stem, histories, labels, with_collapsed)


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
    cms_axis(axes, [x for of in runs for region in of.regions for curve in of.curves(region) for x in curve])
    for row, (of, ax) in enumerate(zip(runs, axes, strict=True)):
        epoch_axis(ax, of.epochs)
        for region, label in of.regions.items():
            draw(ax, of, region, cluster_color(label), cluster_name(label))
            epoch = of.learned(region)
            if epoch < math.inf:
                ring = {"markersize": 9, "color": "white", "markeredgecolor": cluster_color(label), "zorder": 3}
                ax.plot(epoch, math.exp(-of.goal(region)), "o", **ring)
        lost, seeds = of.left_out(), len(of.histories) - len(of.left_out())
        said = f", collapsed (dotted): seed {', '.join(map(str, lost))}" if lost else ""
        ax.set_title(f"{of.name}, seeds: {seeds}{said}", loc="left", fontsize=11, color=INK)
        ax.legend(loc="lower right", fontsize=9, frameon=False, labelcolor=FAINT)
        show_regions(add_axes(figure, 720, 100 + height * (len(runs) - 1 - row), 190, 190), of.labels.numpy())
    return figure


def whole_images(runs: Sequence[Runs]) -> Figure:
    """Draw a panel for each value of whole images, with a line and a band for each configuration."""
    names, side, columns = measured(runs), 240, 2
    rows = -(-len(names) // columns)
    lost = any(of.left_out() for of in runs)
    note = f"line: mean over seeds; band: lowest to highest{'; dotted: collapsed seeds, which neither has' * lost}"
    figure = new_figure(1000, 96 + (side + 70) * rows, "Values of whole images over several seeds", note)
    for i, name in enumerate(names):
        row, column = divmod(i, columns)
        ax = add_axes(figure, 80 + 490 * column, 60 + (side + 70) * (rows - 1 - row), 390, side)
        if name in ("image", "product"):  # one scale for both
            both = [curve for of in runs for one in ("image", "product") for curve in of.curves(one)]
            cms_axis([ax], [x for curve in both for x in curve])
        epoch_axis(ax, max((of.epochs for of in runs), key=max))
        ax.set_ylabel("")
        for of, color in zip(runs, map(cluster_color, range(1, 1 + len(runs))), strict=True):
            draw(ax, of, name, color, of.name)
        values = [x for of in runs for curve in of.curves(name) for x in curve]
        if name not in ("image", "product") and min(values) > 0:
            ax.set_yscale("log")
        ax.set_title(WHOLE[name], loc="left", fontsize=11, color=INK)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="best", fontsize=9, frameon=False, labelcolor=FAINT)
    return figure


def draw(ax: Any, of: Runs, name: str, color: str, label: str) -> None:
    """Draw a value of one configuration: mean, band and, dotted, the seeds that are left out."""
    curves = torch.tensor(of.curves(name))
    ax.fill_between(of.epochs, curves.amin(0), curves.amax(0), color=color, alpha=0.2, linewidth=0)
    ax.plot(of.epochs, of.mean(name), color=color, linewidth=2, label=label)
    for seed in of.left_out():
        ax.plot(of.epochs, [record[name] for record in of.histories[seed]], ":", color=color, linewidth=1)


def measured(runs: Sequence[Runs]) -> list[str]:
    """Name the values of whole images that all runs have."""
    records = [record for of in runs for history in of.histories.values() for record in history]
    return [name for name in WHOLE if all(name in record for record in records)]


def learned_first(runs: Sequence[Runs]) -> str:
    """Say in which order each configuration learns its clusters, and which seeds collapsed."""
    lines = []
    for of in runs:
        epochs = sorted((of.learned(region), region) for region in of.regions)
        said = [f"{region} ({'not' if epoch == math.inf else f'epoch {epoch:.1f}'})" for epoch, region in epochs]
        lines += [f"{of.name}: learned in the order {', '.join(said)}"]
        lines += [f"{of.name}: collapsed seeds: {', '.join(map(str, of.collapsed())) or 'none'}"]
    return "\n".join(lines)


def at_the_end(runs: Sequence[Runs]) -> str:
    """Return a table of the last evaluations, with and without the collapsed seeds: mean (lowest to highest)."""
    names, rows = [*measured(runs), *max((of.regions for of in runs), key=len)], []
    for of in runs:
        both = {"all": [], "not collapsed": of.collapsed()}
        for told, lost in both.items() if of.collapsed() else [("all", [])]:
            last = [history[-1] for seed, history in of.histories.items() if seed not in lost]
            cells = [[record[name] for record in last if name in record] for name in names]
            row = [f"{fmean(x):.4g} ({min(x):.4g} to {max(x):.4g})" if x else "" for x in cells]
            rows.append([of.name, f"{told}: {len(last)}", *row])
    # a column for each run, since the values are many
    turned = [list(row) for row in zip(["seeds", *names], *(row[1:] for row in rows), strict=True)]
    return aligned(Table(["at the end", *(row[0] for row in rows)], turned))


def main(args: Sequence[str] | None = None) -> None:
    """Train, draw, and say what was learned first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--with-collapsed", action="store_true", help="means and bands over all seeds")
    parser.add_argument("--out", type=Path, default=Path("runs/compare-seeds"), help="where runs and figures go")
    given, words = parser.parse_known_args(args)
    given.out.mkdir(parents=True, exist_ok=True)
    runs = [run_seeds(config, given.seeds, words, given.out, given.with_collapsed) for config in given.config]
    for name, figure in {"comparison": comparison(runs), "whole-images": whole_images(runs)}.items():
        figure.savefig(given.out / f"{name}.png")
    print(learned_first(runs), at_the_end(runs), sep="\n\n")
    print(f"Figures: {given.out / 'comparison.png'}, {given.out / 'whole-images.png'}")


if __name__ == "__main__":
    main()
