# SPDX-License-Identifier: Apache-2.0
"""A tiny generator of digits by class, and the monitor that the tests of DiversityMonitor attach to it."""

import torch
from modules import Linear, fit
from torch import nn

from genmonitor.callbacks import DiversityMonitor


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


class Plain(DiversityMonitor):
    """The monitor without its figures, which take most of a tiny run's time."""

    def figures(self, samples):
        return {}


def plain(prompts=range(5), **settings):
    """Return a small monitor without figures that raises whatever goes wrong, unless told otherwise."""
    return Plain(prompts, **({"n_samples": 60, "on_error": "raise"} | settings))


def watch(folder, monitor, module=None, **settings):
    """Fit one epoch with the monitor; return what it measured."""
    fit(folder, monitor, module=module or Prompted(), **({"max_epochs": 1} | settings))
    return monitor.history[-1]
