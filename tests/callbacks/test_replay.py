# SPDX-License-Identifier: Apache-2.0
"""A logged evaluation is measured again, to the last bit, from its manifest and the checkpoint of the same epoch."""

import json
import shutil
import sys
from dataclasses import fields

import pytest
import torch
from _helpers.changed_settings import CHANGED
from _helpers.modules import LIGHTNING_SAYS, Linear, ema_averaging, fit, loader, trainer
from _helpers.prompted import Prompted
from _helpers.prompted import plain as plain_diversity
from _helpers.replayed import Digits, quiet
from _helpers.runs import manifests
from _helpers.slow import slow_but
from data import ImageData
from dcgan import DCGAN
from lightning.pytorch.callbacks import ModelCheckpoint

from genmonitor import PixelPartition
from genmonitor.callbacks.checkpoints.setup import imported
from genmonitor.callbacks.replay import NEEDED, logged_evaluation, replay
from genmonitor.cli import main
from genmonitor.evaluation import RegionSettings

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*treat the bands as approximate")]


def run(folder, monitor, module, data, *callbacks, epochs=2, **settings):
    """Train with a checkpoint after each epoch; return the file of the run and the checkpoints by epoch."""
    keep = ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=None)
    runner = trainer(folder, monitor, *callbacks, keep, max_epochs=epochs, **settings)
    runner.fit(module, datamodule=data)
    return folder / "genmonitor" / f"{monitor.prefix}_run.json", [
        folder / f"epoch={epoch}.ckpt" for epoch in range(epochs)
    ]


def logged(path, checkpoint):
    return logged_evaluation(path, checkpoint)["repeatable"]


def test_replay_of_a_dcgan_gives_the_same_bits(tmp_path):
    torch.manual_seed(0)
    module = DCGAN(latent_dim=8, generator_features=8, discriminator_features=8, lr=1e-3)
    path, checkpoints = run(tmp_path, quiet(sample_batch_size=25), module, ImageData("digits"))
    values = [replay(path, checkpoint) for checkpoint in checkpoints]
    assert values == [logged(path, checkpoint) for checkpoint in checkpoints]
    assert values[0]["image"] != values[1]["image"]


def test_replay_of_a_diffusion_model_gives_the_same_bits(tmp_path):
    kind = pytest.importorskip("ddpm", reason="needs examples/ddpm.py and diffusers").DDPM
    torch.manual_seed(0)
    settings = {"limit_train_batches": 2, "epochs": 1}
    module, average = kind(widths=(8, 16), sampling_steps=4), ema_averaging(decay=0.9)
    path, checkpoints = run(tmp_path, quiet(), module, ImageData("digits"), average, **settings)
    assert replay(path, checkpoints[0]) == logged(path, checkpoints[0])


@pytest.mark.parametrize("weights", ["auto", "raw"])
def test_replay_tells_averaged_and_raw_weights_apart(tmp_path, weights):
    torch.manual_seed(0)
    average = ema_averaging(decay=0.9)
    path, checkpoints = run(tmp_path, quiet(weights=weights), Linear(0.05), Digits(), average)
    assert manifests(path.parent)[1]["weights"] == ("averaged" if weights == "auto" else "raw")
    assert replay(path, checkpoints[1]) == logged(path, checkpoints[1])


def test_replay_draws_shared_samples_in_their_batches(tmp_path):
    torch.manual_seed(0)
    settings = {"sample_batch_size": 20, "n_clusters": None, "partition": PixelPartition.grid((8, 8), 2, 2)}
    first, second = quiet(**settings), quiet(n_samples=35, prefix="another", **settings)
    module = DCGAN(latent_dim=8, generator_features=8)
    path, checkpoints = run(tmp_path, first, module, ImageData("digits"), second)
    assert manifests(path.parent)[1]["drawn"] == [[0, 60]]
    assert manifests(path.parent, "another")[1]["drawn"] == [[0, 60]]  # more than its own
    for run_file in (path, path.with_name("another_run.json")):
        assert replay(run_file, checkpoints[1]) == logged(run_file, checkpoints[1])


OTHERS = {
    "no validation": ({}, {"limit_val_batches": 0}),
    "blocks": ({"block_size": 20, "seed": 3}, {}),
    "half precision": ({}, {"precision": "bf16-mixed"}),
    "prompts": ({"prompts": [4, 1, 1]}, {}),
}


