# SPDX-License-Identifier: Apache-2.0
"""Compare W1KP here with the authors' code, on random embeddings and with their calibration.

git clone https://github.com/castorini/w1kp ../w1kp
python examples/papers/w1kp/against_published.py ../w1kp        # a minute; a table of differences

Their code measures images by DreamSim; here it is given the embeddings themselves. What it imports and is not
installed is left out, since none of it is used.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn.functional import normalize

from genmonitor.functional import W1KPCalibration, calibrate, w1kp_score
from genmonitor.functional.w1kp import expected_closest_pairs

DIM = 64
SIZES = (3, 5, 10, 25, 50)
"""Subset sizes that are compared, of those that the authors' code takes."""


class Published:
    """The authors' functions.

    Args:
        repository: a clone of theirs.
    """

    def __init__(self, repository: Path) -> None:
        self.utils = _load(repository / "w1kp/utils.py")
        self.distance = _load(repository / "w1kp/model/distance.py")
        x, y = torch.load(repository / "cdf-xy.pt", weights_only=False)
        self.calibration = x, y

    def normalize(self, distance: float | np.ndarray) -> Any:
        """Return F of a squared distance."""
        return self.utils.query_inverted_cdf(*self.calibration, distance)

    def measure(self, embeddings: Tensor, reduce: str) -> Any:
        """Return squared distances of one prompt: their mean, or the smallest of random subsets by size."""
        given = MagicMock(preprocess=lambda image: image)
        given.model.embed = lambda images: images
        with patch.object(Tensor, "cuda", lambda tensor: tensor):
            measure = self.distance.ListwiseDreamSimDistanceMeasure(given)
            return measure.measure("", list(embeddings.split(1)), reduce=reduce)


def _load(path: Path) -> ModuleType:
    """Import a file; in place of what is not installed stands something that does nothing."""
    spec = importlib.util.spec_from_file_location(f"published_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    missing: set[str] = set()
    try:
        while True:
            try:
                spec.loader.exec_module(module)
            except ModuleNotFoundError as error:
                missing.add(str(error.name))
                sys.modules[str(error.name)] = MagicMock()
            else:
                return module
    finally:
        for name in missing:
            del sys.modules[name]


def embeddings_of(prompt: int, n: int, spread: float) -> Tensor:
    """Return embeddings of length one around a center of the prompt's own [n, 64]."""
    generator = torch.Generator().manual_seed(prompt)
    center = torch.randn(DIM, generator=generator, dtype=torch.float64)
    return normalize(center + spread * torch.randn(n, DIM, generator=generator, dtype=torch.float64), dim=1)


def compare(published: Published, ours: W1KPCalibration, prompts: int, n: int) -> list[tuple[str, str]]:
    """Return what was compared, and by how much it differs."""
    queries = torch.linspace(0, 1.2, 10_000, dtype=torch.float64)
    off = np.abs(ours(queries).numpy() - published.normalize(queries.numpy())).max()
    x = embeddings_of(0, n, 1.0)
    pairs = torch.pdist(x).square()
    fitted, (knots, heights) = calibrate(x), published.utils.compute_cdf(pairs.numpy(), 0, 4.0)
    fit = max(np.abs(fitted.distances.numpy() - knots).max(), np.abs(fitted.heights.numpy() - heights).max())

    spreads = np.linspace(0.2, 0.8, prompts)
    sets = [embeddings_of(i, n, spread) for i, spread in enumerate(spreads)]
    mine = np.array([float(w1kp_score(x, calibration=ours)["w1kp"]) for x in sets])
    means = np.array([published.measure(x, "mean") for x in sets])
    mean_off = max(abs(float(torch.pdist(x).square().mean()) - mean) for x, mean in zip(sets, means, strict=True))
    theirs = 1 - published.normalize(means)

    linear = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), DIM)
    errors, closest = [], []
    for x in sets[:: max(1, prompts // 3)]:
        found = published.measure(x, "reusability")
        (values, deviations), (own, _) = (expected_closest_pairs(x, calibration=f) for f in (linear, ours))
        for k in (k for k in SIZES if k < n):
            own_distance, deviation = 4 * (1 - float(values[k - 2])), 4 * float(deviations[k - 2]) * 2**0.5
            errors.append(abs(own_distance - found[f"u{k}"]) / deviation)
            closest.append(abs(float(own[k - 2]) - (1 - published.normalize(found[f"u{k}"]))))
    collapsed = sets[0][:1].expand(5, -1)
    both = (
        float(w1kp_score(collapsed, calibration=ours)["w1kp"]),
        1 - published.normalize(published.measure(collapsed, "mean")),
    )
    return [
        ("their calibration at 10000 distances", f"{off:.1e}"),
        ("a calibration fitted to the same distances", f"{fit:.1e}"),
        ("mean squared distance of a prompt", f"{mean_off:.1e}"),
        ("W1KP, where theirs takes F of the mean", f"{np.abs(mine - theirs).max():.3f}"),
        ("   rank correlation over the prompts", f"{spearmanr(mine, theirs)[0]:.3f}"),
        ("smallest distance among k, in standard errors", f"{max(errors):.1f}"),
        ("W1KP_k, where theirs takes F of the mean", f"{max(closest):.3f}"),
        ("W1KP of five equal images, here and theirs", f"{both[0]:g}, {both[1]:g}"),
    ]


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a clone of github.com/castorini/w1kp")
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--images", type=int, default=60, help="of each prompt")
    args = parser.parse_args()
    torch.manual_seed(0)  # their subsets are drawn from the global generator
    ours = W1KPCalibration.load(args.repository / "cdf-xy.pt", dim=DIM)
    print(f"{args.prompts} prompts of {args.images} embeddings; largest differences")
    for what, value in compare(Published(args.repository), ours, args.prompts, args.images):
        print(f"{what:<48}{value:>12}")
    levels = np.interp([0.8, 0.6, 0.15], ours.heights, ours.distances)
    print("squared distances where low, medium, high similarity begin: " + ", ".join(f"{d:.3f}" for d in levels))


if __name__ == "__main__":
    main()
