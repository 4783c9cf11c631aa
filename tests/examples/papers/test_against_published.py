# SPDX-License-Identifier: Apache-2.0
"""Scripts that compare with authors' repositories, on stand-ins for these: equations in the shape of their code."""

import json
import re

import numpy as np
import pytest
import torch
from _helpers.scripts import printed

pytestmark = pytest.mark.slow

MEANS = """
import numpy as np
import multiprocess as mp
from sklearn import metrics
from lib.notebook import get_tqdm

def means(X, Y, kernel):
    return [kernel(a, b) for a, b in ((X, X), (X, Y), (Y, Y))]

def off_diagonal(K):
    return (K.sum() - np.trace(K)) / (len(K) * (len(K) - 1))

def sMMD(X, Y, kernel):
    a, b, c = means(X, Y, kernel)
    return off_diagonal(a) - 2 * b.mean() + off_diagonal(c)

def cos_(X, Y, kernel):
    a, b, c = means(X, Y, kernel)
    return b.mean() / np.sqrt(a.mean() * c.mean())

def cos_debias(X, Y, kernel):
    a, b, c = means(X, Y, kernel)
    return b.mean() / np.sqrt(off_diagonal(a) * off_diagonal(c))
"""
CKA = """def CKA(X, Y, kernel):
    a, b = (K - K.mean(0) - K.mean(1)[:, None] + K.mean() for K in (kernel(X, X), kernel(Y, Y)))
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
"""
NOTEBOOK = {"cells": [{"source": ["import numpy\n"]}, {"source": CKA.splitlines(keepends=True)}]}

PROMPT_SPLIT = """
import numpy as np

class KernelMethod:
    def main():
        raise RuntimeError("called")

    if __name__ == '__main__':
        main()

    def __init__(self, sigma_img, sigma_prompt):
        self.sigmas = sigma_img, sigma_prompt

    def joint_rbf_kernel(self, images, prompts):
        d = [((x[:, None] - x[None]) ** 2).sum(2) / (2 * s ** 2) for x, s in zip((images, prompts), self.sigmas)]
        return np.exp(-d[0] - d[1])

    def top_eigen_analysis(self, x, y, t, s, top_k):
        return np.linalg.eigvalsh(self.joint_rbf_kernel(x, t))[::-1][:top_k], None
"""

SCENDI = """
import numpy as np
import torch
from torchvision.utils import save_image
from tqdm import tqdm

def entropy(matrix):
    p = np.linalg.eigvalsh(matrix)
    p = p[p > 1e-12]
    return np.exp((p * np.log(p.sum() / p)).sum())

def rff_sce_from_feats(text, images, settings, K=None):
    x, t = images.double().numpy(), text.double().numpy()
    if settings.kernel == "cosine":
        x, t, n = x / np.linalg.norm(x, axis=0), t / np.linalg.norm(t, axis=0), x.shape[1]
    else:
        w = (torch.randn((x.shape[1], settings.rff_dim)) / settings.sigma).double().numpy()
        x, t = (np.hstack([np.cos(v @ w), np.sin(v @ w)]) / np.sqrt(settings.rff_dim) for v in (x, t))
        n = len(x)
    part = (x.T @ t / n) @ np.linalg.pinv(t.T @ t / n, 1e-6, hermitian=True) @ (t.T @ x / n)
    return entropy(x.T @ x / n - part), entropy(part)
"""

CDF = """
import numpy as np
def compute_cdf(data, left, right):
    x = np.sort([left, *data, right])
    return x, np.arange(len(x)) / len(x)
def query_inverted_cdf(x, y, at):
    return np.interp(at, x, y)
"""
W1KP = """
import torch
import nobody_has_this
from nobody_has_this_either.inside import something
class ListwiseDreamSimDistanceMeasure:
    def __init__(self, measure):
        self.measure_ = measure
    def measure(self, _, images, reduce):
        x = torch.cat([self.measure_.preprocess(image).cuda() for image in images])
        d = torch.pdist(self.measure_.model.embed(x)).square()
        if reduce == "mean":
            return d[d > 1e-4].mean().item()
        square = torch.full((len(x), len(x)), torch.inf, dtype=d.dtype)
        square[tuple(torch.triu_indices(len(x), len(x), 1))] = d
        orders = [torch.randperm(len(x)) for _ in range(300)]
        both = torch.minimum(square, square.T)
        return {f"u{k}": sum(both[o[:k]][:, o[:k]].min().item() for o in orders) / 300 for k in (3, 5, 10)}
"""

GAUSSIAN = """
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

CLONES = {
    "cms/against_published_cms.py": {"lib/metrics.py": MEANS, "experiments.ipynb": json.dumps(NOTEBOOK)},
    "promptsplit/against_published_promptsplit.py": {"algorithms/kernel_method.py": PROMPT_SPLIT},
    "scendi/against_published_scendi.py": {"scendi/metric/algorithm_utils.py": SCENDI},
    "w1kp/against_published.py": {"w1kp/utils.py": CDF, "w1kp/model/distance.py": W1KP},
    "diversity/published_code.py": {
        "KEN/KEN/metric/algorithm_utils.py": GAUSSIAN + KEN,
        "FKEA/FKEA/metric/algorithm_utils.py": GAUSSIAN + FKEA,
        "dgm-eval/dgm_eval/metrics/authpct.py": AUTHPCT,
        "cmmd-pytorch/distance.py": GAUSSIAN + CMMD,
    },
}
NONE = r"(0e\+00|\de-1\d)\n"
"""A difference of rounding."""


def compared(script, folder, options):
    """Return what a script prints of a stand-in for the repository."""
    for name, text in CLONES[script].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return printed(f"papers/{script} OUT {options}", folder)


def test_cms_and_cka(tmp_path):
    said = compared("cms/against_published_cms.py", tmp_path, "-n 200")
    assert said.startswith("1 / median squared distance of 1000 digits: 0.0268456")
    assert len(re.findall(NONE, said)) == 4
    assert said.endswith("9 of 9\n")


def test_promptsplit(tmp_path):
    said = compared("promptsplit/against_published_promptsplit.py", tmp_path, "--per-component 6")
    assert len(re.findall(NONE, said)) == 4


def test_scendi(tmp_path):
    said = compared("scendi/against_published_scendi.py", tmp_path, "-n 90 --num-features 40")
    found = {line[:34].strip(): tuple(map(float, line[34:].split())) for line in said.splitlines()[1:4]}
    for name, close in {"the same frequencies": 1e-5, "mean of five draws": 0.2, "cosine of columns": 1e-5}.items():
        theirs, ours = found[name]
        assert theirs == pytest.approx(ours, rel=close)


def test_w1kp(tmp_path):
    torch.save((np.linspace(0, 1, 50) ** 2, np.arange(50) / 50), tmp_path / "cdf-xy.pt")
    said = compared("w1kp/against_published.py", tmp_path, "--prompts 3 --images 12")
    found = {line[:48].strip(): line[48:].strip() for line in said.splitlines()}
    assert float(found["mean squared distance of a prompt"]) < 1e-12
    assert float(found["smallest distance among k, in standard errors"]) < 6  # theirs is of fewer subsets
    assert found["W1KP of five equal images, here and theirs"] == "1, nan"


def test_diversity(tmp_path):
    said = compared("diversity/published_code.py", tmp_path, "--n 60 --frequencies 200")
    rows = [line.split()[-2:] for line in said.splitlines()[1:]]
    assert len(rows) == 6
    for (theirs, ours), close in zip(rows, (2e-4, 2e-4, 0.1, 0.1, 1e-6, 1e-4), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=close)
