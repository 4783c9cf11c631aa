# SPDX-License-Identifier: Apache-2.0
import sys
from itertools import pairwise

import dcgan
import pytest
import torch
from _helpers.modules import plain
from data import ImageData
from dcgan import DCGAN
from lightning import Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn


def small(side, channels=1):
    return DCGAN((channels, side, side), latent_dim=6, generator_features=4, discriminator_features=4)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 16, 28, 32, 64])
def test_each_size_makes_images_and_one_logit_of_each(side, channels):
    model = small(side, channels)
    images = model.sample(5)
    assert images.shape == (5, channels, side, side)
    assert images.abs().max() <= 1
    assert model.discriminator(images).shape == (5, 1, 1, 1)


@pytest.mark.parametrize("side", [8, 16, 28, 32, 64])
def test_widths_halve_towards_the_image_and_double_away_from_it(side):
    model = small(side)
    generator = [layer.in_channels for layer in model.generator if isinstance(layer, nn.ConvTranspose2d)][1:]
    discriminator = [layer.out_channels for layer in model.discriminator if isinstance(layer, nn.Conv2d)][:-1]
    assert all(width == 2 * next_width for width, next_width in pairwise(generator))
    assert all(2 * width == next_width for width, next_width in pairwise(discriminator))
    assert discriminator[0] == 4


def test_the_64_pixel_networks_are_the_papers():
    model = DCGAN((3, 64, 64))
    generator = [tuple(layer.weight.shape) for layer in model.generator if isinstance(layer, nn.ConvTranspose2d)]
    discriminator = [tuple(layer.weight.shape) for layer in model.discriminator if isinstance(layer, nn.Conv2d)]
    assert generator == [(100, 512, 4, 4), (512, 256, 4, 4), (256, 128, 4, 4), (128, 64, 4, 4), (64, 3, 4, 4)]
    assert discriminator == [(64, 3, 4, 4), (128, 64, 4, 4), (256, 128, 4, 4), (512, 256, 4, 4), (1, 512, 4, 4)]
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model.generator) == 4
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model.discriminator) == 3


def test_weights_start_at_a_standard_deviation_of_0_02():
    model = DCGAN()
    for network in (model.generator, model.discriminator):
        for layer in network:
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
            elif isinstance(layer, nn.BatchNorm2d):
                assert layer.weight.mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("shape", [(1, 8, 16), (3, 48, 48)])
def test_other_sizes_are_refused(shape):
    with pytest.raises(ValueError, match=r"h = w one of \[8, 16, 28, 32, 64\]"):
        DCGAN(shape)


FIT = ["ignore:.*LeafSpec", "ignore:.*does not have many workers"]


@pytest.mark.filterwarnings(*FIT)
def test_a_step_trains_both_networks_and_logs_both_losses(tmp_path):
    model = small(8)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trainer = Trainer(fast_dev_run=True, accelerator="cpu", default_root_dir=tmp_path, enable_progress_bar=False)
    trainer.fit(model, datamodule=ImageData("digits"))
    assert [name for name, weight in model.named_parameters() if torch.equal(weight, before[name])] == []
    assert all(weight.requires_grad for weight in model.parameters())
    assert 0.3 < trainer.callback_metrics["loss_g"] < 2
    assert 0.6 < trainer.callback_metrics["loss_d"] < 4


@pytest.mark.slow
@pytest.mark.filterwarnings(*FIT)
def test_training_brings_the_mean_image_towards_the_data(tmp_path):
    torch.manual_seed(0)
    data = ImageData("digits")
    model = DCGAN(generator_features=16, discriminator_features=16, lr=2e-3)
    mean = data.val_images.images.mean(0)

    def distance():
        with torch.no_grad():
            return float((model.eval().sample(500).mean(0) - mean).square().mean())

    before = distance()
    trainer = Trainer(
        max_epochs=10,
        accelerator="cpu",
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model.train(), datamodule=data)
    assert distance() < 0.2 * before


def test_the_command_line_takes_its_defaults_from_the_data(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["dcgan.py", "--data", "medmnist", "--path", "chestmnist.npz", "--epochs", "3"])
    args = dcgan.arguments()
    assert (args.lr, args.n_clusters, args.batch_size, args.epochs) == (1e-5, 6, 128, 3)
    assert str(args.out) == "runs/dcgan-medmnist"


def test_only_planted_regions_can_be_spoiled(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dcgan.py", "--spoil-region", "2"])
    with pytest.raises(SystemExit):
        dcgan.arguments()
    assert "--data planted" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings(*FIT)
def test_script_names_the_spoiled_region_and_where_to_look(monkeypatch, capsys, tmp_path):
    command = "dcgan.py --data planted --spoil-region 3 --spoil-from 1 --epochs 2 --out"
    monkeypatch.setattr(sys, "argv", [*command.split(), str(tmp_path / "run")])
    dcgan.main()
    said = capsys.readouterr().out
    assert said.index("cluster_3") < said.index("cluster_1")
    assert f"tensorboard --logdir {tmp_path / 'run'}" in said
    figures = tmp_path / "run" / "version_0" / "genmonitor"
    assert str(figures) in said
    assert any(figures.glob("*.png"))


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:.*(does not have many workers|no validation data|baseline as approximate|real images are there)",
)
@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:.*Checkpoint directory")
@pytest.mark.parametrize("validate", [True, False])
def test_checkpoints_and_early_stopping_go_by_its_values(tmp_path, validate):
    data = ImageData("digits", batch_size=256)
    best = ModelCheckpoint(tmp_path, monitor="cms/image", mode="max")
    stop = EarlyStopping("cms/product", mode="max", patience=1, min_delta=1.0)  # no gain is enough
    monitor = plain(n_samples=100)
    settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    limit = {} if validate else {"limit_val_batches": 0}
    trainer = Trainer(max_epochs=9, callbacks=[monitor, best, stop], default_root_dir=tmp_path, **settings, **limit)
    trainer.fit(small(8), data)
    assert [record["epoch"] for record in monitor.history] == [0, 1]
    assert best.best_model_score == pytest.approx(max(record["image"] for record in monitor.history))
