# SPDX-License-Identifier: Apache-2.0
"""Compare Scendi here with the authors' code, on embeddings of which prompts explain a part.

git clone https://github.com/aziksh-ospanov/scendi-score ../scendi-score
python examples/papers/scendi/against_published_scendi.py ../scendi-score   # seconds; both scores side by side
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock, patch

import torch
from torch import Tensor
from torch.nn.functional import normalize

from genmonitor import GaussianKernel
from genmonitor.functional import scendi_score
from genmonitor.functional.scendi import JointCovariance, scendi_from_covariances
from genmonitor.kernels.covariance import random_features

DIM, CLASSES = 32, 9


def load(repository: Path) -> ModuleType:
    """Import the authors' formulas; in place of torchvision, which they need for pictures, stands nothing."""
    spec = importlib.util.spec_from_file_location("published", repository / "scendi/metric/algorithm_utils.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    missing = ("torchvision", "torchvision.utils", "torchvision.transforms")
    with patch.dict(sys.modules, {name: MagicMock() for name in missing}):
        spec.loader.exec_module(module)
    module.tqdm = lambda iterable: iterable  # type: ignore[attr-defined]
    return module


def draw_pairs(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw outputs and prompts [n, 32] of length one: nine prompts, and outputs around a linear map of them."""
    generator = torch.Generator().manual_seed(seed)
    prompts = normalize(torch.randn(CLASSES, DIM, generator=generator))[torch.arange(n) % CLASSES]
    image = prompts @ torch.randn(DIM, DIM, generator=generator) / DIM**0.5
    noise = torch.randn(n, 4, generator=generator) @ torch.randn(4, DIM, generator=generator)
    return normalize(image + 0.1 * noise), prompts


def gaussian(published: ModuleType, x: Tensor, t: Tensor, sigma: float, size: int) -> dict[str, tuple[float, float]]:
    """Return Scendi of a Gaussian kernel, theirs and ours: on the same frequencies, and the mean of five draws."""
    kernel, settings = GaussianKernel.from_sigma(sigma), SimpleNamespace(kernel="gaussian", rff_dim=size, sigma=sigma)
    settings.batchsize = 64

    def ours(seed: int) -> float:
        return float(scendi_score(x, t, kernel=kernel, prompt_kernel=kernel, num_features=size, seed=seed)["scendi"])

    def theirs(frequencies: Tensor) -> float:  # [D, size] of width one, which they draw for both sides at once
        with patch("torch.randn", lambda *_, **__: frequencies):
            return float(published.rff_sce_from_feats(t, x, settings)[0])

    same = sigma * random_features(kernel, DIM, size, 0).frequencies.T.float()
    draws = [torch.randn(DIM, size, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    means = sum(map(theirs, draws)) / 5, sum(map(ours, range(5))) / 5
    return {"the same frequencies": (theirs(same), ours(0)), "mean of five draws": means}


def cosine(published: ModuleType, x: Tensor, t: Tensor) -> tuple[float, float]:
    """Return what theirs calls the cosine kernel, and ours of the same: the cosine of columns over all samples."""
    both = normalize(torch.cat([x, t], 1).double(), dim=0)
    columns = JointCovariance.of(both.T @ both / DIM, DIM, len(x))
    found = float(published.rff_sce_from_feats(t, x, SimpleNamespace(kernel="cosine"))[0])
    return found, float(scendi_from_covariances(columns)["scendi"])


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a clone of github.com/aziksh-ospanov/scendi-score")
    parser.add_argument("-n", type=int, default=2000, help="pairs")
    parser.add_argument("--sigma", type=float, default=0.7, help="width of the Gaussian kernel")
    parser.add_argument("--num-features", type=int, default=300, help="random frequencies")
    args = parser.parse_args()
    published, (x, t) = load(args.repository), draw_pairs(args.n)
    print(f"{f'Scendi of {args.n} pairs':<34}theirs      here")
    rows = gaussian(published, x, t, args.sigma, args.num_features)
    rows["cosine of columns"] = cosine(published, x, t)
    for name, (theirs, ours) in rows.items():
        print(f"{name:<34}{theirs:<12.5f}{ours:.5f}")
    kernel = GaussianKernel.from_sigma(args.sigma)
    exact = scendi_score(x, t, kernel=kernel, prompt_kernel=kernel)
    for name, score in (("without random features", exact), ("cosine of samples, as in the paper", scendi_score(x, t))):
        print(f"{name:<46}{float(score['scendi']):.5f}")


if __name__ == "__main__":
    main()