@pytest.mark.filterwarnings("ignore:.*there is no validation data", "ignore:.*real images are in .-0.75, 1.25")
@pytest.mark.parametrize("name", OTHERS)
def test_replay_of_other_runs_gives_the_same_bits(tmp_path, name):
    torch.manual_seed(0)
    settings, others = OTHERS[name]
    module = Prompted() if name == "prompts" else Linear()
    path, checkpoints = run(tmp_path, quiet(**settings), module, Digits(shift=0.25), epochs=1, **others)
    assert replay(path, checkpoints[0]) == logged(path, checkpoints[0])


@pytest.mark.parametrize(
    "name",
    slow_but([field.name for field in fields(RegionSettings)], "n_clusters", "partition", "kernel", "block_size"),
)
def test_replay_of_every_setting_gives_the_same_bits(tmp_path, name):
    torch.manual_seed(0)
    settings = {name: CHANGED[name]} | ({"n_clusters": None} if name == "partition" else {})
    path, checkpoints = run(tmp_path, quiet(**settings), Linear(), Digits(), epochs=1)
    said = manifests(path.parent)[0]["settings"]
    assert said[name] == RegionSettings(**{name: CHANGED[name]}).to_manifest()[name]
    assert replay(path, checkpoints[0]) == logged(path, checkpoints[0])


def test_replay_of_the_papers_settings_gives_the_same_bits(tmp_path):
    torch.manual_seed(0)
    settings = {"n_clusters": 5, "linkage": "average", "batch_estimator": 100, "block_size": 20}
    path, checkpoints = run(tmp_path, quiet(**settings), Linear(), Digits(), epochs=1)
    assert replay(path, checkpoints[0]) == logged(path, checkpoints[0])


def test_settings_of_a_run_are_those_of_its_monitor(ran):
    (manifest, _) = manifests(ran[0].parent)
    assert manifest.keys() >= NEEDED
    assert RegionSettings.from_manifest(manifest["settings"]) == quiet().evaluator.settings


class Annealed(Linear):
    """Its samples depend on the epoch."""

    def sample(self, n):
        return super().sample(n) / (1 + self.current_epoch)


def test_replay_samples_in_the_epoch_of_the_evaluation(tmp_path):
    torch.manual_seed(0)
    path, checkpoints = run(tmp_path, quiet(), Annealed(0.0), Digits(), epochs=2)
    values = [replay(path, checkpoint) for checkpoint in checkpoints]
    assert values == [logged(path, checkpoint) for checkpoint in checkpoints]
    assert values[0]["image"] != values[1]["image"]


SETUP = """
from _helpers.modules import MeanGap, digits, loader
from _helpers.prompted import Prompted, plain
from _helpers.replayed import Digits, Unsaved, quiet
from torchmetrics import MetricCollection

def build():
    loaders = [loader(digits(0, 300), shuffle=True), loader(digits(300, 500))]
    extra = MetricCollection({"gap": MeanGap()})
    sample_fn = lambda module, n: module.sample(n).neg()
    return Unsaved(0.1), loaders, quiet(sample_fn=sample_fn, extra_metrics=extra)

def diversity():
    return Prompted(), Digits(), plain()

def other():
    return Unsaved(0.1), Digits(), plain()
"""


@pytest.fixture
def setup(tmp_path):
    (tmp_path / "setup_of_a_run.py").write_text(SETUP)
    yield lambda name: f"{tmp_path / 'setup_of_a_run.py'}:{name}"
    sys.modules.pop("setup_of_a_run", None)


def test_replay_takes_unserializable_args_from_a_function(tmp_path, setup):
    torch.manual_seed(0)
    module, (train, val), monitor = imported(setup("build"))()
    keep = ModelCheckpoint(tmp_path, filename="{epoch}")
    fit(tmp_path, monitor, keep, module=module, train=train, val=val, max_epochs=1)
    path, checkpoint = tmp_path / "genmonitor" / "cms_run.json", tmp_path / "epoch=0.ckpt"
    (said,) = manifests(path.parent)
    assert (said["data"], said["unserializable_args"]) == (None, ["sample_fn", "extra_metrics"])
    assert replay(path, checkpoint, setup("build")) == logged(path, checkpoint)
    assert "gap" in logged(path, checkpoint)
    with pytest.raises(ValueError, match=r"save_hyperparameters\(\) in its __init__.* Give --setup"):
        replay(path, checkpoint)
    with pytest.raises(ValueError, match="the run, with monitor='PixelClusterMonitor', but got monitor='Plain'"):
        replay(path, checkpoint, setup("other"))
    with pytest.raises(ValueError, match=r"FILE.py:NAME or package.module:NAME, but got .*:nothing"):
        replay(path, checkpoint, setup("nothing"))


