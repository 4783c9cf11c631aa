# SPDX-License-Identifier: Apache-2.0
"""What test_sharded_models.py runs in every process: fits of a model that is split, their outcomes by name."""

import random
import warnings
from functools import partial
from queue import SimpleQueue

import numpy as np
import torch
from _helpers.modules import digits, fit, loader, measured, plain
from _helpers.prompted import Prompted, disagreeing, labelled
from _helpers.prompted import plain as diversity
from _helpers.traces import Record, same
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from genmonitor.training_state.sharding import reshard, sharded_parts

HIDDEN = 34  # neither it nor the 64 pixels go evenly into three parts


class Split(Prompted):
    """A generator of digits by class whose layers are split, where there is a mesh to split them over."""

    def __init__(self, lr=0.0):
        super().__init__(lr)
        self.net = nn.Sequential(nn.Linear(9, HIDDEN), nn.Tanh(), nn.Dropout(0.3), nn.Linear(HIDDEN, 64))

    def configure_model(self):
        if self.device_mesh is None:
            return
        rows, columns = self.device_mesh["data_parallel"], self.device_mesh["tensor_parallel"]
        if columns.size() > 1:
            parallelize_module(self.net, columns, {"0": ColwiseParallel(), "3": RowwiseParallel()})
        if rows.size() > 1:
            for part in (self.net[0], self.net[3], self.net):
                fully_shard(part, mesh=rows)

    def training_step(self, batch, index):
        loss = (self.sample(30).mean(0) - batch[0].mean(0)).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch, index):
        self.sample(len(batch[0]))  # which leaves gathered parameters in the root


class WithNorm(Split):
    """The same with statistics that sampling in train mode would move."""

    def __init__(self):
        super().__init__(lr=1e-2)
        self.net.insert(1, nn.BatchNorm1d(HIDDEN))

    def configure_model(self):
        if self.device_mesh is not None:
            for part in (self.net[0], self.net[4], self.net):
                fully_shard(part, mesh=self.device_mesh["data_parallel"])


