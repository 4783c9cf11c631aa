# SPDX-License-Identifier: Apache-2.0
"""Tiny modules, data and Trainers for the tests of the callbacks."""

import functools
from queue import Queue

import pytest
import torch
from _helpers import presenters
from lightning import LightningModule, Trainer
from planted import PlantedGenerator, planted_images
from sklearn import datasets
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Metric

from genmonitor.callbacks import GenerativeMonitor, PixelClusterMonitor
from genmonitor.callbacks.base import sampled_model
from genmonitor.callbacks.options import split_options
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.results import Evaluation, FitReport
from genmonitor.images.sampler import Sampler

# What Lightning and torch say of tiny runs, as marks of a test module; none of it is about the monitors.
LIGHTNING_SAYS = [
    pytest.mark.filterwarnings(line)
    for line in (
        "ignore:You defined a `validation_step` but have no `val_dataloader`",
        "ignore:The '.*' does not have many workers",
        "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
        "ignore:The number of training batches .* is smaller than the logging interval",
        "ignore:Checkpoint directory .* exists and is not empty",
        "ignore:Starting from v1.9.0, `tensorboardX` has been removed",
        "ignore:Guards may run slower on Python 3.13.0",
    )
]


load_digits = functools.cache(datasets.load_digits)
"""Their file takes as long to parse as a small evaluation."""


def digits(start=0, stop=None):
    """Return scikit-learn's digits [n, 1, 8, 8] in [-1, 1]."""
    return torch.from_numpy(load_digits().images[start:stop]).float()[:, None] / 8 - 1


def loader(images, batch_size=100, **settings):
    """Return a loader of tuples of one batch of images."""
    return DataLoader(TensorDataset(images), batch_size, **settings)


class Kept:
    """A list on a module that an evaluation does not put back, since it is a queue's."""

    def __init__(self):
        self._items = Queue()

    def append(self, item):
        self._items.put(item)

    def all(self):
        return list(self._items.queue)

    def __deepcopy__(self, memo):
        return self

    def __iter__(self):
        return iter(self.all())

    def __len__(self):
        return len(self.all())

    def __eq__(self, other):
        return self.all() == list(other)

    __hash__ = None


class Linear(LightningModule):
    """A linear generator of digits: what it logs and learns comes from random numbers, so any draw too many shows."""

    def __init__(self, lr=1e-2):
        super().__init__()
        self.lr = lr
        self.net = nn.Linear(4, 64)

    def sample(self, n):
        return torch.tanh(self.net(torch.randn(n, 4, device=self.device))).view(n, 1, 8, 8)

    def training_step(self, batch, index):
        images = batch[0] if isinstance(batch, (list, tuple)) else batch
        loss = (self.sample(len(images)).mean(0) - images.mean(0)).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.lr)


class Deep(Linear):
    """The same with whatever an evaluation could disturb: dropout, BatchNorm, a sampler that trains its statistics."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 64))


class TwoPlayers(LightningModule):
    """A GAN by manual optimization with two optimizers."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 64), nn.Tanh())
        self.critic = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def sample(self, n):
        return self.generator(torch.randn(n, 4)).view(n, 1, 8, 8)

    def training_step(self, batch, index):
        first, second = self.optimizers()
        for optimizer, loss in ((second, self._critic_loss), (first, lambda real: -self.critic(self.sample(9)).mean())):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            value = loss(batch[0])
            self.manual_backward(value)
            optimizer.step()
            self.untoggle_optimizer(optimizer)
            self.log("loss_g" if optimizer is first else "loss_d", value.detach())

    def _critic_loss(self, real):
        return self.critic(self.sample(len(real)).detach()).mean() - self.critic(real).mean()

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.generator, self.critic)]


