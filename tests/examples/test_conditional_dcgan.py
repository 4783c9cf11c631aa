# SPDX-License-Identifier: Apache-2.0
import sys

import conditional_dcgan
import pytest
import torch
from conditional_dcgan import ConditionalDCGAN, labelled_digits, make_monitors
from lightning import Trainer
from torch.utils.data import DataLoader

FIT = [
    "ignore:.*LeafSpec",
    "ignore:.*does not have many workers",
    "ignore:.*draws of 200 overlap much",
    "ignore:.*draws of 60 overlap much",
]
CLASSES = torch.arange(10).repeat(5)


def test_digits_keep_their_classes_and_the_splits_share_nothing():
    from sklearn.datasets import load_digits

    known = {tuple(image.ravel()): int(label) for image, label in zip(*load_digits(return_X_y=True), strict=True)}
    train, held_out = labelled_digits()
    assert (len(train), len(held_out)) == (1297, 500)
    seen = {}
    for image, label in [*train, *held_out]:
        assert image.shape == (1, 8, 8)
        seen[tuple(((image + 1) * 8).flatten().tolist())] = int(label)
    assert seen == known


def test_images_depend_on_class_and_noise():
    torch.manual_seed(0)
    model = ConditionalDCGAN(features=4).eval()
    with torch.no_grad():
        images = model.sample_prompts(CLASSES)
        z = torch.randn(1, model.latent_dim)
        by_class = model.generate(z.expand(10, -1), torch.arange(10))
    assert images.shape == (50, 1, 8, 8)
    assert images.abs().max() <= 1
    assert len(images.flatten(1).unique(dim=0)) == 50
    assert len(by_class.flatten(1).unique(dim=0)) == 10


def test_from_an_epoch_on_the_collapsed_class_has_one_image_and_the_others_keep_theirs():
    def draw(collapsed, collapsed_from):
        torch.manual_seed(0)
        model = ConditionalDCGAN(collapsed, collapsed_from, features=4).eval()  # at epoch 0
        with torch.no_grad():
            return model.sample_prompts(CLASSES)

    well, early, now = draw(None, 0), draw(3, 1), draw(3, 0)
    assert torch.equal(early, well)
    assert torch.equal(now[CLASSES != 3], well[CLASSES != 3])
    assert len(now[CLASSES == 3].unique(dim=0)) == 1
    assert len(well[CLASSES == 3].unique(dim=0)) == 5


@pytest.mark.parametrize("collapsed", [-1, 10, "3"])
def test_a_class_that_is_none_cannot_collapse(collapsed):
    with pytest.raises(ValueError, match=r"`collapsed` to be a class in 0\.\.9 or None"):
        ConditionalDCGAN(collapsed)


def train(folder, collapsed=None, collapsed_from=4, epochs=6):
    torch.manual_seed(1)
    model = ConditionalDCGAN(collapsed, collapsed_from, features=16, lr=2e-3)
    _, diversity = make_monitors(n_samples=200, every_n_epochs=1)
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        callbacks=[diversity],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    digits, held_out = labelled_digits()
    trainer.fit(model, DataLoader(digits, 128, shuffle=True, drop_last=True), DataLoader(held_out, 128))
    return model.state_dict(), [check["scendi"] for check in diversity.history]


@pytest.mark.slow
@pytest.mark.filterwarnings(*FIT)
def test_a_collapse_shows_in_scendi_at_the_next_check_and_leaves_training_alone(tmp_path):
    weights, well = train(tmp_path)
    same, collapsed = train(tmp_path, collapsed=8)
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert well[:4] == collapsed[:4]
    assert all(there < 0.9 * well_then for there, well_then in zip(collapsed[4:], well[4:], strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings(*FIT)
def test_the_script_runs_both_monitors_and_says_where_to_look(monkeypatch, capsys, tmp_path):
    command = ["conditional_dcgan.py", "--epochs", "2", "--n-samples", "60", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", command)
    conditional_dcgan.main()
    said = capsys.readouterr().out
    assert "Where the generator is wrong, epoch 1" in said
    assert "What the generator varies, epoch 1, 60 images" in said
    assert f"tensorboard --logdir {tmp_path / 'run'}" in said
    figures = tmp_path / "run" / "version_0" / "genmonitor"
    assert str(figures) in said
    assert {"cms_curves.png", "diversity_curves.png", "diversity_spectrum.png"} <= {p.name for p in figures.iterdir()}
