# SPDX-License-Identifier: Apache-2.0
"""What every monitor does with an evaluation, and how the runs of one monitor follow each other."""

import pickle
import warnings

import pytest
import torch
from _helpers.logged import Remember
from _helpers.modules import LIGHTNING_SAYS, Light, Linear, digits, epochs, fit, loader, measured, plain, trainer
from _helpers.runs import manifests
from lightning import Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader, TensorDataset

from genmonitor.callbacks import GenerativeMonitor
from genmonitor.callbacks.base import sampled_model
from genmonitor.callbacks.schedule import Schedule
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.results import Evaluation, FitReport
from genmonitor.findings.finding import Area, Finding
from genmonitor.images.sampler import Sampler

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:(Plain|Light). there is no validation data")]
VALIDATED = pytest.mark.parametrize("validated", [False, True], ids=["not validated", "validated"])
REAL = digits(0, 300)


class Scripted(Linear):
    """Samples are real digits with noise, so much in each epoch."""

    def __init__(self, noise=(0.0,) * 9):
        super().__init__()
        self.noise = noise

    def training_step(self, batch, index):
        return self.net.weight.square().sum()

    def sample(self, n):
        images = REAL[torch.randint(len(REAL), (n,))]
        return (images + self.noise[self.current_epoch] * torch.randn(n, 1, 8, 8)).clamp(-1, 1)


def validation(validated=True):
    return loader(digits(300, 400)) if validated else None


class Brightness(Evaluator):
    """The mean pixel of the samples, with an alert where it is above a limit."""

    def __init__(self, n_samples, prefix="brightness", limit=2.0):
        super().__init__(n_samples, prefix)
        self.limit, self.fits = limit, 0

    def fit(self, real, probe, comm, progress=None):
        self.fits += 1
        return FitReport()

    def update(self, samples):
        self.images = samples.images

    def compute(self, comm):
        return Evaluation({"mean": float(self.images.mean())})

    def commit(self, evaluation, history):
        bright = evaluation.values["mean"] > self.limit
        return [Finding("The images are bright.", Area("the image"), "bright", "mean", fine=False)] if bright else []


def brightness(prefix="brightness", limit=2.0, **settings):
    return GenerativeMonitor(Brightness(20, prefix, limit), Sampler(20), Schedule(), on_error="raise", **settings)


# an evaluation


def test_monitor_runs_an_evaluator_of_ones_own(tmp_path):
    monitor = brightness()
    runner, module = fit(tmp_path, monitor, max_epochs=2)
    with torch.no_grad():
        samples = monitor.sampler.draw(sampled_model(runner, module), range(20))
    assert monitor.history[-1]["mean"] == pytest.approx(float(samples.mean()))
    assert float(runner.callback_metrics["brightness/mean"]) == pytest.approx(monitor.history[-1]["mean"])
    assert (tmp_path / "genmonitor" / "brightness_run.json").exists()


class OwnMonitor(GenerativeMonitor):
    """Of the user's own, with something to remember."""

    def evaluate(self, *arguments):
        self.evaluated = [*getattr(self, "evaluated", []), arguments[1].current_epoch]
        return super().evaluate(*arguments)


@pytest.mark.parametrize("kind", [GenerativeMonitor, OwnMonitor])
def test_a_module_may_hold_its_monitor(tmp_path, kind):
    """What sampling writes into a module is taken back; what the monitor finds is not."""
    module, monitor = Linear(), kind(Brightness(20), Sampler(20), Schedule(), on_error="raise")
    module.monitor, module.parts = monitor, {"callbacks": [monitor]}
    fit(tmp_path, monitor, module=module, max_epochs=2)
    assert epochs(monitor) == [0, 1]
    assert (tmp_path / "genmonitor" / "brightness_run.json").exists()


