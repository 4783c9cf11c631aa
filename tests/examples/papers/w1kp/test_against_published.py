# SPDX-License-Identifier: Apache-2.0
"""With a stand-in for the authors' repository, since theirs is not here: the equations, and what they import."""

import sys

import against_published
import numpy as np
import pytest
import torch
from against_published import DIM, Published, compare

from genmonitor.functional import W1KPCalibration

UTILS = """
import numpy as np
def compute_cdf(data, left, right):
    x = np.sort([left, *data, right])
    return x, np.arange(len(x)) / len(x)
def query_inverted_cdf(x, y, at):
    return np.interp(at, x, y)
"""
DISTANCE = """
import torch
import nobody_has_this
from nobody_has_this_either.inside import something
class ListwiseDreamSimDistanceMeasure:
    def __init__(self, measure):
        self.measure_ = measure
    def measure(self, _, images, reduce):
        x = torch.cat([self.measure_.preprocess(image).cuda() for image in images])
        d = FACTOR * torch.pdist(self.measure_.model.embed(x)).square()
        if reduce == "mean":
            return d[d > 1e-4].mean().item()
        square = torch.full((len(x), len(x)), torch.inf, dtype=d.dtype)
        square[tuple(torch.triu_indices(len(x), len(x), 1))] = d
        orders = [torch.randperm(len(x)) for _ in range(300)]
        both = torch.minimum(square, square.T)
        return {f"u{k}": sum(both[o[:k]][:, o[:k]].min().item() for o in orders) / 300 for k in (3, 5, 10)}
"""


def clone(folder, factor):
    (folder / "w1kp/model").mkdir(parents=True)
    (folder / "w1kp/utils.py").write_text(UTILS)
    (folder / "w1kp/model/distance.py").write_text(DISTANCE.replace("FACTOR", str(factor)))
    torch.save((np.linspace(0, 1, 50) ** 2, np.arange(50) / 50), folder / "cdf-xy.pt")
    return folder


def differences(folder):
    ours = W1KPCalibration.load(folder / "cdf-xy.pt", dim=DIM)
    return dict(compare(Published(folder), ours, prompts=3, n=12))


@pytest.mark.filterwarnings("ignore:.*copy.*")
def test_agreement_and_its_lack_are_told_apart(tmp_path):
    same, other = differences(clone(tmp_path / "same", 1)), differences(clone(tmp_path / "other", 1.5))
    assert float(same["mean squared distance of a prompt"]) < 1e-12
    assert float(same["smallest distance among k, in standard errors"]) < 6  # theirs is of fewer subsets
    assert same["W1KP of five equal images, here and theirs"] == "1, nan"
    assert float(other["mean squared distance of a prompt"]) > 0.01
    assert float(other["smallest distance among k, in standard errors"]) > 10
    assert "nobody_has_this" not in sys.modules


def test_script_prints_a_row_each(monkeypatch, capsys, tmp_path):
    folder = str(clone(tmp_path / "clone", 1))
    monkeypatch.setattr(sys, "argv", ["against_published.py", folder, "--prompts", "2", "--images", "6"])
    against_published.main()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 prompts of 6 embeddings; largest differences"
    assert len(said) == 10
    assert said[-1].startswith("squared distances where low, medium, high similarity begin: 0.")
