# SPDX-License-Identifier: Apache-2.0
"""A generator of digits by class without Lightning, a plain loop that trains it, and the monitors for it."""

import torch
from _helpers.modules import digits, load_digits
from _helpers.presenters import without_figures
from torch import nn
from torch.utils.data import TensorDataset

from genmonitor import LoopMonitor
from genmonitor.evaluation import (
    DisagreementEvaluator,
    DisagreementSettings,
    DiversityEvaluator,
    DiversitySettings,
    RegionEvaluator,
    RegionSettings,
    Sampler,
)

N = 60


class Generator(nn.Module):
    """A generator with whatever an evaluation could disturb: BatchNorm, dropout, gradients."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(4 + 5, 32), nn.BatchNorm1d(32), nn.Dropout(0.3), nn.Linear(32, 64), nn.Tanh()
        )

    def forward(self, z, labels):
        return self.net(torch.cat([z, 2 * nn.functional.one_hot(labels % 5, 5)], 1)).view(-1, 1, 8, 8)

    def sample(self, n):
        return self(torch.randn(n, 4), torch.randint(5, (n,)))

    def sample_prompts(self, labels):
        return self(torch.randn(len(labels), 4), labels)


def labelled(start, stop):
    """Return scikit-learn's digits and their classes."""
    return TensorDataset(digits(start, stop), torch.from_numpy(load_digits().target[start:stop]) % 5)


EVALUATORS = {
    "regions": lambda n=N: RegionEvaluator(RegionSettings(3, n_samples=n, n_cluster_images=200)),
    "diversity": lambda n=N: DiversityEvaluator(DiversitySettings.of(range(5), n)),
    "disagreement": lambda n=N: DisagreementEvaluator(DisagreementSettings.of(range(5), n)),
    "disagreement with the start": lambda n=N: DisagreementEvaluator(
        DisagreementSettings.of(range(5), n, reference="start")
    ),
}


def small(folder, kind="regions", n=N, batch_size=100, seed=0, **settings):
    """Return a small monitor without figures that raises whatever goes wrong, unless told otherwise."""
    evaluator = without_figures(EVALUATORS[kind](n))
    sampler = Sampler(n, evaluator.prompts, batch_size=batch_size, seed=seed)
    data = {"real_images": labelled(0, 300), "validation_images": labelled(300, 400)}
    return LoopMonitor(evaluator, sampler, folder=folder, **({"on_error": "raise"} | data | settings))


def train(module, epochs=2, after_epoch=lambda module, step, epoch: None, images=None):
    """Train by a plain loop that draws random numbers; return all that an evaluation could disturb."""
    torch.manual_seed(1)
    images, losses, step = digits(0, 300) if images is None else images, [], 0
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    for epoch in range(epochs):
        module.train()
        for batch in images[torch.randperm(len(images))].split(100):
            loss = (module.sample(len(batch)).mean(0) - batch.mean(0)).square().mean()
            loss.backward()  # gradients add up until the optimizer steps
            losses.append(float(loss.detach()))
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
            step += 1
        after_epoch(module, step, epoch)
    return {
        **{name: value.clone() for name, value in module.state_dict().items()},
        **{f"grad {name}": x.grad.clone() for name, x in module.named_parameters() if x.grad is not None},
        "losses": torch.tensor(losses),
        "random": torch.get_rng_state(),
        "modes": torch.tensor([part.training for part in module.modules()]),
    }