def test_alerts_are_told_as_text_at_every_monitor(tmp_path):
    said = []
    monitor = brightness(limit=-2.0, on_alert=said.append)
    with pytest.warns(UserWarning, match=r"GenerativeMonitor: The images are bright\."):
        fit(tmp_path, monitor, max_epochs=2)
    assert said == ["The images are bright."] * 2


@pytest.mark.filterwarnings("ignore:GenerativeMonitor. The images are bright")
def test_what_on_alert_notes_on_the_module_stays(tmp_path):
    module = Linear()
    module.alerts = []
    fit(tmp_path, brightness(limit=-2.0, on_alert=lambda text: module.alerts.append(text)), module=module, max_epochs=2)
    assert module.alerts == ["The images are bright."] * 2


@VALIDATED
@pytest.mark.parametrize(("accumulate", "steps"), [(1, [2, 5]), (2, [1, 3]), (3, [0, 1])])
def test_logger_gets_one_dictionary_at_the_trainers_step(tmp_path, validated, accumulate, steps):
    monitor, logger = Light(log="all"), Remember()
    settings = {"logger": logger, "log_every_n_steps": 1, "accumulate_grad_batches": accumulate}
    fit(tmp_path, monitor, val=validation(validated), **settings)
    assert [step for step, _ in logger.logged] == steps == [record["step"] for record in monitor.history]
    for (_, logged), record in zip(logger.logged, monitor.history, strict=True):
        expected = {f"cms/{name}": value for name, value in record.items() if name not in ("epoch", "step")}
        assert {key: value for key, value in logged.items() if key.startswith("cms/")} == pytest.approx(expected)


@VALIDATED
def test_model_checkpoint_keeps_the_epoch_of_the_best_image(tmp_path, validated):
    monitor = plain()
    best = ModelCheckpoint(tmp_path / "kept", monitor="cms/image", mode="max", filename="{epoch}")
    fit(tmp_path, best, monitor, module=Scripted([0.9, 0.2, 0.5]), val=validation(validated), max_epochs=3)
    assert best.best_model_path.endswith("epoch=1.ckpt")
    assert float(best.best_model_score) == pytest.approx(max(record["image"] for record in monitor.history))


@VALIDATED
@pytest.mark.filterwarnings("ignore:(Plain|Light). cluster_. .* got worse")
def test_early_stopping_ends_a_run_whose_product_stands_still(tmp_path, validated):
    monitor, stop = plain(), EarlyStopping("cms/product", mode="max", patience=2)
    module = Scripted([0.9, 0.7, 0.5, 0.6, 0.6, 0.6])
    fit(tmp_path, stop, monitor, module=module, val=validation(validated), max_epochs=6)
    assert epochs(monitor) == [0, 1, 2, 3, 4]
    assert float(stop.best_score) == pytest.approx(monitor.history[2]["product"])


def test_generator_that_stands_still_gives_a_curve_that_does(tmp_path):
    monitor = plain(seed=7)
    fit(tmp_path, monitor, module=Linear(lr=0.0), val=validation(), max_epochs=4)
    moves = {"epoch", "step", "images_seen"}
    first, *later = [{k: v for k, v in record.items() if k not in moves} for record in measured(monitor)]
    unchanged = {f"vs_best_{name}": 0.0 for name in ("image", "1", "2", "3", "constant")}
    assert later == [first | unchanged] * 3
    assert {"image", "product", "cluster_3", "mmd"} <= first.keys()


def test_seconds_of_an_evaluation_are_logged(tmp_path):
    monitor = Light()
    fit(tmp_path, monitor, val=validation())
    assert all(0 < record[f"{part}_seconds"] < 60 for record in monitor.history for part in ("sampling", "metric"))


class Stops(Callback):
    """Stops the training when an epoch is over, and the monitors' hook too."""

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = trainer.current_epoch == 1


def test_last_weights_without_an_evaluation_are_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="Light: the last weights of this training were not evaluated"):
        fit(tmp_path, Light(every_n_epochs=3), Stops(), max_epochs=4)


