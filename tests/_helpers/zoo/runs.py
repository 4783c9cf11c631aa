# SPDX-License-Identifier: Apache-2.0
"""One run of a module of the zoo, and all that it leaves behind."""

import math
import random
import re
import warnings

import numpy as np
import torch
from _helpers.modules import trainer, without_figures
from _helpers.zoo.settings import Counts
from _helpers.zoo.shape import Data, loaders
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, PixelClusterMonitor

N = 40
REMEDY = re.compile(r"\b(Give|Add|Change|Use|Scale|Return|Resize|give) ")
BEST = {"clusters": "image", "diversity": "rke", "disagreement": "total"}
PREFIXES = {"clusters": "cms", "diversity": "diversity", "disagreement": "disagreement"}
LABELS = range(5)


class Record(Callback):
    """What a run went through, step by step."""

    def __init__(self):
        self.seen, self.counts = [], Counts()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        logged = {name: float(x) for name, x in trainer.callback_metrics.items() if name.startswith(("loss", "train"))}
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        modes = [part.training for part in pl_module.modules()]
        learning = [p.requires_grad for p in pl_module.parameters()]
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        self.seen.append((logged, None if loss is None else float(loss), modes, learning, rates))
        self.counts.batches += 1
        self.counts.after += 1

    def on_validation_epoch_end(self, trainer, pl_module):
        self.counts.validations += not trainer.sanity_checking
        self.counts.after = 0

    def on_train_epoch_end(self, trainer, pl_module):
        self.counts.epochs += 1
        self.counts.after *= bool(self.counts.validations)


def of_labels(sample_fn):
    """Let a module without prompts be asked by labels."""

    def sample(module, labels):
        return sample_fn(module, len(labels)) if sample_fn else module.sample(len(labels))

    return sample


def monitor(kind, shape, suffix="", **settings):
    """Return a monitor without figures that raises whatever goes wrong."""
    told = {"n_samples": N, "on_error": "raise", "prefix": PREFIXES[kind] + suffix, **shape.watch, **settings}
    if kind == "clusters":
        return without_figures(PixelClusterMonitor(**{"n_clusters": 3, "n_cluster_images": N} | shape.clusters | told))
    make = DiversityMonitor if kind == "diversity" else DisagreementMonitor
    told |= {"reference": "start"} if kind == "disagreement" else {}
    if shape.prompts is None:
        told |= {"sample_fn": of_labels(shape.watch.get("sample_fn"))}
    return without_figures(make(shape.prompts or LABELS, **told | shape.prompted))


def patient(module, key):
    """Have a learning rate wait for a key, so long that it never changes; without a key nothing waits."""
    configure = module.configure_optimizers

    def configured():
        found = configure()
        found = found[0] if isinstance(found, tuple) else found
        optimizer = found["optimizer"] if isinstance(found, dict) else found[0] if isinstance(found, list) else found
        if key is None:
            return optimizer
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": key}}

    module.configure_optimizers = configured


def seeded():
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)


def run(folder, shape, setting, monitors=()):
    """Train a module; return what is left, and what the run without monitors went through."""
    seeded()
    module, record = shape.make(), Record()
    key = f"{monitors[0].prefix}/{BEST[kind_of(monitors[0])]}" if monitors else None
    if setting.plateau:
        patient(module, key)
    waiting = setting.waiting(folder, key) if monitors else []

    def fit(max_epochs, ckpt_path=None, more=()):
        callbacks = [*setting.callbacks(), *monitors, record, *waiting, *more]
        options = {"max_epochs": max_epochs, "logger": setting.logger(folder), **setting.trainer}
        runner = trainer(folder, *callbacks, **options)
        if setting.data_module:
            runner.fit(module, datamodule=Data(shape), ckpt_path=ckpt_path)
        elif shape.own_data:
            runner.fit(module, ckpt_path=ckpt_path)
        else:
            train, val = loaders(shape)
            runner.fit(module, train, val if setting.validates else None, ckpt_path=ckpt_path)
        return runner

    if setting.resumes:
        fit(1, more=[ModelCheckpoint(folder / "kept", save_last=True)])
        module = shape.make()
        seeded()
        runner = fit(2, folder / "kept" / "last.ckpt")
    else:
        runner = fit(2)
    left = {
        "weights and buffers": module.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in runner.optimizers],
        "losses, modes, learning rates": record.seen,
        "random numbers": (torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()),  # noqa: NPY002
        "steps": runner.global_step,
    }
    return left, record.counts, [*waiting, runner]


def kind_of(one):
    return next(kind for kind, prefix in PREFIXES.items() if one.prefix.startswith(prefix))


def problems(monitors, expected, waiting, said):
    """Return what is wrong with what monitors found."""
    found = []
    for one in monitors:
        if len(one.history) != expected:
            found.append(f"{one.prefix}: {len(one.history)} evaluations in place of {expected}")
        found += [
            f"{one.prefix}/{name} is {value}"
            for record in one.history
            for name, value in record.items()
            if not math.isfinite(value)
        ]
    *waiting, _ = waiting
    for callback in waiting:
        best = getattr(callback, "best_score", None)
        best = callback.best_model_score if best is None else best
        if best is None or not math.isfinite(float(best)):
            found.append(f"{type(callback).__name__} found no key")
    return found + [text for text in said if "changed the training" in text or "this evaluation failed" in text]


def watched(folder, shape, setting, kind, **settings):
    """Return the outcome of a run with monitors, which may be a refusal, and what it said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        monitors = [monitor(kind, shape, suffix, **setting.monitor, **settings) for suffix in setting.prefixes]
        outcome = run(folder, shape, setting, monitors)
    return monitors, *outcome, [str(one.message) for one in said]
