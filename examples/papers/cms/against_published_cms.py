# SPDX-License-Identifier: Apache-2.0
"""Compare CMS, MMD, CKA and the clusters here with the authors' code, on scikit-learn's digits.

git clone https://github.com/MLO-lab/Disentangling_Mean_Embeddings ../disentangling
python examples/papers/cms/against_published_cms.py ../disentangling     # two minutes; a table of differences
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score, pairwise

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.functional import cosine_mean_similarity, maximum_mean_discrepancy, pixel_cka

BLOCKS = (150, 100, 50)
MINI_BATCH = 100


def load(repository: Path) -> ModuleType:
    """Import the authors' metrics, with the CKA of their notebook; what they import for processes is left out."""
    spec = importlib.util.spec_from_file_location("published_cms", repository / "lib/metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {name: MagicMock() for name in ("multiprocess", "lib", "lib.notebook")}):
        spec.loader.exec_module(module)
    notebook = json.loads((repository / "experiments.ipynb").read_text())
    cell = next(text for x in notebook["cells"] if (text := "".join(x["source"])).startswith("def CKA("))
    exec(cell, names := {"np": np, "pairwise": pairwise})
    module.CKA = names["CKA"]  # type: ignore[attr-defined]
    return module


def digits() -> torch.Tensor:
    """Return scikit-learn's digits in [-1, 1], float64 [1797, 1, 8, 8]."""
    return torch.tensor(load_digits().images / 8 - 1)[:, None]


def compare_means(
    published: ModuleType, gamma: float, fake: torch.Tensor, real: torch.Tensor
) -> list[tuple[str, float]]:
    """Return the largest difference of each value over blocks of all sizes."""

    def kernel(x: Any, y: Any) -> Any:
        return pairwise.rbf_kernel(x, y, gamma=gamma)

    ours, halves = GaussianKernel(gamma), PixelPartition.grid((8, 8), 1, 2)
    sides = {"image": slice(0, 8), "cluster_1": slice(0, 4), "cluster_2": slice(4, 8)}
    off: dict[str, list[float]] = {"MMD": [], "CMS of image, clusters, product": [], "with unbiased norms": []}
    for block in BLOCKS:

        def theirs(measure: Callable[..., float], columns: slice = sides["image"], block: int = block) -> float:
            x, y = (
                side[..., columns].flatten(1).numpy().reshape(len(side) // block, block, -1) for side in (fake, real)
            )
            return float(np.mean([measure(a, b, kernel=kernel) for a in x for b in y]))

        settings: dict[str, Any] = {"kernel": ours, "block_size": block}
        off["MMD"].append(abs(theirs(published.sMMD) - float(maximum_mean_discrepancy(fake, real, **settings))))
        found = cosine_mean_similarity(fake, real, partition=halves, **settings)
        expected = {name: theirs(published.cos_, columns) for name, columns in sides.items()}
        expected["product"] = expected["cluster_1"] * expected["cluster_2"]
        off["CMS of image, clusters, product"] += [abs(float(found[name]) - x) for name, x in expected.items()]
        unbiased = float(cosine_mean_similarity(fake, real, unbiased=True, **settings))
        off["with unbiased norms"].append(abs(unbiased - theirs(published.cos_debias)))
    return [(f"{name}, blocks of {', '.join(map(str, BLOCKS))}", max(found)) for name, found in off.items()]


def compare_cka(published: ModuleType, gamma: float, images: torch.Tensor) -> tuple[float, int]:
    """Return the largest difference of CKA of pixels that vary in each mini-batch, and how many clusterings agree."""
    batches = [x.flatten(1).numpy() for x in images.split(MINI_BATCH) if len(x) == MINI_BATCH]
    vary = np.all([np.ptp(x, axis=0) > 0 for x in batches], axis=0).nonzero()[0]
    theirs = np.ones((len(vary), len(vary)))
    for i, a in enumerate(vary):
        for j, b in enumerate(vary[:i]):
            both = [
                published.CKA(x[:, [a]], x[:, [b]], lambda x, y: pairwise.rbf_kernel(x, y, gamma=gamma))
                for x in batches
            ]
            theirs[i, j] = theirs[j, i] = np.mean(both)
    ours = pixel_cka(images, kernel=GaussianKernel(gamma), batch_estimator=MINI_BATCH, tolerance=1e-12)[vary][:, vary]
    tree, same = linkage(pdist(theirs), method="average"), 0
    for count in range(2, 11):
        labels = PixelPartition.from_cka(ours, (1, len(vary)), count, linkage="average").labels[0]
        same += adjusted_rand_score(labels, fcluster(tree, criterion="maxclust", t=count)) == 1
    return float(np.abs(ours.numpy() - theirs).max()), same


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a clone of github.com/MLO-lab/Disentangling_Mean_Embeddings")
    parser.add_argument("-n", type=int, default=1000, help="digits whose pixels are compared by CKA")
    args = parser.parse_args()
    published, images = load(args.repository), digits()
    flat = images[:1000].flatten(1).numpy()
    gamma = 1 / float(np.median(pairwise.euclidean_distances(flat, squared=True)))
    print(f"1 / median squared distance of 1000 digits: {gamma:.15f}\n\nlargest difference")
    rows = compare_means(published, gamma, images[1000:1300], images[1300:1600])
    cka, same = compare_cka(published, gamma, images[: args.n])
    for name, off in [*rows, (f"CKA of pixels, mini-batches of {MINI_BATCH}", cka)]:
        print(f"{name:<58}{off:.0e}")
    print(f"numbers of clusters from 2 to 10 with the same clusters: {same} of 9")


if __name__ == "__main__":
    main()
