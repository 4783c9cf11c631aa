# SPDX-License-Identifier: Apache-2.0
"""What goes wrong during a run is said and costs an evaluation at most, and training is left as it was."""

import csv
import errno
import json
import shutil
import warnings
from pathlib import Path
from queue import SimpleQueue

import pytest
import torch
from _helpers.logged import read_tensorboard
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, measured, plain
from _helpers.prompted import Prompted
from _helpers.prompted import plain as prompted
from _helpers.traces import run, same, without_monitor
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.utils.data import Dataset

from genmonitor.callbacks import PixelClusterMonitor

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:Plain. (there is no validation data|only)"),
    pytest.mark.filterwarnings("ignore:PixelClusterMonitor. (only|the baseline|there is no validation)"),
]
KIND = "one optimizer"


def quietly(folder, *callbacks, **settings):
    """Run with warnings kept as a list: what was said, and what the run left behind."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        left = run(folder, KIND, False, *callbacks, **settings)
    return [str(warning.message) for warning in said], left


def untouched(folder, left):
    expected = without_monitor(folder, KIND, False, 1)
    return {part for part in expected if not same(left[part], expected[part])} == set()


class FromEpoch:
    """A sampler that does something else to the images from an epoch on, to one past the last."""

    def __init__(self, spoil, start, stop=99):
        self.spoil, self.epochs = spoil, range(start, stop)

    def __call__(self, module, n):
        images = module.sample(n)
        return self.spoil(images) if module.current_epoch in self.epochs else images


@pytest.mark.parametrize(("bad", "everywhere"), [(torch.nan, True), (-torch.inf, False)])
def test_nan_and_infinity_are_missing_and_leave_no_trace(tmp_path, bad, everywhere):
    def spoil(images):
        images = images.clone()
        images.view(-1)[: None if everywhere else 1] = bad
        return images

    monitor = plain(sample_fn=FromEpoch(spoil, 1), on_error="warn")
    said, left = quietly(tmp_path, monitor)
    assert untouched(tmp_path, left)
    assert [record["epoch"] for record in monitor.history] == [0]
    assert sum("Plain: the generator produced NaN or infinite values at epoch 1" in text for text in said) == 1


def test_generator_of_nan_alerts_once_and_may_recover(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    nan = FromEpoch(lambda images: images * float("nan"), 1, 6)  # longer than the failures that switch a monitor off
    monitor = plain(sample_fn=nan, on_error="warn")
    stops = EarlyStopping("cms/image", mode="max", patience=20, check_finite=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(tmp_path, monitor, stops, logger=logger, max_epochs=8)
    assert [record["epoch"] for record in monitor.history] == [0, 6, 7]
    events = read_tensorboard(logger.log_dir)
    (alert,) = events.Tensors("alerts/text_summary")
    assert "NaN or infinite values at epoch 1" in alert.tensor_proto.string_val[0].decode()
    assert len(events.Scalars("cms/image")) == 3  # a gap in the curve, no number made up


def test_features_that_are_nan_are_a_finding_too(tmp_path):
    module = Prompted()
    encode = FromEpoch(lambda x: x * float("nan"), 1, 5)

    def encoder(images):
        return encode(
            type("Same", (), {"sample": lambda _, n: images.flatten(1), "current_epoch": module.current_epoch})(), 0
        )

    monitor = prompted(output_encoder=encoder, on_error="warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(tmp_path, monitor, module=module, max_epochs=7)
    assert [record["epoch"] for record in monitor.history] == [0, 5, 6]


MEMORY = {
    "cuda": "CUDA out of memory. Tried to allocate 20.00 GiB",
    "cpu": "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried",
}


class Small:
    """A device on which only so many samples fit at once."""

    def __init__(self, most, message=MEMORY["cuda"]):
        self.most, self.message, self.asked = most, message, SimpleQueue()  # a list would be put back

    def __call__(self, module, n):
        self.asked.put(n)
        if n > self.most:
            raise RuntimeError(self.message)
        return module.sample(n)


@pytest.mark.slow
@pytest.mark.parametrize("memory", MEMORY)
def test_batch_without_memory_is_halved_until_it_fits(tmp_path, memory):
    sample = Small(8, MEMORY[memory])
    small, enough = plain(sample_fn=sample, sample_batch_size=60), plain(sample_batch_size=60)
    said, left = quietly(tmp_path, small)
    run(tmp_path, KIND, False, enough)
    assert untouched(tmp_path, left)
    assert measured(small) == [pytest.approx(record, rel=1e-6, abs=1e-6) for record in measured(enough)]
    assert len(small.history) == 2
    assert {60, 30, 15, 7} <= {sample.asked.get() for _ in range(sample.asked.qsize())}
    assert any(
        "no memory for 60 samples at once, so they are drawn 30 at a time. Give sample_batch_size=30" in t for t in said
    )


@pytest.mark.slow
def test_sample_without_memory_is_skipped(tmp_path):
    small = Small(100)
    monitor = plain(sample_fn=small, on_error="warn")

    class Fills(Callback):
        def on_train_start(self, trainer, pl_module):
            small.most = 0

    said, left = quietly(tmp_path, monitor, Fills())
    assert untouched(tmp_path, left)
    assert monitor.history == []
    assert any("this evaluation failed and is skipped" in text and "CUDA out of memory" in text for text in said)


def test_another_error_of_the_sampler_is_not_tried_again(tmp_path):
    small = Small(100, "CUDA error: device-side assert triggered")
    monitor = plain(sample_fn=small, on_error="warn")

    class Breaks(Callback):
        def on_train_start(self, trainer, pl_module):
            small.most, small.asked = 0, SimpleQueue()

    quietly(tmp_path, monitor, Breaks())
    assert [small.asked.get() for _ in range(small.asked.qsize())] == [60, 60]


class Raises(CSVLogger):
    """A logger that takes the loss, but nothing of a monitor: its own limits, or its server's."""

    def log_metrics(self, metrics, step=None):
        if any(name.startswith("cms/") for name in metrics):
            raise ConnectionError("the server does not answer")


