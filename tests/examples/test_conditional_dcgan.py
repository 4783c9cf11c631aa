# SPDX-License-Identifier: Apache-2.0
import sys

import conditional_dcgan
import pytest
import torch
from conditional_dcgan import ConditionalDCGAN, make_monitors, real_likeness
from data import ImageData, digits
from lightning import Trainer

from genmonitor.functional import w1kp_score

FIT = [
    "ignore:.*LeafSpec",
    "ignore:.*does not have many workers",
    "ignore:.*60-image draws. treat the baseline as approximate",
]
CLASSES = torch.arange(10).repeat(5)


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


def test_collapsed_class_has_one_image_and_others_keep_theirs():
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
def test_class_that_does_not_exist_cannot_collapse(collapsed):
    with pytest.raises(ValueError, match=r"`collapsed` to be a class in 0\.\.9 or None"):
        ConditionalDCGAN(collapsed)


def test_real_digits_of_a_class_have_a_likeness_of_one_half():
    train, held_out = digits(with_labels=True)
    calibration = real_likeness(train)
    found = w1kp_score(held_out.images.flatten(1), held_out.labels, calibration=calibration)
    assert float(found["w1kp"]) == pytest.approx(0.5, abs=0.03)


def run(monkeypatch, capsys, folder, *words):
    """Run the script for three epochs and return what it printed."""
    command = ["conditional_dcgan.py", "--epochs", "3", "--n-samples", "60", "--out", str(folder / "run"), *words]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(conditional_dcgan, "ConditionalDCGAN", small)
    conditional_dcgan.main()
    return capsys.readouterr().out


def small(*arguments):
    return ConditionalDCGAN(*arguments, features=16, lr=4e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings(*FIT)
def test_script_names_the_collapsed_class(monkeypatch, capsys, tmp_path):
    said = run(monkeypatch, capsys, tmp_path, "--collapse", "3", "--collapse-from", "2")
    assert "Regions, epoch 2" in said
    assert " modes in " in said
    assert f"tensorboard --logdir {tmp_path / 'run'}" in said
    figures = tmp_path / "run" / "version_0" / "genmonitor"
    assert str(figures) in said
    written = {path.name for path in figures.iterdir()}
    assert "cms_clusters.png" in written
    assert any(name.startswith("diversity_modes_epoch_0002") for name in written)


def train(folder, collapsed=None):
    """Train for six epochs and return the weights, Scendi at each evaluation and the table at the end."""
    torch.manual_seed(1)
    model = ConditionalDCGAN(collapsed, 4, features=16, lr=2e-3)
    data = ImageData("digits", with_labels=True)
    _, diversity = make_monitors(data.train_images, n_samples=200, every_n_epochs=1)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(max_epochs=6, accelerator="cpu", default_root_dir=folder, callbacks=[diversity], **quiet)
    trainer.fit(model, datamodule=data)
    said = diversity.summary()
    return model.state_dict(), [record["scendi"] for record in diversity.history], said


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings(*FIT)
def test_collapse_shows_in_scendi_and_in_the_table_and_leaves_training_alone(tmp_path):
    weights, well, said_of_well = train(tmp_path)
    with pytest.warns(UserWarning, match="Prompt '8' lost its variety since epoch 4: spread 0 at epoch 5"):
        same, collapsed, said = train(tmp_path, collapsed=8)
    assert "Prompt '8' lost its variety since epoch 4: spread 0 at epoch 5" in said
    assert "lost" not in said_of_well
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert well[:4] == collapsed[:4]
    assert all(there < 0.9 * well_then for there, well_then in zip(collapsed[4:], well[4:], strict=True))
