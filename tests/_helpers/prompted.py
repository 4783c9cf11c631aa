# SPDX-License-Identifier: Apache-2.0
"""A tiny generator of digits by class, and the monitors that the tests attach to it."""

import torch
from _helpers.modules import Linear, digits, fit, load_digits, without_figures
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor


class Prompted(Linear):
    """A linear generator with a direction of its own for each class, the same weights always unless it learns."""

    def __init__(self, lr=0.0):
        super().__init__(lr)
        torch.manual_seed(0)
        self.net = nn.Linear(4 + 5, 64)

    def sample_prompts(self, labels):
        z = torch.randn(len(labels), 4, device=self.device)
        codes = 2 * nn.functional.one_hot(labels % 5, 5)
        return torch.tanh(self.net(torch.cat([z, codes], 1))).view(-1, 1, 8, 8)

    def sample(self, n):
        return self.sample_prompts(torch.arange(n, device=self.device))


class Shrinking(Prompted):
    """Learns without random numbers, which Lightning's checkpoints do not hold: its samples fade."""

    def __init__(self):
        super().__init__(lr=0.05)

    def training_step(self, batch, index):
        return self.net.weight.square().sum()


class Killed(Callback):
    """The power goes out in the third epoch."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.current_epoch == 2:
            raise OSError("power")


class Plain(DiversityMonitor):
    """The monitor without its figures."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        without_figures(self)


def plain(prompts=range(5), **settings):
    """Return a small monitor without figures that raises whatever goes wrong, unless told otherwise."""
    return Plain(prompts, **({"n_samples": 60, "on_error": "raise"} | settings))


class Changed(Prompted):
    """From an epoch on, the images of one class are changed, to the negatives of what they were."""

    def __init__(self, prompt=3, epoch=1, change=torch.neg):
        super().__init__()
        self.prompt, self.epoch, self.change = prompt, epoch, change

    def sample_prompts(self, labels):
        images = super().sample_prompts(labels)
        late = self.current_epoch >= self.epoch
        return torch.where(late & (labels == self.prompt)[:, None, None, None], self.change(images), images)


class PlainDisagreement(DisagreementMonitor):
    """The monitor without its figures."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        without_figures(self)


def disagreeing(prompts=range(5), **settings):
    """Return a small monitor without figures that raises whatever goes wrong, unless told otherwise."""
    return PlainDisagreement(prompts, **({"n_samples": 60, "on_error": "raise"} | settings))


def labelled(start=0, stop=None, **settings):
    """Return a loader of scikit-learn's digits and their classes."""
    classes = torch.from_numpy(load_digits().target[start:stop])
    return DataLoader(TensorDataset(digits(start, stop), classes), **({"batch_size": 50} | settings))


def watch(folder, monitor, module=None, **settings):
    """Fit one epoch with the monitor; return what it measured."""
    fit(folder, monitor, module=module or Prompted(), **({"max_epochs": 1} | settings))
    return monitor.history[-1]


def evaluations(monitor):
    """Return a list to which a monitor's evaluations are added as they succeed, with what its figures show."""
    kept, commit = [], monitor.evaluator.commit

    def keep(evaluation, history):
        kept.append(evaluation)
        return commit(evaluation, history)

    monitor.evaluator.commit = keep
    return kept