class Short(list):
    """A sampler that gives fewer items than its length says, so Lightning never comes to a validation."""

    def __len__(self):
        return 300


def test_a_training_without_any_evaluation_is_told_so(tmp_path):
    train = DataLoader(TensorDataset(digits(0, 300)), 50, sampler=Short(range(200)))
    with pytest.warns(UserWarning, match="no weights of this training were evaluated: it was never validated"):
        fit(tmp_path, Light(), train=train, val=loader(digits(300, 400)), max_epochs=2)


def test_trainer_of_pytorch_lightning_gives_the_same(tmp_path):
    pl = pytest.importorskip("pytorch_lightning")

    class Foreign(pl.LightningModule):
        sample, training_step, validation_step = Linear.sample, Linear.training_step, Linear.validation_step
        configure_optimizers = Linear.configure_optimizers

        def __init__(self):
            super().__init__()
            self.lr, self.net = 0.0, torch.nn.Linear(4, 64)

    foreign, native = plain(), plain()
    runs = (
        (foreign, Foreign, pl.Trainer, pl.callbacks.ModelCheckpoint),
        (native, lambda: Linear(lr=0.0), Trainer, ModelCheckpoint),
    )
    for monitor, module, run, checkpoint in runs:
        torch.manual_seed(0)
        best = checkpoint(tmp_path, monitor="cms/image", mode="max")
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
        runner = run(max_epochs=2, callbacks=[monitor, best], default_root_dir=tmp_path, **quiet)
        runner.fit(module(), loader(REAL), validation())
        assert float(best.best_model_score) == pytest.approx(monitor.history[-1]["image"])
    assert measured(foreign) == measured(native)


# runs of one monitor


def files(folder):
    return {path.name for path in folder.rglob("genmonitor/*")}


def test_second_fit_of_a_trainer_goes_on_with_the_curve(tmp_path):
    monitor, module = plain(), Linear()
    runner = trainer(tmp_path, monitor, max_epochs=2)
    runner.fit(module, loader(REAL), validation())
    partition = monitor.partition
    runner.fit_loop.max_epochs = 3
    runner.fit(module, loader(REAL), validation())
    assert epochs(monitor) == [0, 1, 2]
    assert monitor.partition is partition
    assert monitor.history[-1]["images_seen"] == 900
    assert len(manifests(tmp_path / "genmonitor")) == 3


def test_second_training_begins_a_new_run(tmp_path):
    monitor, fresh = plain(), plain()
    for folder, before in (("one", monitor), ("other", plain())):  # regions keep the numbers of a folder
        fit(tmp_path / folder, before, train=loader(REAL), val=validation(), max_epochs=3)
    first = measured(monitor)
    others = {"train": loader(digits(400, 700)), "val": loader(digits(700, 800))}
    for folder, either in (("one", monitor), ("other", fresh)):
        torch.manual_seed(1)
        fit(tmp_path / folder, either, module=Linear(), max_epochs=2, **others)
    assert measured(monitor) == measured(fresh) != first[:2]
    assert monitor.partition == fresh.partition
    assert monitor.images_seen == 600
    assert files(tmp_path / "one") == files(tmp_path / "other")
    for folder, count in (("genmonitor", 3), ("genmonitor-v1", 2)):
        assert len(manifests(tmp_path / "one" / folder)) == count


def test_second_training_leaves_the_files_of_other_monitors(tmp_path):
    one, other = brightness("one"), brightness("other")
    fit(tmp_path, one, other, max_epochs=2)
    before = {path: path.read_bytes() for path in (tmp_path / "genmonitor").iterdir()}
    fit(tmp_path, one, max_epochs=1)
    fit(tmp_path, one, brightness("third"), max_epochs=1)
    assert {path: path.read_bytes() for path in (tmp_path / "genmonitor").iterdir()} == before
    versions = {path.name: {run.name for run in path.glob("*_run.json")} for path in tmp_path.glob("genmonitor-v*")}
    assert versions == {"genmonitor-v1": {"one_run.json"}, "genmonitor-v2": {"one_run.json", "third_run.json"}}