@pytest.mark.filterwarnings("ignore:Plain.*|Raises.*|PixelCluster.*|Experiment logs directory")
@pytest.mark.slow
def test_logger_that_raises_costs_neither_run_nor_numbers(tmp_path):
    monitor = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200, every_n_train_steps=2)
    healthy = CSVLogger(tmp_path, "other")
    with pytest.warns(UserWarning, match="Raises did not take what was logged: ConnectionError"):
        trainer, _ = fit(
            tmp_path, monitor, logger=[Raises(tmp_path), healthy], val=loader(digits(300, 400)), max_epochs=2
        )
    assert trainer.global_step == 6
    assert len(monitor.history) == 4
    assert list((tmp_path / "lightning_logs").glob("*/genmonitor/cms_run.json"))
    rows = [
        row
        for row in csv.DictReader((Path(healthy.log_dir) / "metrics.csv").read_text().splitlines())
        if row["cms/image"]
    ]
    assert [float(row["cms/image"]) for row in rows] == [record["image"] for record in monitor.history]


def full(path, content):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
def test_disk_that_takes_nothing_costs_the_files_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError) as caught:
        full(None, None)
    error = caught.value
    monitor = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer, _ = fit(tmp_path, monitor, module=Prompted(), max_epochs=2)
    assert trainer.global_step == 6
    assert [record["epoch"] for record in monitor.history] == [0, 1]
    assert [str(w.message) for w in said if "could not be shown or written" in str(w.message)] == [
        f"{type(monitor).__name__}: part of an evaluation could not be shown or written. OSError: {error}."
    ]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_folder_that_is_deleted_during_the_run_is_made_again(tmp_path):
    class Deletes(Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == 1:
                shutil.rmtree(tmp_path / "genmonitor")

    monitor = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200, on_error="raise")
    fit(tmp_path, monitor, Deletes(), max_epochs=2)
    left = {path.name for path in (tmp_path / "genmonitor").iterdir()}
    assert {"report.html", "cms_run.json"} <= left
    assert len(monitor.history) == 2


