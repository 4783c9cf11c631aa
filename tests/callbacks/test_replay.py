# SPDX-License-Identifier: Apache-2.0
"""A logged evaluation is measured again, to the last bit, by a sweep of the checkpoint of the same epoch."""

import json
import shutil
import sys
from dataclasses import fields

import pytest
import torch
from _helpers.changed_settings import CHANGED
from _helpers.modules import LIGHTNING_SAYS, Linear, MeanGap, ema_averaging, loader, trainer
from _helpers.prompted import Prompted
from _helpers.prompted import plain as plain_diversity
from _helpers.replayed import Digits, Unsaved, quiet
from _helpers.runs import manifests
from _helpers.slow import slow_but
from data import ImageData
from dcgan import DCGAN
from lightning.pytorch.callbacks import ModelCheckpoint
from torchmetrics import MetricCollection

from genmonitor import PixelPartition
from genmonitor.callbacks.replay import NEEDED, logged_evaluation, replay
from genmonitor.cli import main
from genmonitor.evaluation import RegionSettings

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*treat the baseline as approximate")]


def run(folder, make, *callbacks, epochs=2, **settings):
    """Train what `make` returns with a checkpoint after each epoch; return the run's file and the checkpoints."""
    torch.manual_seed(0)
    module, data, monitors = make()
    monitors = monitors if isinstance(monitors, list) else [monitors]
    keep = ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=None)
    trainer(folder, *monitors, *callbacks, keep, max_epochs=epochs, **settings).fit(module, datamodule=data)
    path = folder / "genmonitor" / f"{monitors[0].prefix}_run.json"
    return path, [folder / f"epoch={epoch}.ckpt" for epoch in range(epochs)]


def logged(path, checkpoint):
    return logged_evaluation(path, checkpoint)["repeatable"]


def of_a_dcgan():
    module = DCGAN(latent_dim=8, generator_features=8, discriminator_features=8, lr=1e-3)
    return module, ImageData("digits"), quiet(sample_batch_size=25)


def of_two_monitors():
    settings = {"n_clusters": None, "partition": PixelPartition.grid((8, 8), 2, 2), "sample_batch_size": 20}
    both = [quiet(**settings), quiet(n_samples=35, prefix="another", **settings)]
    return DCGAN(latent_dim=8, generator_features=8), ImageData("digits"), both


class Annealed(Linear):
    """Its samples depend on the epoch."""

    def sample(self, n):
        return super().sample(n) / (1 + self.current_epoch)


def of_own_code():
    sample_fn = lambda module, n: module.sample(n).neg()  # noqa: E731
    return Unsaved(0.1), Digits(), quiet(sample_fn=sample_fn, extra_metrics=MetricCollection({"gap": MeanGap()}))


def linear(shift=0.0, **settings):
    return lambda: (Linear(0.05), Digits(shift), quiet(**settings))


RUNS = {
    "dcgan": (of_a_dcgan, {}),
    "shared samples": (of_two_monitors, {}),
    "the epoch matters": (lambda: (Annealed(0.0), Digits(), quiet()), {}),
    "code of one's own": (of_own_code, {}),
    "another monitor": (lambda: (Prompted(), Digits(), plain_diversity()), {}),
    "no validation": (linear(), {"limit_val_batches": 0}),
    "blocks": (linear(block_size=20, seed=3), {}),
    "half precision": (linear(0.25), {"precision": "bf16-mixed"}),
    "prompts": (lambda: (Prompted(), Digits(), quiet(prompts=[4, 1, 1])), {}),
    "the paper's": (linear(n_clusters=5, linkage="average", batch_estimator=100, block_size=20), {}),
}


@pytest.mark.filterwarnings("ignore:.*(there is no validation data|real images are in|real images available)")
@pytest.mark.parametrize("name", slow_but([*RUNS], "dcgan", "shared samples", "the epoch matters", "no validation"))
def test_replay_gives_the_same_bits(tmp_path, name):
    make, settings = RUNS[name]
    path, checkpoints = run(tmp_path, make, **settings)
    values = [replay(path, checkpoint, make) for checkpoint in checkpoints]
    assert values == [logged(path, checkpoint) for checkpoint in checkpoints]
    assert all(values)
    for other in set(path.parent.glob("*_run.json")) - {path}:
        assert replay(other, checkpoints[1], make) == logged(other, checkpoints[1])


@pytest.mark.filterwarnings("ignore:.*(real images are in|real images available)")
def test_an_evaluation_between_two_diagnoses_is_replayed_without_one(tmp_path):
    """A diagnosis is one test more that `p` is adjusted for."""
    make = linear(0.25, n_samples=120)
    path, checkpoints = run(tmp_path, make, epochs=3)
    values = [logged(path, checkpoint) for checkpoint in checkpoints]
    assert ["spread" in record for record in values] == [True, False, True]
    assert [replay(path, checkpoint, make) for checkpoint in checkpoints] == values


