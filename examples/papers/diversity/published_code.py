# SPDX-License-Identifier: Apache-2.0
"""Compare KEN, FKEA, AuthPct and CMMD here with published code, on random features.

for name in buyeah1109/KEN aziksh-ospanov/FKEA layer6ai-labs/dgm-eval sayakpaul/cmmd-pytorch; do
    git clone https://github.com/$name ../published/${name#*/}; done
python examples/papers/diversity/published_code.py ../published      # a few seconds; a table of differences
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock, patch

import torch
from torch import Tensor, nn

from genmonitor import GaussianKernel, VendiScore
from genmonitor.encoders import FeatureMetrics
from genmonitor.functional import authenticity, prompt_split

FILES = {
    "KEN": "KEN/KEN/metric/algorithm_utils.py",
    "FKEA": "FKEA/FKEA/metric/algorithm_utils.py",
    "AuthPct": "dgm-eval/dgm_eval/metrics/authpct.py",
    "CMMD": "cmmd-pytorch/distance.py",
}
FREQUENCIES = 2000
UNUSED = ("torchvision", "torchvision.utils", "torchvision.transforms")
"""What they import to save pictures."""


def load(path: Path) -> ModuleType:
    """Import a file."""
    spec = importlib.util.spec_from_file_location(f"published_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {name: MagicMock() for name in UNUSED}):
        spec.loader.exec_module(module)
    return module


def features(n: int, dim: int, seed: int) -> Tensor:
    """Return features of four kinds [n, dim], float64."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.arange(n) % 4
    return torch.eye(dim, dtype=torch.float64)[kinds] * 3 + torch.randn(n, dim, generator=generator).double() / 2


def ken(module: ModuleType, n: int) -> list[tuple[str, float, float]]:
    """Return KEN of both codes, the reference without one of the kinds."""
    x, y = features(n, 8, 0), features(n, 8, 1)
    y = y[torch.arange(n) % 4 > 0]
    rows = []
    for eta in (1.0, 3.0):
        said: list[str] = []
        given = SimpleNamespace(sigma=2.0, eta=eta, batchsize=64, logger=SimpleNamespace(info=said.append))
        module.KEN_by_eigendecomposition(x, y, given)
        theirs = next(float(line.rpartition(" ")[2]) for line in said if line.startswith("KEN score"))
        ours = prompt_split(x, None, y, None, output_kernel=GaussianKernel.from_sigma(2.0), eta=eta).total
        rows.append((f"KEN, eta {eta:g} (they print four digits)", theirs, float(ours)))
    return rows


def fkea(module: ModuleType, n: int, frequencies: int = FREQUENCIES) -> list[tuple[str, float, float]]:
    """Return scores by random Fourier features of both codes, whose frequencies differ."""
    x = features(n, 8, 0)
    torch.manual_seed(0)
    with patch("torch.cuda.is_available", return_value=False):
        covariance = module.cov_rff(x.float(), frequencies, 2.0, 64)[0].double()
    eigenvalues = torch.linalg.eigvalsh(covariance).clamp_min(1e-12)
    metric = VendiScore(GaussianKernel.from_sigma(2.0), num_features=frequencies)
    metric.update(x)
    first = metric.modes(1).eigenvalues[0]
    return [
        (
            f"FKEA, Vendi by {frequencies} frequencies",
            float((-eigenvalues * eigenvalues.log()).sum().exp()),
            float(metric.compute()),
        ),
        ("FKEA, first mode", float(eigenvalues[-1]), float(first)),
    ]


def authpct(module: ModuleType, n: int) -> list[tuple[str, float, float]]:
    """Return the share of authentic samples, a quarter of them copied."""
    x, y = features(n, 8, 0), features(n, 8, 1)
    x[: n // 4] = y[: n // 4] + 0.01
    return [("AuthPct / 100", module.compute_authpct(y.numpy(), x.numpy()) / 100, float(authenticity(x, y)))]


def cmmd(module: ModuleType, n: int) -> list[tuple[str, float, float]]:
    """Return CMMD of both codes."""
    x, y = features(n, 64, 0), features(n, 64, 1)
    x[: n // 2] += 0.5
    unit = [nn.functional.normalize(side).numpy() for side in (x, y)]
    metric = FeatureMetrics(nn.Identity(), ["cmmd"])
    metric.update(x, real=False)
    metric.update(y, real=True)
    return [("CMMD", float(module.mmd(*unit)), float(metric.compute()["cmmd"]))]


COMPARE = {"KEN": ken, "AuthPct": authpct, "CMMD": cmmd}


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("published", type=Path, help="the folder of the clones")
    parser.add_argument("--n", type=int, default=400, help="samples of either side")
    parser.add_argument("--frequencies", type=int, default=FREQUENCIES, help="of FKEA")
    args = parser.parse_args()
    print(f"{'':<42}{'theirs':>12}{'here':>12}")
    compare = COMPARE | {"FKEA": partial(fkea, frequencies=args.frequencies)}
    for name, file in FILES.items():
        for what, theirs, ours in compare[name](load(args.published / file), args.n):
            print(f"{what:<42}{theirs:>12.6f}{ours:>12.6f}")


if __name__ == "__main__":
    main()
