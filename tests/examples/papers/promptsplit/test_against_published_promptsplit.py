# SPDX-License-Identifier: Apache-2.0
"""With a stand-in for the authors' repository, since theirs is not here: a class in their form."""

import sys

import against_published_promptsplit
import pytest
from against_published_promptsplit import compare, load

CLASS = """
import numpy as np

class KernelMethod:
    def main():
        raise RuntimeError("called")

    if __name__ == '__main__':
        main()

    def __init__(self, sigma_img, sigma_prompt):
        self.sigmas = sigma_img, FACTOR * sigma_prompt

    def joint_rbf_kernel(self, images, prompts):
        d = [((x[:, None] - x[None]) ** 2).sum(2) / (2 * s ** 2) for x, s in zip((images, prompts), self.sigmas)]
        return np.exp(-d[0] - d[1])

    def top_eigen_analysis(self, x, y, t, s, top_k):
        return np.linalg.eigvalsh(self.joint_rbf_kernel(x, t))[::-1][:top_k], None
"""


def clone(folder, factor=1.0):
    (folder / "algorithms").mkdir()
    (folder / "algorithms/kernel_method.py").write_text(CLASS.replace("FACTOR", str(factor)))
    return folder


@pytest.mark.parametrize(("factor", "agree"), [(1.0, True), (1.3, False)])
def test_agreement_and_its_lack_are_told_apart(tmp_path, factor, agree):
    found = dict(compare(load(clone(tmp_path, factor)), per_component=6))
    *compared, own = found.values()
    assert (max(map(float, compared)) < 1e-9) is agree
    assert float(own) > 1


def test_script_prints_a_table(tmp_path, monkeypatch, capsys):
    arguments = ["against_published_promptsplit.py", str(clone(tmp_path)), "--per-component", "5"]
    monkeypatch.setattr(sys, "argv", arguments)
    against_published_promptsplit.main()
    assert len(capsys.readouterr().out.splitlines()) == 6
