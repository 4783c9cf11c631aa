# SPDX-License-Identifier: Apache-2.0
import sys
from functools import partial

import faces
import numpy as np
import pytest
import torch

from genmonitor import PixelPartition

FIT = ["ignore:.*LeafSpec", "ignore:.*does not have many workers", "ignore:.*(baseline as approximate|real images are)"]


def run(monkeypatch, *arguments):
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["faces.py", *map(str, arguments)])
    try:
        faces.main()
    finally:
        torch.set_num_threads(threads)


def test_the_loss_is_the_error_and_the_divergence():
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model = faces.VAE(latent=4, width=8)
    for layer in (model.encoder[-1], model.decoder[2]):  # then z is normal, and all values are 1/2
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    model.log = lambda *_: None
    assert model.training_step(images, 0).item() == pytest.approx(4 * 3072 * float((images - 0.5).square().mean()) / 8)


@pytest.mark.parametrize(("centered", "low"), [(False, 0), (True, -1)])
def test_samples_are_in_the_range_of_the_images(centered, low):
    model = faces.VAE(centered, latent=4, width=8)
    torch.nn.init.normal_(model.decoder[2].bias, std=100)
    samples = model.sample(5)
    assert samples.shape == (5, 3, 32, 32)
    assert [samples.min(), samples.max()] == [low, 1]


@pytest.mark.filterwarnings(*FIT)
def test_script_leaves_images_and_pictures(monkeypatch, tmp_path, capsys):
    grid = PixelPartition.grid((32, 32), rows=2, columns=1)  # regions that are given take no looking for
    monitor = faces.PixelClusterMonitor
    monkeypatch.setattr(
        faces, "PixelClusterMonitor", lambda n_clusters, **options: partial(monitor, partition=grid)(**options)
    )
    monkeypatch.setattr(faces, "HELD_OUT", 120)
    sizes = ["--epochs", 1, "--images", 120, "--n-samples", 100]
    run(
        monkeypatch,
        *sizes,
        "--centered",
        "--out",
        tmp_path / "faces",
        "--pictures",
        tmp_path / "page",
    )
    assert "Regions, epoch 0" in capsys.readouterr().out
    real, generated = (np.load(tmp_path / "faces" / name) for name in ("real.npy", "centered.npy"))
    assert real.shape == generated.shape == (120, 3, 32, 32)
    assert 0 <= min(real.min(), generated.min()) <= max(real.max(), generated.max()) <= 1
    assert real.std() > 0.1
    assert {path.name for path in tmp_path.glob("*.png")} == {"page-diagnosis.png", "page-curves.png"}
