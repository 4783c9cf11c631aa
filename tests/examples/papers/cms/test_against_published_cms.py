# SPDX-License-Identifier: Apache-2.0
"""With a stand-in for the authors' repository, since theirs is not here: the paper's equations in NumPy."""

import json
import sys
from unittest.mock import MagicMock

import against_published_cms
import pytest
from against_published_cms import compare_cka, compare_means, digits, load

FORMULAS = """
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
    return FACTOR * (off_diagonal(a) - 2 * b.mean() + off_diagonal(c))

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


@pytest.fixture
def clone(tmp_path):
    def made(factor=1.0):
        folder = tmp_path / str(factor)  # of its own: bytecode of a file as old and as long would be taken for it
        (folder / "lib").mkdir(parents=True)
        (folder / "lib/metrics.py").write_text(FORMULAS.replace("FACTOR", str(factor)))
        cells = [{"source": ["import numpy\n"]}, {"source": CKA.splitlines(keepends=True)}]
        (folder / "experiments.ipynb").write_text(json.dumps({"cells": cells}))
        return folder

    return made


def test_agreement_and_its_lack_are_told_apart(clone):
    images = digits()
    sides = images[:300], images[300:600]
    same = dict(compare_means(load(clone()), 0.03, *sides))
    assert len(same) == 3
    assert max(same.values()) < 1e-14
    other = dict(compare_means(load(clone(1.5)), 0.03, *sides))
    assert max(off for name, off in other.items() if name.startswith("MMD")) > 1e-3
    assert not isinstance(sys.modules.get("multiprocess"), MagicMock)  # datasets, if it is there, has the real one


@pytest.mark.slow
def test_pixels_and_clusters_agree(clone):
    off, same = compare_cka(load(clone()), 0.03, digits()[:200])
    assert off < 1e-12
    assert same == 9


@pytest.mark.slow
def test_script_prints_a_table(clone, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["against_published_cms.py", str(clone()), "-n", "200"])
    against_published_cms.main()
    said = capsys.readouterr().out
    assert said.startswith("1 / median squared distance of 1000 digits: 0.0268456")
    assert said.strip().endswith("9 of 9")
