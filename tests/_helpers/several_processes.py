# SPDX-License-Identifier: Apache-2.0
"""What test_several_processes.py runs in every process: several fits, each one's outcome by its name."""

import json

import torch
from _helpers.modules import Linear, MeanGap, digits, fit, loader, measured, plain
from lightning.pytorch.callbacks import ModelCheckpoint


def fails(module):
    """Whether this is the last process, in the second epoch."""
    return module.current_epoch == 1 and module.global_rank == module.trainer.world_size - 1


def one_cannot_sample(module, n):
    if fails(module):
        raise RuntimeError("no samples today")
    return module.sample(n)


def one_gives_nan(module, n):
    return module.sample(n) * (float("nan") if fails(module) else 1)


def outcomes(folder, processes, accelerator="cpu"):
    """Return what each kind of run measured; the weights do not change, so that one process must agree with several."""
    out = {}
    for name, n in (
        ("one fails to sample", 301),
        ("one fails by NaN", 301),
        ("nothing to do for one", 2),
        ("two share samples", 301),
    ):
        torch.manual_seed(0)
        module = Linear(lr=0.0)
        parts = {"extra_metrics": {"gap": MeanGap(reset_real_features=False)}}
        if name == "one fails to sample":
            parts["sample_fn"] = one_cannot_sample
        if name == "one fails by NaN":
            parts["sample_fn"] = one_gives_nan
        if accelerator == "gpu":  # where tensors of the CPU cannot be gathered
            parts.setdefault("sample_fn", lambda module, n: module.sample(n).cpu())
        monitor = plain(n_samples=n, on_error="warn", sample_batch_size=64, **parts)
        # under several processes the indices of 301 and of 150 samples are different ones
        others = [plain(n_samples=150, sample_batch_size=64, prefix="other")]
        if name != "two share samples":
            others = []
        best = ModelCheckpoint(folder / f"{name} {processes}", monitor="cms/image", mode="max")
        strategy = {"strategy": "ddp", "devices": processes, "accelerator": accelerator}
        strategy = strategy if processes > 1 or accelerator == "gpu" else {}
        train, val = loader(digits(0, 600), 50), loader(digits(600, 1200), 50)
        trainer, _ = fit(folder, monitor, *others, best, module=module, train=train, val=val, max_epochs=3, **strategy)
        fixed = [monitor.partition.labels.tolist(), monitor.kernel.gamma, monitor.baseline]
        image = float(trainer.callback_metrics["cms/image"])
        out[name] = {"history": measured(monitor), "image": image, "fixed": json.loads(json.dumps(fixed))}
        if others:
            out["the other"] = {"history": measured(others[0]), "image": float(trainer.callback_metrics["other/image"])}
    return out
