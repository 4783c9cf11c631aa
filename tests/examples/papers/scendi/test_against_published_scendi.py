# SPDX-License-Identifier: Apache-2.0
"""With a stand-in for the authors' repository, since theirs is not here: the paper's equations in NumPy."""

import sys

import against_published_scendi
import pytest
import torch
from against_published_scendi import cosine, draw_pairs, gaussian, load

FORMULAS = """
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
    return FACTOR * entropy(x.T @ x / n - part), entropy(part)
"""


def clone(folder, factor=1.0):
    (folder / "scendi/metric").mkdir(parents=True)
    (folder / "scendi/metric/algorithm_utils.py").write_text(FORMULAS.replace("FACTOR", str(factor)))
    return folder


def test_agreement_and_its_lack_are_told_apart(tmp_path):
    pairs = draw_pairs(90)
    for folder, factor in (("same", 1.0), ("other", 1.5)):
        published = load(clone(tmp_path / folder, factor))
        theirs, ours = gaussian(published, *pairs, sigma=0.7, size=20)["the same frequencies"]
        assert theirs == pytest.approx(factor * ours, rel=1e-5)
        theirs, ours = cosine(published, *pairs)
        assert theirs == pytest.approx(factor * ours, rel=1e-6)
    assert not any(name.startswith("torchvision") for name in sys.modules)


def test_draws_are_of_frequencies_of_each_sides_own(tmp_path):
    theirs, ours = gaussian(load(clone(tmp_path)), *draw_pairs(90), sigma=0.7, size=40)["mean of five draws"]
    assert theirs != ours
    assert theirs == pytest.approx(ours, rel=0.2)


def test_pairs_have_prompts_that_explain_a_part():
    x, t = draw_pairs(90)
    assert len(t.unique(dim=0)) == 9
    torch.testing.assert_close(x.norm(dim=1), torch.ones(90))


def test_script_prints_both_side_by_side(monkeypatch, capsys, tmp_path):
    arguments = [str(clone(tmp_path / "clone")), "-n", "60", "--num-features", "10"]
    monkeypatch.setattr(sys, "argv", ["against_published_scendi.py", *arguments])
    against_published_scendi.main()
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["Scendi", "of", "60", "pairs", "theirs", "here"]
    assert len(said) == 6
