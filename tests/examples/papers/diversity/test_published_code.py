# SPDX-License-Identifier: Apache-2.0
"""With stand-ins for the published code, since it is not here: the equations in the shape that the script calls."""

import sys

import published_code
import pytest

KERNEL = """
import torch
from torchvision.utils import save_image
def gram(x, y, sigma):
    return (-torch.cdist(x, y) ** 2 / (2 * sigma**2)).exp()
"""
KEN = """
def KEN_by_eigendecomposition(x, y, args):
    n, m, eta = len(x), len(y), args.eta
    top = torch.cat([gram(x, x, args.sigma) / n, gram(x, y, args.sigma) / n], 1)
    low = torch.cat([-eta * gram(y, x, args.sigma) / m, -eta * gram(y, y, args.sigma) / m], 1)
    v = torch.linalg.eigvals(torch.cat([top, low])).real.clamp_min(1e-12)
    args.logger.info(f"KEN score: {(v * (v.sum() / v).log()).sum():.4f}")
"""
FKEA = """
def cov_rff(x, dim, sigma, batchsize):
    angles = x @ torch.randn(x.shape[1], dim) / sigma
    phi = torch.cat([angles.cos(), angles.sin()], 1) / dim**0.5
    return phi.T @ phi / len(x), None, phi
"""
AUTHPCT = """
import torch
def compute_authpct(train, gen):
    train, gen = torch.from_numpy(train), torch.from_numpy(gen)
    nearest = torch.cdist(gen, train).min(1)
    own = torch.cdist(train, train).fill_diagonal_(torch.inf).min(1).values
    return 100 * (nearest.values > own[nearest.indices]).double().mean().item()
"""
CMMD = """
def mmd(x, y):
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    return 1000 * (gram(x, x, 10).mean() + gram(y, y, 10).mean() - 2 * gram(x, y, 10).mean())
"""


def test_script_compares_what_both_say(monkeypatch, capsys, tmp_path):
    codes = {"KEN": KERNEL + KEN, "FKEA": KERNEL + FKEA, "AuthPct": AUTHPCT, "CMMD": KERNEL + CMMD}
    for name, code in codes.items():
        path = tmp_path / published_code.FILES[name]
        path.parent.mkdir(parents=True)
        path.write_text(code)
    monkeypatch.setattr(sys, "argv", ["published_code.py", str(tmp_path), "--n", "60"])
    monkeypatch.setattr(published_code, "FREQUENCIES", 200)
    published_code.main()
    rows = [line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(rows) == 6
    for (theirs, ours), close in zip(rows, (2e-4, 2e-4, 0.1, 0.1, 1e-6, 1e-4), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=close)
