# SPDX-License-Identifier: Apache-2.0
"""What test_split_by_sampler.py runs in every process: fits on one dataset whose parts samplers choose."""

import torch
from _helpers.modules import Linear, digits, fit, measured, plain, trainer
from lightning.pytorch.callbacks import Callback
from torch.utils.data import BatchSampler, DataLoader, SubsetRandomSampler, TensorDataset

from genmonitor.callbacks.circumstances import processes_of
from genmonitor.callbacks.data import reference_images

DATA = TensorDataset(digits(0, 801))
PARTS = torch.randperm(801, generator=torch.Generator().manual_seed(0)).split([500, 301])


class Own(BatchSampler):
    """A class of which Lightning makes another, where it drops torch's."""


def by_sampler(part):
    return DataLoader(DATA, 50, sampler=SubsetRandomSampler(part.tolist()))


def by_batches(part, kind=BatchSampler):
    return DataLoader(DATA, batch_sampler=kind(SubsetRandomSampler(part.tolist()), 50, drop_last=False))


def by_own_batches(part):
    return by_batches(part, Own)


WAYS = {
    "sampler": (by_sampler, False),
    "batch_sampler of a hook": (by_batches, True),
    "own batch_sampler": (by_own_batches, False),
}
"""What makes the loaders, and whether a hook of the module does."""


class Hooks(Linear):
    """Makes its loaders itself, where nobody keeps them."""

    def __init__(self, make):
        super().__init__(lr=0.0)
        self.make = make

    def train_dataloader(self):
        return self.make(PARTS[0])

    def val_dataloader(self):
        return self.make(PARTS[1])


class Sees(Callback):
    """Notes which images of the dataset a monitor takes for those of the training and of the validation."""

    def __init__(self):
        self.found = {}

    def on_train_start(self, trainer, pl_module):
        real = reference_images(trainer, None, None, processes_of(trainer))
        for name, source in (("training", real), ("validation", real.held_out)):
            self.found[name] = sorted(source.places()[1])


def outcome(folder, make, processes, hooks=False, real=None, **settings):
    """Return which real images a process held, and what it measured, of a model that does not learn; or a refusal."""
    torch.manual_seed(0)
    monitor, sees = plain(n_samples=101, sample_batch_size=30, real_images=real), Sees()
    settings |= {"strategy": "ddp", "devices": processes} if processes > 1 else {}
    callbacks = [monitor] if real is not None else [monitor, sees]
    try:
        if hooks:
            trainer(folder, *callbacks, **settings).fit(Hooks(make))
        else:
            train, val = map(make, PARTS)
            fit(folder, *callbacks, module=Linear(lr=0.0), train=train, val=val, **settings)
    except ValueError as error:
        return str(error)
    fitted = monitor.evaluator.fitted
    return {
        **sees.found,
        "compared": fitted.real_origin["indices"],
        "held": len(fitted.real),
        "clusters": monitor.partition.labels.tolist(),
        "history": measured(monitor),
    }


def outcomes(folder, processes):
    out = {name: outcome(folder, make, processes, hooks) for name, (make, hooks) in WAYS.items()}
    out["real_images"] = outcome(folder, by_batches, processes, real=DATA)
    return out | {"no distributed sampler": outcome(folder, by_batches, processes, use_distributed_sampler=False)}
