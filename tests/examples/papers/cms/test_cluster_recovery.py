# SPDX-License-Identifier: Apache-2.0
import sys

import cluster_recovery
import pytest
import torch


def test_clusters_are_matched_whatever_their_numbers():
    first = torch.tensor([[1, 1, 1], [2, 2, 0]])
    assert cluster_recovery.matched(first, torch.tensor([[2, 2, 2], [1, 1, 0]])) == 1
    assert cluster_recovery.matched(first, torch.tensor([[2, 2, 1], [1, 1, 0]])) == pytest.approx(5 / 6)


def test_mini_batches_see_dependence_where_there_is_none():
    exact, batches = cluster_recovery.between_independent(200)
    assert exact < batches < 0.03


@pytest.mark.slow
def test_script_finds_the_true_regions(monkeypatch, capsys, tmp_path):
    words = ["--counts", "200", "--draws", "1", "--out", str(tmp_path / "recovery.png")]
    monkeypatch.setattr(sys, "argv", ["cluster_recovery.py", *words])
    cluster_recovery.main()
    rows = {line.split("  ")[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["planted, 4 regions"][-8:] == ["1.00", "1.00", "(4:", "1)", "1.00", "1.00", "(4:", "1)"]
    assert rows["like faces, 3 regions"][-8:] == ["1.00", "1.00", "(3:", "1)", "1.00", "1.00", "(3:", "1)"]
    assert (tmp_path / "recovery.png").exists()