@pytest.mark.filterwarnings("ignore:.*real images available for comparison")
def test_replay_takes_other_monitors_from_a_function(tmp_path, setup):
    torch.manual_seed(0)
    path, checkpoints = run(tmp_path, plain_diversity(), Prompted(), Digits(), epochs=1)
    assert replay(path, checkpoints[0], setup("diversity")) == logged(path, checkpoints[0])
    with pytest.raises(ValueError, match=r"What a Plain needs is not in its manifest. Give --setup"):
        replay(path, checkpoints[0])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run with all that can be asked of it."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    return run(folder, quiet(), Linear(0.05), Digits())


def test_replay_refuses_the_checkpoint_of_no_evaluation(ran, tmp_path):
    path, checkpoints = ran
    saved = torch.load(checkpoints[0], weights_only=True) | {"global_step": 5}
    torch.save(saved, tmp_path / "between.ckpt")
    with pytest.raises(ValueError, match="at one of the steps 3, 6, but got one of step 5"):
        replay(path, tmp_path / "between.ckpt")


def test_replay_of_a_copied_run_needs_the_copied_script(ran, tmp_path, monkeypatch):
    path, checkpoints = ran
    folder = tmp_path / "project" / "run" / "genmonitor"
    shutil.copytree(path.parent, folder)
    copied = folder / path.name
    content = json.loads(copied.read_text())
    assert content["folder"] == str(path.parent)
    # as if the helpers were scripts beside the run, which are copied, and the old ones are gone
    old = path.parent.parent.parent
    for evaluation in content["evaluations"]:
        for name in ("module", "data"):
            module, _, kind = evaluation[name].rpartition(":")
            stem = module.rpartition(".")[2]
            evaluation[name] = f"{old / f'{stem}_copied.py'}:{kind}"
            (tmp_path / "project" / f"{stem}_copied.py").write_text(f"from {module} import {kind}")
    copied.write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    assert replay(copied, checkpoints[0]) == logged(path, checkpoints[0])


def test_replay_refuses_other_real_images(ran, monkeypatch):
    path, checkpoints = ran
    monkeypatch.setattr(Digits, "val_dataloader", lambda self: loader(self.images[280:480]))
    with pytest.raises(ValueError, match="real images are not those of the run, which took 60 of the validation data"):
        replay(path, checkpoints[0])


def test_replay_command_says_that_every_value_is_the_same(ran, capsys):
    path, checkpoints = ran
    assert main(["replay", str(path), "--checkpoint", str(checkpoints[1])]) == 0
    said = capsys.readouterr().out
    assert "The same to the last bit." in said
    assert repr(logged(path, checkpoints[1])["image"]) in said
    assert main(["replay", str(path), "--checkpoint", str(checkpoints[1]), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {name: value["replayed"] for name, value in result["values"].items()} == logged(path, checkpoints[1])


def test_replay_command_says_which_value_differs(ran, tmp_path, capsys):
    path, checkpoints = ran
    copied = shutil.copytree(path.parent, tmp_path / "copied") / path.name
    altered = json.loads(path.read_text())
    altered["evaluations"][0]["values"]["image"] += 1e-12
    altered["evaluations"][0]["versions"]["torch"] = "1.0"
    copied.write_text(json.dumps(altered))
    assert main(["replay", str(copied), "--checkpoint", str(checkpoints[0])]) == 1
    said = capsys.readouterr().out
    assert "1 of" in said
    assert "The run used different versions: {'torch': '1.0'}." in said


def test_replay_does_not_unpickle_a_checkpoint(ran, tmp_path, capsys):
    path, checkpoints = ran
    saved = torch.load(checkpoints[0], weights_only=True) | {"trap": plain_diversity}
    torch.save(saved, tmp_path / "trap.ckpt")
    assert main(["replay", str(path), "--checkpoint", str(tmp_path / "trap.ckpt")]) == 2
    assert "not a checkpoint of tensors and plain Python" in capsys.readouterr().err