class MeanGap(Metric):
    """Difference of the mean pixel, counting how often it was given real images."""

    full_state_update = False

    def __init__(self, reset_real_features=True):
        super().__init__()
        self.reset_real_features = reset_real_features
        self.given = 0
        for side in ("real", "fake"):
            self.add_state(f"{side}_sum", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
            self.add_state(f"{side}_count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, images, real):
        assert len(images) <= 100  # no feature network takes all images at once
        self.given += real
        side = "real" if real else "fake"
        setattr(self, f"{side}_sum", getattr(self, f"{side}_sum") + images.double().sum())
        setattr(self, f"{side}_count", getattr(self, f"{side}_count") + images.numel())

    def compute(self):
        return self.fake_sum / self.fake_count - self.real_sum / self.real_count

    def reset(self):
        real = self.real_sum, self.real_count
        super().reset()
        if not self.reset_real_features:
            self.real_sum, self.real_count = real


def without_figures(monitor):
    """Return a monitor without its figures, which take most of a tiny run's time."""
    presenters.without_figures(monitor.evaluator)
    return monitor


class Plain(PixelClusterMonitor):
    """The monitor without its figures."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        without_figures(self)


def plain(**settings):
    """Return a small monitor without figures that raises whatever goes wrong, unless told otherwise."""
    defaults = {"n_clusters": 3, "n_samples": 60, "n_cluster_images": 200, "on_error": "raise"}
    if "partition" in settings:
        del defaults["n_clusters"]
    return Plain(**(defaults | settings))


class Means(Evaluator):
    """What takes no time: the mean of the samples and of their squares."""

    def fit(self, real, probe, comm, progress=None):
        return FitReport()

    def update(self, samples):
        self.images = samples.images

    def compute(self, comm):
        return Evaluation({"image": float(self.images.mean()), "product": float(self.images.square().mean())})


class Light(GenerativeMonitor):
    """A monitor that costs next to nothing, for tests of when and how any monitor evaluates."""

    def __init__(self, n_samples=60, seed=0, prompts=None, prefix="cms", **options):
        sampling, schedule, rest = split_options(type(self), {"on_error": "raise"} | options)
        super().__init__(Means(n_samples, prefix), Sampler(n_samples, prompts, seed=seed, **sampling), schedule, **rest)


def trainer(folder, *callbacks, **settings):
    """Return a silent Trainer on the CPU that keeps nothing but what it is asked to."""
    defaults = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": any("Checkpoint" in type(c).__name__ for c in callbacks),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "callbacks": list(callbacks),
    }
    return Trainer(**(defaults | settings))


def fit(folder, *callbacks, module=None, train=None, val=None, ckpt_path=None, **settings):
    """Train on 300 digits in 3 batches an epoch, validating where `val` is given; return the Trainer and the module."""
    runner = trainer(folder, *callbacks, **settings)
    module = module or Linear()
    train = train if train is not None else loader(digits(0, 300), shuffle=True)
    runner.fit(module, train, val, ckpt_path=ckpt_path)
    return runner, module


PLANTED_REGIONS = ["cluster_1", "cluster_2", "cluster_3", "cluster_4", "constant"]


def ema_averaging(decay=0.999):
    """Return Lightning's average of weights; skip the test where Lightning is older than it."""
    return pytest.importorskip("lightning", "2.6").pytorch.callbacks.EMAWeightAveraging(decay=decay)


def fit_planted(folder, monitor, spoiled, from_epoch, epochs=5, **settings):
    """Run a generator that draws real planted images and spoils a region from an epoch on."""
    train, val = loader(planted_images(2000, seed=1), 500), loader(planted_images(400, seed=2), 400)
    module = PlantedGenerator(spoiled, from_epoch)
    return fit(folder, monitor, module=module, train=train, val=val, max_epochs=epochs, **settings)


def measured(monitor):
    """Return the history without what the clock says."""
    return [{k: v for k, v in record.items() if not k.endswith("_seconds")} for record in monitor.history]


def epochs(monitor):
    """Return the epochs of its evaluations."""
    return [record["epoch"] for record in monitor.history]


def drawn(monitor, runner, module, n=None):
    """Return the first n samples of a monitor's set, None for all, by the function under every evaluation."""
    with torch.no_grad():
        return monitor.sampler.draw(sampled_model(runner, module), range(n or monitor.sampler.n_samples))
