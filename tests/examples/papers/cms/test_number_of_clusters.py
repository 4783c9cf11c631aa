# SPDX-License-Identifier: Apache-2.0
import sys

import number_of_clusters
import pytest
import torch
from data import ImageData

from genmonitor import GaussianKernel


def test_cuts_are_of_one_tree():
    images = ImageData("digits").train_images.images[:200]
    found = number_of_clusters.cut(images, GaussianKernel(0.03), (2, 5, 20), None)
    assert [partition.num_clusters for partition in found.values()] == [2, 5, 20]
    for coarse, fine in ((2, 5), (5, 20)):
        pairs = torch.stack([found[coarse].labels.flatten(), found[fine].labels.flatten()]).unique(dim=1)
        assert pairs.shape[1] == fine + 1  # each fine cluster, and the constant pixels, lie in one coarse one


@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*does not have many workers", "ignore:PixelClusterMonitor")
def test_script_draws_a_product_for_each_number(monkeypatch, capsys, tmp_path):
    seen, watch = [], number_of_clusters.watch
    monkeypatch.setattr(number_of_clusters, "watch", lambda *given: seen.append(watch(*given)) or seen[0])
    small = {"epochs": 2, "features": 4, "n-cluster-images": 60, "n-samples": 20, "out": tmp_path / "run"}
    words = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["number_of_clusters.py", "--counts", "2", "5", *words])
    number_of_clusters.main()
    (monitor,) = seen
    assert [record["of_2"] for record in monitor.history] == pytest.approx([x["product"] for x in monitor.history])
    assert all(record["of_5"] != record["of_2"] for record in monitor.history)
    assert "of_5" in capsys.readouterr().out
    assert (tmp_path / "run" / "number-of-clusters.png").exists()
