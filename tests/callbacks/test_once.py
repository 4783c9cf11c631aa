# SPDX-License-Identifier: Apache-2.0
"""`trainer.validate` and `trainer.test` evaluate once, and leave a training's curves and files alone."""

import json

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, ema_averaging, loader, measured, trainer
from _helpers.replayed import Digits, quiet
from _helpers.runs import manifests
from _helpers.swept import both, new, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from genmonitor.callbacks.checkpoints.replay import logged_evaluation, replay
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.findings.values import RUN_VALUES, by_key, lookup

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:.*treat the baseline as approximate"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback"),
]


class WithTestImages(Digits):
    """Has images to test with that nothing else has."""

    def test_dataloader(self):
        return loader(digits(500, 700))


class WithTestLoop(Linear):
    """Has a test loop."""

    def test_step(self, batch, index):
        pass


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with a monitor, one without, and what the monitor logged."""
    folder = tmp_path_factory.mktemp("runs")
    return folder, both(folder, WithTestLoop)


def last(folder):
    return folder / "checkpoints" / "epoch=1-step=6.ckpt"


REGIONS = [*(f"cluster_{number}" for number in range(1, 9)), "constant"]
DECLARED = by_key([*RegionValues(REGIONS, ["image", "product", "mmd", *REGIONS]).specs, *RUN_VALUES])


def of_samples(record):
    """Return what a record has of the samples alone, and the moment."""
    return {key: value for key, value in record.items() if lookup(DECLARED, key).repeatable}


def test_validating_a_checkpoint_gives_what_a_monitor_logged_then(runs, tmp_path):
    folder, logged = runs
    monitor = quiet()
    runner = trainer(tmp_path, monitor, logger=True)
    runner.validate(new(WithTestLoop), datamodule=Digits(), ckpt_path=last(folder / "without"))
    assert [of_samples(record) for record in measured(monitor)] == [of_samples(logged[-1])]
    assert float(runner.callback_metrics["cms/image"]) == pytest.approx(logged[-1]["image"])
    written = tmp_path / "lightning_logs" / "version_0"
    events = EventAccumulator(str(written)).Reload().Scalars("cms/image")
    assert [(event.step, event.value) for event in events] == [(5, pytest.approx(logged[-1]["image"]))]
    assert (written / "genmonitor-validate" / "report.html").is_file()
    path, checkpoint = written / "genmonitor-validate" / "cms_run.json", last(folder / "without")
    make = lambda: (new(WithTestLoop), Digits(), quiet())  # noqa: E731
    assert replay(path, checkpoint, make) == logged_evaluation(path, checkpoint)["repeatable"]


def test_testing_compares_with_the_images_of_the_test(runs, tmp_path):
    folder, logged = runs
    monitor = quiet()
    trainer(tmp_path, monitor).test(new(WithTestLoop), datamodule=WithTestImages(), ckpt_path=last(folder / "without"))
    (record,) = measured(monitor)
    assert (record["epoch"], record["step"]) == (1, 5)
    assert record["image"] != logged[-1]["image"]
    real = json.loads((tmp_path / "genmonitor-test" / "cms_real_images.json").read_text())
    assert real["count"] == 60
    tested = digits(500, 700)
    assert torch.equal(monitor.evaluator.fitted.real, tested[torch.tensor(real["indices"])])


def test_testing_after_a_training_leaves_its_curves_and_files(tmp_path):
    monitor = quiet()
    runner = train(tmp_path, new(WithTestLoop), WithTestImages(), monitor)
    folder = tmp_path / "genmonitor"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    best, history = monitor.evaluator.state_dict()["fit"]["tracker"], measured(monitor)
    first = tmp_path / "checkpoints" / "epoch=0-step=3.ckpt"
    runner.test(runner.lightning_module, datamodule=WithTestImages(), ckpt_path=first)
    assert measured(monitor)[:2] == history
    assert of_samples(measured(monitor)[2]) == of_samples(history[0])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    kept = monitor.evaluator.state_dict()["fit"]["tracker"]
    assert kept["epochs"] == best["epochs"]


def test_a_history_in_the_checkpoint_goes_on(runs, tmp_path):
    folder, logged = runs
    monitor = quiet()
    trainer(tmp_path, monitor).validate(new(WithTestLoop), datamodule=Digits(), ckpt_path=last(folder / "with"))
    assert of_samples(measured(monitor)[-1]) == of_samples(logged[-1])
    assert len(measured(monitor)) in (1, 1 + len(logged))  # Lightning restores callbacks here from 2.6 on


@pytest.mark.parametrize("weights", ["auto", "raw"])
def test_averaged_weights_are_named(tmp_path, weights):
    logged = both(tmp_path, WithTestLoop, lambda: ema_averaging(decay=0.9))
    monitor, data = quiet(weights=weights), Digits()
    runner = trainer(tmp_path / "validated", monitor)
    if weights == "raw":
        with pytest.raises(
            ValueError, match=r"Lightning has loaded the checkpoint's averaged ones. Give weights='auto'"
        ):
            runner.validate(new(WithTestLoop), datamodule=data, ckpt_path=last(tmp_path / "without"))
        return
    runner.validate(new(WithTestLoop), datamodule=data, ckpt_path=last(tmp_path / "without"))
    assert of_samples(measured(monitor)[0]) == of_samples(logged[-1])
    (manifest,) = manifests(tmp_path / "validated" / "genmonitor-validate")
    assert manifest["weights"] == "averaged"


def test_without_training_data_the_trainer_goes_on_and_real_images_are_asked_for(runs, tmp_path):
    folder, logged = runs
    loaders, path, lonely = loader(digits(300, 500)), last(folder / "without"), quiet()
    with pytest.warns(UserWarning, match=r"evaluates nothing: .* Give the monitor `real_images=`"):
        trainer(tmp_path, lonely).validate(new(WithTestLoop), loaders, ckpt_path=path)
    assert lonely.history == []
    monitor = quiet(real_images=digits(0, 300))
    trainer(tmp_path, monitor).validate(new(WithTestLoop), loaders, ckpt_path=path)
    assert [record["step"] for record in measured(monitor)] == [logged[-1]["step"]]


def test_a_module_without_a_checkpoint_is_evaluated_as_it_is(tmp_path):
    monitor = quiet()
    trainer(tmp_path, monitor).validate(new(WithTestLoop), datamodule=Digits())
    (record,) = measured(monitor)
    assert (record["epoch"], record["step"]) == (0, 0)
    assert "images_seen" not in record