def test_two_monitors_of_a_kind_need_other_prefixes_alone(tmp_path):
    one, other = brightness("one"), brightness("other", limit=-2.0)
    keep = ModelCheckpoint(tmp_path, save_last=True)
    with pytest.warns(UserWarning, match="bright"):
        fit(tmp_path, one, other, keep, max_epochs=2)
    states = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]
    assert {"GenerativeMonitor[prefix=one]", "GenerativeMonitor[prefix=other]"} < states.keys()
    assert (one.publisher.notes.items, len(other.publisher.notes.items)) == ([], 2)
    again = brightness("one"), brightness("other")
    fit(tmp_path, *again, keep, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
    assert [measured(monitor) for monitor in again] == [measured(one), measured(other)]
    assert [len(monitor.publisher.notes.items) for monitor in again] == [0, 2]


def test_state_before_training_is_taken_as_it_is():
    resumed = plain()
    resumed.load_state_dict(plain().state_dict())
    assert resumed.partition is None
    assert resumed.history == []


# trials before a run


def test_fast_dev_run_writes_nothing(tmp_path):
    monitor = plain()
    fit(tmp_path, monitor, val=validation(), fast_dev_run=True)
    assert len(monitor.history) == 1
    assert list(tmp_path.rglob("*")) == []


def test_training_after_a_fast_dev_run_begins_anew(tmp_path):
    monitor = Light()
    fit(tmp_path, monitor, val=validation(), fast_dev_run=True)
    fit(tmp_path, monitor, val=validation(), max_epochs=1)
    assert epochs(monitor) == [0]
    assert monitor.images_seen == 300


class Tunable(Linear):
    """Takes its batch size and learning rate from attributes, as Lightning's Tuner asks for."""

    def __init__(self):
        super().__init__()
        self.batch_size = 50

    def train_dataloader(self):
        return loader(REAL, self.batch_size)

    def val_dataloader(self):
        return validation()


def tune(way, runner, module):
    from lightning.pytorch.tuner import Tuner

    tuner = Tuner(runner)
    if way == "lr_find":
        tuner.lr_find(module, num_training=5, update_attr=False)
    else:
        tuner.scale_batch_size(module, steps_per_trial=2, max_trials=1)
        module.batch_size = 50


@pytest.mark.filterwarnings("ignore:The `lr_find` is done:UserWarning", "ignore:.*:UserWarning:lightning.pytorch.tuner")
@pytest.mark.parametrize("way", ["lr_find", "scale_batch_size"])
def test_tuner_leaves_no_trace_in_a_monitor(tmp_path, way):
    tuned, untuned = Light(), Light()
    for monitor, folder in ((tuned, tmp_path / "tuned"), (untuned, tmp_path / "untuned")):
        torch.manual_seed(0)
        module = Tunable()
        runner = trainer(folder, monitor, max_epochs=2)
        if monitor is tuned:
            before = str(monitor.state_dict())
            tune(way, runner, module)
            assert (str(monitor.state_dict()), monitor.images_seen, files(folder)) == (before, 0, set())
        torch.manual_seed(1)
        runner.fit(module)
    assert measured(tuned) == measured(untuned)
    assert files(tmp_path / "tuned") == files(tmp_path / "untuned")


@pytest.mark.filterwarnings("ignore:Light. samples depend on the batch")
def test_generator_of_a_nested_module_is_restored_after_a_fit(tmp_path):
    class Noise(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = torch.Generator().manual_seed(1)

        def forward(self, n):
            return torch.randn(n, 4, generator=self.generator)

    class Nested(Linear):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList([torch.nn.Sequential(Noise())])

        def sample(self, n):
            return torch.tanh(self.net(self.parts[0][0](n))).view(n, 1, 8, 8)

    states = []
    for monitors in ([], [Light()]):
        _, module = fit(tmp_path, *monitors, module=Nested(), val=validation())
        states.append(module.parts[0][0].generator.get_state())
    assert torch.equal(*states)
    assert not torch.equal(states[0], torch.Generator().manual_seed(1).get_state())


# without a batch to validate on


EMPTY = {"[]": list, "[[]]": lambda: [[]], "combined": lambda: CombinedLoader({}), "no item": lambda: DataLoader([])}


@pytest.mark.filterwarnings("ignore:Total length of")
@pytest.mark.parametrize(("sanity", "every"), [(2, 1), (0, 2)])
@pytest.mark.parametrize("given", EMPTY)
def test_nothing_to_validate_on_is_no_validation(tmp_path, given, sanity, every):
    monitor = brightness()
    fit(tmp_path, monitor, val=EMPTY[given](), num_sanity_val_steps=sanity, check_val_every_n_epoch=every, max_epochs=2)
    assert epochs(monitor) == [0, 1]


# a module with words of its own


class OwnLog(Linear):
    def log(self, name):
        raise AssertionError("the module's own")

    def log_dict(self, values):
        raise AssertionError("the module's own")

    def training_step(self, batch, index):
        return self.net.weight.square().sum()


class SameKey(Linear):
    def on_train_epoch_end(self):
        self.log("brightness/mean", 3.0, on_epoch=True, reduce_fx="max")

    on_validation_epoch_end = on_train_epoch_end


def test_a_log_method_of_the_modules_own_is_not_used(tmp_path):
    monitor, stop = brightness(), EarlyStopping("brightness/mean")
    runner, _ = fit(tmp_path, monitor, stop, module=OwnLog())
    assert float(runner.callback_metrics["brightness/mean"]) == pytest.approx(monitor.history[-1]["mean"])


def test_a_key_that_the_module_logs_too_ends_no_run(tmp_path):
    monitor = GenerativeMonitor(Brightness(20), Sampler(20), on_error="warn")
    fit(tmp_path, monitor, module=SameKey())
    assert epochs(monitor) == [0, 1]


# where nothing can be said


class Mute:
    """A full disk, or a pipe that nobody reads."""

    def write(self, text):
        raise OSError(28, "No space left on device")

    flush = write


def test_a_terminal_that_takes_nothing_ends_no_run(tmp_path, monkeypatch):
    class LastCheckpoint(ModelCheckpoint):
        ended = False

        def on_train_end(self, trainer, pl_module):
            self.ended = True

    monitor, last = plain(on_error="warn"), LastCheckpoint(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", Mute())
        fit(tmp_path, monitor, last, val=validation(), max_epochs=1)
    assert last.ended
    assert len(monitor.history) == 1


def test_warnings_that_are_errors_end_no_run(tmp_path, capsys):
    class Fails(Linear):
        def sample(self, n):
            if not self.training and self.trainer.global_step:
                raise RuntimeError("no samples today")
            return super().sample(n)

    monitor = GenerativeMonitor(Brightness(20), Sampler(20), on_error="warn")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Plain|GenerativeMonitor")
        fit(tmp_path, plain(on_error="warn"), monitor, module=Fails(), max_epochs=1)
    said = capsys.readouterr().err
    assert "there is no validation data" in said
    assert "no samples today" in said


# other processes


@pytest.mark.parametrize("verbose", [True, False])
def test_a_monitor_can_be_sent_to_another_process(verbose):
    monitor = pickle.loads(pickle.dumps(plain(on_error="warn", verbose=verbose)))
    assert repr(monitor) == repr(plain(verbose=verbose))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork"])
def test_values_of_processes_of_the_training_alone_are_in_files(tmp_path, strategy):
    monitor = plain(on_error="warn")
    runner, _ = fit(tmp_path, monitor, val=validation(), max_epochs=1, strategy=strategy)
    assert (tmp_path / "genmonitor" / "history.csv").exists()
    assert "cms/image" in runner.callback_metrics
    assert monitor.history == []