@pytest.mark.slow
def test_interrupted_wandb_run_costs_its_figures_alone(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    from lightning.pytorch.loggers import WandbLogger

    logger = WandbLogger(save_dir=str(tmp_path), offline=True)

    class Interrupts(Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == 1:
                logger.experiment.finish()

    class Silent(Linear):
        def log(self, *args, **kwargs):
            pass

    monitor = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200, every_n_train_steps=3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer, _ = fit(tmp_path, monitor, Interrupts(), module=Silent(), logger=logger, max_epochs=3)
    wandb.teardown()
    assert trainer.global_step == 9
    assert len(monitor.history) == 4
    assert any("WandbLogger did not take what was logged" in str(w.message) for w in said)


class Growing(Dataset):
    """Data to which images are added, or from which they are taken away, during the run."""

    def __init__(self, images, length):
        self.images, self.length = images, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.images[index]


def test_data_that_shrink_do_not_move_the_curves(tmp_path):
    data, still = Growing(digits(0, 300), 150), Growing(digits(0, 300), 150)

    class Changes(Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == 1:
                data.length = 100

    one, other = plain(real_images=data), plain(real_images=still)
    fit(tmp_path, one, Changes(), module=Linear(lr=0.0), max_epochs=3)
    same = [{k: v for k, v in record.items() if "vs_best" not in k} for record in measured(one)]
    assert len({json.dumps({**record, "epoch": 0, "step": 0, "images_seen": 0}) for record in same}) == 1
    torch.manual_seed(0)
    fit(tmp_path, other, module=Linear(lr=0.0), max_epochs=1)
    assert one.baseline == other.baseline


def test_data_of_another_length_start_the_curves_anew(tmp_path):
    first, resumed, fresh = plain(), plain(), plain()
    keep = ModelCheckpoint(tmp_path, save_last=True)
    fit(tmp_path, first, keep, train=loader(digits(0, 300)), max_epochs=1)
    longer = loader(digits(0, 500))
    with pytest.warns(UserWarning, match="used with different images before: clusters, baseline and curves start over"):
        fit(tmp_path, resumed, keep, train=longer, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
    fit(tmp_path, fresh, train=longer, max_epochs=1)
    assert (resumed.partition, resumed.kernel, resumed.baseline) == (fresh.partition, fresh.kernel, fresh.baseline)
    assert [record["epoch"] for record in resumed.history] == [1]


def test_data_that_are_shorter_than_they_say_are_refused(tmp_path):
    lies = Growing(digits(0, 100), 300)
    with pytest.raises(ValueError, match="`real_images` to hold 300 images, as its length says, but there is none"):
        fit(tmp_path, plain(real_images=lies))


class Elsewhere(nn.Module):
    """Maps of images by a layer that must be on their device; it stands for one that was left on another device."""

    def __init__(self, device="cpu"):
        super().__init__()
        self.pool, self.scale = nn.AvgPool2d(2), nn.Parameter(torch.ones(1, device=device))
        self.moved_to = []

    def to(self, *args, **kwargs):
        self.moved_to.append(torch.device(*args))
        return super().to(*args, **kwargs)

    def forward(self, images):
        return self.pool(images * self.scale)


@pytest.mark.parametrize("part", ["site_encoder", "output_encoder"])
def test_encoder_without_data_is_refused(tmp_path, part):
    encoder = Elsewhere("meta")
    monitor = plain(site_encoder=encoder) if part == "site_encoder" else prompted(output_encoder=encoder)
    with pytest.raises(ValueError, match=f"`{part}`.*meta device.*Load its weights"):
        fit(tmp_path, monitor, module=Prompted())


def test_module_is_evaluated_again_in_another_dtype(tmp_path):
    class Converted(Linear):
        def sample(self, n):
            return torch.tanh(self.net(torch.randn(n, 4).to(self.dtype))).view(n, 1, 8, 8)

        def training_step(self, batch, index):
            return self.net.weight.square().sum()

    module, monitor = Converted(lr=0.0), plain()
    images = []
    for _ in range(2):
        fit(tmp_path, monitor, module=module, max_epochs=1)
        images.append(monitor.history[-1]["image"])
        module = module.to(torch.bfloat16)
    assert images[1] == pytest.approx(images[0], abs=1e-3)