def split(processes, by="fully_shard", accelerator="cpu", **settings):
    """Return what a Trainer needs to split a model over processes."""
    columns = {"fully_shard": 1, "tensor parallel": processes, "both": 2}[by]
    strategy = ModelParallelStrategy(processes // columns, columns, **settings)
    return {"strategy": strategy, "devices": processes, "accelerator": accelerator}


def values(folder, how):
    """Return what each monitor measures of a model that does not learn."""
    calls = []

    def counted(module, labels):
        calls.append(len(labels))
        return module.sample_prompts(labels)

    shared = {"sample_batch_size": 16, "sample_fn": counted}
    monitors = [
        plain(n_samples=61, prompts=range(5), **shared),
        diversity(n_samples=45, **shared),  # the first of those that the other drew
        disagreeing(n_samples=30, sample_batch_size=16),
        plain(n_samples=40, prompts=range(5), sample_batch_size=7, prefix="own"),  # and one that shares none
    ]
    fit(folder, *monitors, module=Split(), train=labelled(0, 300), val=labelled(600, 900), **how())
    return {"calls": calls, "evaluations": {monitor.prefix: measured(monitor) for monitor in monitors}}


def local_part(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Left(Callback):
    """What a run left on this process."""

    def on_train_end(self, trainer, pl_module):
        def here(state):
            if isinstance(state, dict):
                return {key: here(value) for key, value in state.items()}
            return local_part(state).clone() if isinstance(state, torch.Tensor) else state

        reshard(sharded_parts(pl_module))  # the last validation's forward may have left gathered ones
        tensors = [*pl_module.named_parameters(), *pl_module.named_buffers()]
        self.found = {
            "weights": {name: local_part(x).clone() for name, x in tensors},
            "optimizer": [here(state) for state in trainer.optimizers[0].state.values()],
            "random numbers": (torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()),  # noqa: NPY002
        }


def trained(folder, *monitors, validate=True, module=None, **how):
    """Return what a training run leaves behind."""
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    record, left = Record(), Left()
    val = loader(digits(300, 400)) if validate else None
    train = loader(digits(0, 300), 25, shuffle=True)
    fit(folder, *monitors, record, left, module=module or WithNorm(), train=train, val=val, **how)
    return left.found | {"losses, batches, modes": record.seen}


def breaks(how):
    """Return a sampler that goes wrong on the last process alone, in the second epoch."""

    def now(module):
        return module.current_epoch == 1 and module.global_rank == module.trainer.world_size - 1

    def raises(*_):
        raise RuntimeError("no samples today")

    def sample(module, n):
        if not now(module):
            return module.sample(n)
        if how == "between two samples":
            module.sample(n)
            raises()
        if how == "after the model":
            return module.sample(n) * float("nan")
        if how == "by one step more":
            return (module.sample(n) + module.sample(n)) / 2
        hook = module.net[0].register_forward_hook(raises)  # while others go on to the next part
        try:
            return module.sample(n)
        finally:
            hook.remove()

    return sample


FAILURES = ("between two samples", "inside the model", "after the model", "by one step more")


def untouched(folder, how):
    """Return by occasion what a monitor changed, and at which epochs it evaluated."""
    out = {}
    occasions = {
        "validated": ({}, {}),
        "between steps": ({"every_n_train_steps": 3}, {"validate": False, "accumulate_grad_batches": 2}),
        **{f"fails {name}": ({"sample_fn": breaks(name), "on_error": "warn"}, {}) for name in FAILURES},
    }
    expected = {}
    for name, (settings, run) in occasions.items():
        key = str(run)
        if key not in expected:
            expected[key] = trained(folder, max_epochs=3, **run, **how())
        monitor = plain(n_samples=61, sample_batch_size=16, **settings)
        found = trained(folder, monitor, max_epochs=3, **run, **how())
        changed = [part for part, left in expected[key].items() if not same(found[part], left)]
        notes = [note["text"] for note in monitor.publisher.notes.items]
        out[name] = {"changed": changed, "epochs": [record["epoch"] for record in monitor.history], "notes": notes}
    return out


def out_of_memory(folder, how):
    """Return how many samples each call drew where the last process has no memory for more than ten."""
    calls = SimpleQueue()  # a list would be put back

    def sample(module, n):
        if n > 10 and module.global_rank == module.trainer.world_size - 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        calls.put(n)
        return module.sample(n)

    monitor = plain(n_samples=61, sample_batch_size=16, sample_fn=sample)
    fit(folder, monitor, module=Split(), val=loader(digits(300, 400)), max_epochs=1, **how())
    return {"calls": [calls.get() for _ in range(calls.qsize())], "history": measured(monitor)}


def encoder_of_the_model(folder, how):
    """Return what is said where an encoder is a part of the split model."""
    module = Split()
    monitor = plain(n_samples=61, site_encoder=lambda images: module.net[3](images.flatten(1)[:, :HIDDEN]))
    try:
        fit(folder, monitor, module=module, val=loader(digits(300, 400)), max_epochs=1, **how())
    except RuntimeError as error:
        return str(error)
    return ""


def meddled(folder, how):
    """Return the notes on a sampler that writes into the weights of the last process alone."""

    def sample(module, n):
        if module.global_rank == module.trainer.world_size - 1:
            with torch.no_grad():
                local_part(module.net[3].bias)[-1] += 1
        return module.sample(n)

    monitor = plain(n_samples=61, sample_fn=sample)
    fit(folder, monitor, module=Split(), val=loader(digits(300, 400)), max_epochs=1, **how())
    return " ".join(note["text"] for note in monitor.publisher.notes.items)


def resumed(folder, how):
    """Return the curves of a run in one go and of one that is resumed, by the kind of checkpoint."""

    def run(where, epochs, *more, ckpt_path=None, **kind):
        monitor = plain(n_samples=61, sample_batch_size=16)
        train, val = loader(digits(0, 300), 25), loader(digits(300, 400))
        settings = {"max_epochs": epochs, "ckpt_path": ckpt_path, **how(**kind)}
        fit(where, monitor, *more, module=Learns(), train=train, val=val, **settings)
        return measured(monitor)

    out = {"in one go": run(folder / "whole", 3)}
    for name, whole in (("a file", False), ("a folder", True)):
        kind = {"save_distributed_checkpoint": whole}
        where = folder / name
        run(where / "cut", 2, ModelCheckpoint(where / "kept", save_last=True), **kind)
        out[name] = run(where / "cut", 3, ckpt_path=where / "kept" / "last.ckpt", **kind)
    return out


class Learns(Split):
    """Learns without random numbers, which Lightning's checkpoints do not hold."""

    def __init__(self):
        super().__init__(lr=0.05)
        self.net[2] = nn.Identity()

    def training_step(self, batch, index):
        return self.net(torch.ones(4, 9, device=self.device)).square().mean()


def told(folder, how):
    """Return the warnings and errors that the user sees."""
    parts = {"memory": out_of_memory, "meddled": meddled, "encoder": encoder_of_the_model}
    return {name: part(folder, how) for name, part in parts.items()}


WHAT = {"values": values, "untouched": untouched, "told": told, "resumed": resumed}


def outcomes(folder, processes, what, by="fully_shard", accelerator="cpu"):
    """Return what each kind of run found."""
    warnings.filterwarnings("ignore")
    warnings.filterwarnings("default", message=".*this evaluation failed|There is no memory")
    one = processes == 1 and accelerator == "cpu"
    return WHAT[what](folder, dict if one else partial(split, processes, by, accelerator))
