# SPDX-License-Identifier: Apache-2.0
"""Theorem 1 and Corollary 1 on images whose regions are independent by construction.

python examples/papers/cms/theorem_1.py

Every region of the planted images differs between the two sides, one of them most. With the true regions, the product
of their CMS approaches the image's as images are added; with a grid that cuts through regions it does not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean

import torch
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[2]))

from planted import planted_images, planted_labels

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.findings.tables import Table, aligned
from genmonitor.functional import cosine_mean_similarity
from genmonitor.plotting.style import FAINT, add_axes, cluster_color, new_figure

COUNTS = (50, 100, 200, 500, 1000, 2000)
PARTITIONS = {
    "true regions": PixelPartition(planted_labels()),
    "2 × 2 grid": PixelPartition.grid((16, 16), rows=2, columns=2),
}


def values(n: int, draw: int, unbiased: bool) -> dict[str, dict[str, float]]:
    """Return the values of n images of each side by partition."""
    real = planted_images(n, seed=2 * draw)
    fake = 0.8 * planted_images(n, seed=2 * draw + 1, spoiled=3)
    kernel = GaussianKernel().resolved(planted_images(1000, seed=10_000).flatten(1))
    found = {
        name: cosine_mean_similarity(fake, real, kernel=kernel, partition=partition, unbiased=unbiased)
        for name, partition in PARTITIONS.items()
    }
    return {name: {key: float(value) for key, value in of.items()} for name, of in found.items()}


def measure(counts: tuple[int, ...], draws: int, unbiased: bool) -> tuple[Table, dict[str, list[float]]]:
    """Return a table of means over draws, and the distances between product and image by partition."""
    rows, distances = [], {name: [] for name in PARTITIONS}
    for n in counts:
        found = [values(n, draw, unbiased) for draw in range(draws)]
        true = [of["true regions"] for of in found]
        row = [n, f"{fmean(of['image'] for of in true):.5f}"]
        for name in PARTITIONS:
            products = [of[name]["product"] for of in found]
            distances[name].append(fmean(abs(of[name]["product"] - of[name]["image"]) for of in found))
            row += [f"{fmean(products):.5f}", f"{distances[name][-1]:.5f}"]
        lowest = fmean(min(value for key, value in of.items() if key.startswith("cluster_")) for of in true)
        violated = sum(of["violations"] > 0 for of in true)
        rows.append([*row, f"{lowest:.5f}", f"{violated} of {draws}", f"{fmean(of['share_3'] for of in true):.2f}"])
    parts = [word for name in PARTITIONS for word in (f"product, {name}", "distance")]
    return Table(["images", "CMS", *parts, "lowest region", "violations", "share of region 3"], rows), distances


def picture(counts: tuple[int, ...], distances: dict[str, dict[str, list[float]]]) -> Figure:
    """Draw the distance between product and image against the number of images."""
    note = "the mean over draws of planted images; regions are exactly independent, quarters of the image are not"
    figure = new_figure(760, 380, "Theorem 1: how far the product of the regions is from the image's CMS", note)
    ax = add_axes(figure, 90, 55, 620, 260)
    for label, name in enumerate(PARTITIONS, 1):
        for estimator, style in (("plug-in", "-"), ("unbiased norms", "--")):
            ax.plot(counts, distances[estimator][name], style, color=cluster_color(label), label=f"{name}, {estimator}")
    ax.set(xscale="log", yscale="log", xlabel="images on each side", ylabel="|product - image|")
    ax.set_xticks(counts, map(str, counts))
    ax.set_xticks([], minor=True)
    ax.legend(fontsize=9, frameon=False, labelcolor=FAINT)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Print the tables, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="images on each side")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/theorem-1.png"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    found, counts = {}, tuple(args.counts)
    for estimator, unbiased in (("plug-in", False), ("unbiased norms", True)):
        table, found[estimator] = measure(counts, args.draws, unbiased)
        print(f"{estimator}\n{aligned(table)}\n")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    picture(counts, found).savefig(args.out)
    print(f"Figure: {args.out}")


if __name__ == "__main__":
    main()
