# SPDX-License-Identifier: Apache-2.0
"""Which clusters CKA finds where the true regions are known, from all images at once and from mini-batches of 100.

python examples/papers/cms/cluster_recovery.py

Four planted regions and three like a face's: the adjusted Rand index of what is found with the true ones, 1 where they
are the same, for the true number of clusters and for the number on which halves of the images agree best.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from planted import planted_images, planted_labels
from regions import digits, three_regions

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.regions.clustering import find_clusters
from genmonitor.findings.tables import Table, aligned
from genmonitor.functional import pixel_cka
from genmonitor.linalg.clustering import adjusted_rand_index
from genmonitor.plotting.style import add_axes, new_figure, show_regions

COUNTS = (200, 400, 800)
BATCH = 100
CLUSTERS = 5
"""Of the digits, whose true regions nobody knows."""


def draws_of(n: int, draws: int) -> dict[str, tuple[list[Tensor], Tensor]]:
    """Return draws of n images, and the true regions, by set."""
    faces, labels = three_regions(n * draws)
    planted = [planted_images(n, seed=draw) for draw in range(draws)]
    return {"planted, 4 regions": (planted, planted_labels()), "like faces, 3 regions": (list(faces.split(n)), labels)}


def found_by(m: int | None, count: int | None) -> Callable[[Tensor], PixelPartition]:
    """Return what finds a number of clusters by average linkage; the most stable ones for None."""

    def find(images: Tensor) -> PixelPartition:
        kernel = GaussianKernel().resolved(images.flatten(1))
        if count is None:
            return find_clusters(images, kernel, RegionSettings(patch_size=1, batch_estimator=m)).partition
        matrix = pixel_cka(images, kernel=kernel, batch_estimator=m)
        return PixelPartition.from_cka(matrix, (images.shape[2], images.shape[3]), count)

    return find


def recovery(counts: tuple[int, ...], draws: int) -> Table:
    """Return how far what is found is what is true."""
    rows = []
    for n in counts:
        for name, (drawn, truth) in draws_of(n, draws).items():
            cells = []
            for m in (None, BATCH):
                for count in (int(truth.max()), None):
                    found = [found_by(m, count)(images) for images in drawn]
                    index = fmean(adjusted_rand_index(of.labels.flatten(), truth.flatten()) for of in found)
                    numbers = Counter(of.num_clusters for of in found)
                    said = ", ".join(f"{number}: {times}" for number, times in sorted(numbers.items()))
                    cells.append(f"{index:.2f}" if count else f"{index:.2f} ({said})")
            rows.append([name, n, *cells])
    kinds = ("true number", "by itself (number: draws)")
    columns = [f"{m}, {kind}" for m in ("all", f"of {BATCH}") for kind in kinds]
    return Table(["set", "images", *columns], rows)


def between_independent(n: int) -> tuple[float, float]:
    """Return the mean CKA of pixels of different planted regions, from all images and from mini-batches."""
    images, labels = planted_images(n, seed=0), planted_labels().flatten()
    apart = (labels[:, None] != labels) & (labels[:, None] > 0) & (labels > 0)
    kernel = GaussianKernel().resolved(images.flatten(1))
    means = [float(pixel_cka(images, kernel=kernel, batch_estimator=m)[apart].mean()) for m in (None, BATCH)]
    return means[0], means[1]


def matched(first: Tensor, second: Tensor) -> float:
    """Return the part of sites in the same cluster, where clusters are paired so that it is largest."""
    from scipy.optimize import linear_sum_assignment

    size = 1 + int(max(first.max(), second.max()))
    table = torch.bincount((first * size + second).flatten(), minlength=size**2).reshape(size, size).numpy()
    return float(table[linear_sum_assignment(-table)].sum() / first.numel())


def main() -> None:
    """Print the tables, and draw the digits' clusters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="images")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/cluster-recovery.png"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(aligned(recovery(tuple(args.counts), args.draws)))
    exact, batches = between_independent(1000)
    print(f"\nMean CKA of independent pixels: {exact:.4f} from 1000 planted images, {batches:.4f} from mini-batches")
    some = digits()[0][:1000]
    maps = {"all 1000 at once": None, f"mini-batches of {BATCH}": BATCH}
    found = {name: found_by(m, CLUSTERS)(some).labels for name, m in maps.items()}
    first, second = found.values()
    index = adjusted_rand_index(first.flatten(), second.flatten())
    said = f"{matched(first, second):.0%} of the sites in the same one, adjusted Rand index {index:.2f}"
    print(f"{CLUSTERS} clusters of 1000 digits, from all and from mini-batches: {said}")
    figure = new_figure(520, 345, f"{CLUSTERS} clusters of digits by average linkage", "gray: pixels that never vary")
    for i, (name, labels) in enumerate(found.items()):
        ax = add_axes(figure, 20 + 250 * i, 25, 220, 220)
        show_regions(ax, labels.numpy())
        ax.set_title(name, fontsize=11)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out)
    print(f"Figure: {args.out}")


if __name__ == "__main__":
    main()
