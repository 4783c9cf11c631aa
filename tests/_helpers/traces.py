# SPDX-License-Identifier: Apache-2.0
"""Everything that a run leaves behind, to compare one that was watched with one that was not, bit by bit."""

import functools
import random

import numpy as np
import torch
from _helpers.modules import Deep, TwoPlayers, digits, fit, loader
from lightning.pytorch.callbacks import Callback

TRAINING = digits(0, 300)
MODULES = {"one optimizer": Deep, "a GAN of two": TwoPlayers}


class Record(Callback):
    """What a run logged and went through, step by step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        losses = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("loss")}
        modes = [part.training for part in pl_module.modules()]
        switches = [p.requires_grad for p in pl_module.parameters()]
        self.seen.append((losses, batch[0].sum().item(), modes, switches))


def run(folder, kind, validate, *callbacks, accumulate=1):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    record, module = Record(), MODULES[kind]()
    settings = {"accumulate_grad_batches": accumulate} if kind == "one optimizer" else {}
    train = loader(TRAINING, 50, shuffle=True)
    val = loader(digits(300, 400), shuffle=False) if validate else None
    trainer, _ = fit(folder, *callbacks, record, module=module, train=train, val=val, **settings)
    numbers = torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()  # noqa: NPY002
    optimizers = [optimizer.state_dict() for optimizer in trainer.optimizers]
    return {
        "weights and buffers": module.state_dict(),
        "gradients": [p.grad for p in module.parameters()],
        "optimizers": optimizers,
        "losses, batches, modes": record.seen,
        "random numbers": numbers,
        "steps": trainer.global_step,
    }


@functools.cache
def without_monitor(folder, kind, validate, accumulate):
    return run(folder, kind, validate, accumulate=accumulate)


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b