@pytest.mark.parametrize("weights", ["auto", "raw"])
def test_replay_tells_averaged_and_raw_weights_apart(tmp_path, weights):
    make = linear(weights=weights)
    path, checkpoints = run(tmp_path, make, ema_averaging(decay=0.9))
    assert manifests(path.parent)[1]["weights"] == ("averaged" if weights == "auto" else "raw")
    assert replay(path, checkpoints[1], make) == logged(path, checkpoints[1])


GIVEN_REGIONS = {"partition": CHANGED["partition"], "n_clusters": None}
ALL_OTHERS = {name: value for name, value in CHANGED.items() if name != "partition"}


@pytest.mark.parametrize("changed", [GIVEN_REGIONS, ALL_OTHERS], ids=["regions that are given", "all other settings"])
def test_replay_of_every_setting_gives_the_same_bits(tmp_path, changed):
    assert ALL_OTHERS.keys() | GIVEN_REGIONS.keys() == {field.name for field in fields(RegionSettings)}
    path, checkpoints = run(tmp_path, linear(**changed), epochs=1)
    said, expected = manifests(path.parent)[0]["settings"], RegionSettings(**changed).to_manifest()
    assert {name: said[name] for name in changed} == {name: expected[name] for name in changed}
    assert replay(path, checkpoints[0], linear(**changed)) == logged(path, checkpoints[0])


def test_settings_of_a_run_are_those_of_its_monitor(ran):
    (manifest, _) = manifests(ran[0].parent)
    assert manifest.keys() >= NEEDED
    assert manifest["settings"] == quiet().evaluator.settings.to_manifest()


OTHERS = {
    "another monitor": (lambda: (Linear(), Digits(), plain_diversity(prefix="cms")), "with monitor='Pixel"),
    "other settings": (linear(n_samples=61), "with n_samples=60, but got n_samples=61"),
    "no monitor": (lambda: (Linear(), Digits()), "the monitor of cms too, but got none"),
    "other images": (
        lambda: (Linear(), Other(), quiet()),
        "not those of the run, which took 60 of the validation data",
    ),
    "another module": (lambda: (Annealed(0.1).net, Digits(), quiet()), "Expected the setup to return"),
}


class Other(Digits):
    """Validates on other images."""

    def val_dataloader(self):
        return loader(self.images[310:500])


@pytest.mark.parametrize("name", OTHERS)
def test_replay_refuses_what_is_not_of_the_run(ran, name):
    make, said = OTHERS[name]
    with pytest.raises(ValueError, match=said):
        replay(*(ran[0], ran[1][0]), make)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run with all that can be asked of it."""
    folder = tmp_path_factory.mktemp("run")
    return run(folder, linear())


def test_replay_refuses_the_checkpoint_of_no_evaluation(ran, tmp_path):
    path, checkpoints = ran
    saved = torch.load(checkpoints[0], weights_only=True) | {"global_step": 5}
    torch.save(saved, tmp_path / "between.ckpt")
    with pytest.raises(ValueError, match="at one of the steps 3, 6, but got one of step 5"):
        replay(path, tmp_path / "between.ckpt", linear())


SETUP = """
from _helpers.replayed import Digits, Linear, quiet

def build():
    return Linear(0.05), Digits(), quiet()
"""


@pytest.fixture
def setup(tmp_path):
    (tmp_path / "setup_of_a_run.py").write_text(SETUP)
    yield ["--setup", f"{tmp_path / 'setup_of_a_run.py'}:build"]
    sys.modules.pop("setup_of_a_run", None)


def test_replay_command_says_that_every_value_is_the_same(ran, setup, capsys):
    path, checkpoints = ran
    assert main(["replay", str(path), "--checkpoint", str(checkpoints[1]), *setup]) == 0
    said = capsys.readouterr().out
    assert "The same to the last bit." in said
    assert repr(logged(path, checkpoints[1])["image"]) in said
    assert main(["replay", str(path), "--checkpoint", str(checkpoints[1]), *setup, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {name: value["replayed"] for name, value in result["values"].items()} == logged(path, checkpoints[1])


def test_replay_command_says_which_value_differs(ran, setup, tmp_path, capsys):
    path, checkpoints = ran
    copied = shutil.copytree(path.parent, tmp_path / "copied") / path.name
    altered = json.loads(path.read_text())
    altered["evaluations"][0]["values"]["image"] += 1e-12
    altered["evaluations"][0]["versions"]["torch"] = "1.0"
    copied.write_text(json.dumps(altered))
    assert main(["replay", str(copied), "--checkpoint", str(checkpoints[0]), *setup]) == 1
    said = capsys.readouterr().out
    assert "1 of" in said
    assert "The run used different versions: {'torch': '1.0'}." in said


def test_replay_does_not_unpickle_a_checkpoint(ran, tmp_path, capsys):
    path, checkpoints = ran
    saved = torch.load(checkpoints[0], weights_only=True) | {"trap": plain_diversity}
    torch.save(saved, tmp_path / "trap.ckpt")
    assert main(["replay", str(path), "--checkpoint", str(tmp_path / "trap.ckpt"), "--setup", "x.py:build"]) == 2
    assert "not a checkpoint of tensors and plain Python" in capsys.readouterr().err
