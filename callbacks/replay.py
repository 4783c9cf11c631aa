# SPDX-License-Identifier: Apache-2.0
"""Measuring a logged check again, from its manifest and the checkpoint of the same moment."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from genmonitor import PixelPartition
from genmonitor.callbacks.framework import Callback
from genmonitor.callbacks.guard import left_alone
from genmonitor.callbacks.manifest import fingerprint
from genmonitor.callbacks.monitor import GenerativeMonitor
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor
from genmonitor.callbacks.sampling import seed_everything
from genmonitor.callbacks.scripts import SETUP, find_script, imported
from genmonitor.kernels import GaussianKernel, LaplacianKernel

SETTINGS = ("n_samples", "seed", "sample_batch_size", "block_size")
NOT_MEASURED = ("epoch", "step", "images_seen", "sampling_seconds", "metric_seconds")
KERNELS = {kernel.__name__: kernel for kernel in (GaussianKernel, LaplacianKernel)}


def replay(path: Path, checkpoint: Path, setup: str | None = None, script: Path | None = None) -> dict[str, float]:
    """Measure the values of a manifest again.

    Args:
        path: the manifest; what it names lies beside it.
        checkpoint: of the moment that was checked; nothing but tensors and plain Python is loaded from it.
        setup: "FILE.py:FUNCTION" or "package.module:FUNCTION", which returns (module, data, monitor) as for training,
            data being a LightningDataModule or a list of loaders for `Trainer.fit`. None to make them from the classes
            that the manifest names and the hyperparameters in the checkpoint.
        script: the file with these classes where the manifest names one; None to look for it, see `find_script`.

    Returns:
        The values by their names, without those of the clock.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if they do not belong together, or something is missing that only the user's code can give.
    """
    manifest = json.loads(path.read_text(encoding="utf-8"))
    if "only_in_code" not in manifest:
        raise ValueError(f"Expected the manifest of a check in a training run, but got {path}.")
    saved = _loaded(checkpoint)
    _check_same_moment(path, manifest, checkpoint, saved)
    sys.path.insert(0, str(Path.cwd()))
    if setup is not None:
        module, data, monitor = imported(setup)()
    else:
        module, data = _module_and_data(manifest, path.parent, checkpoint, script)
        monitor = _monitor(manifest)
    if type(monitor).__name__ != manifest["monitor"]:
        raise ValueError(f"Expected a {manifest['monitor']} for this manifest, but got {type(monitor).__name__}.")
    # Lightning's WeightAveraging puts the averaged weights where the others were
    averaged = manifest["weights"] == "averaged" or "current_model_state" not in saved
    module.load_state_dict(saved["state_dict" if averaged else "current_model_state"])
    _fix(monitor, manifest, path.parent)
    return _measured(monitor, module, data, manifest, path.parent)


def _loaded(checkpoint: Path) -> dict[str, Any]:
    try:
        saved: dict[str, Any] = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{checkpoint} is no checkpoint of tensors and plain Python: {error}") from error
    if not isinstance(saved, dict) or not {"epoch", "global_step", "state_dict"} <= saved.keys():
        raise ValueError(f"Expected a checkpoint of Lightning's, but {checkpoint} has no global_step and state_dict.")
    return saved


def _check_same_moment(path: Path, manifest: dict[str, Any], checkpoint: Path, saved: dict[str, Any]) -> None:
    """Refuse a checkpoint of another moment, naming the manifest that belongs to it where there is one."""
    if saved["global_step"] == manifest["global_step"]:
        return
    prefix = path.name.rpartition("_check_")[0]
    others = [p.name for p in sorted(path.parent.glob(f"{prefix}_check_*.json")) if _step(p) == saved["global_step"]]
    advice = f"The manifest of this checkpoint is {others[-1]}" if others else "No manifest beside it is of this moment"
    raise ValueError(
        f"Expected the checkpoint of step {manifest['global_step']} in epoch {manifest['current_epoch']}, the moment "
        f"of {path.name}, but {checkpoint} is of step {saved['global_step']} in epoch {saved['epoch']}. {advice}."
    )


def _step(manifest: Path) -> int | None:
    step: int | None = json.loads(manifest.read_text(encoding="utf-8")).get("global_step")
    return step


def measured(check: Mapping[str, float]) -> dict[str, float]:
    """Return what is measured of the samples, not what the clock says or was fixed at the start."""
    return {name: value for name, value in check.items() if name not in NOT_MEASURED and "yardstick_" not in name}


def _module_and_data(manifest: dict[str, Any], folder: Path, checkpoint: Path, script: Path | None) -> tuple[Any, Any]:
    out: list[Any] = []
    for name in ("module", "data"):
        if manifest[name] is None:  # then the module has loaders of its own
            out.append(None)
            continue
        kind = imported(find_script(manifest[name], folder, manifest.get("folder"), script))
        safely = (
            {"weights_only": True} if "weights_only" in inspect.signature(kind.load_from_checkpoint).parameters else {}
        )
        try:
            out.append(kind.load_from_checkpoint(str(checkpoint), map_location="cpu", **safely))
        except TypeError as error:
            raise ValueError(
                f"Could not make the {name}, {manifest[name]}, from the checkpoint: {error}. Call "
                f"self.save_hyperparameters() in its __init__, so that checkpoints hold its arguments. {SETUP}"
            ) from error
    module, data = out
    own = any(
        base.__dict__.get("train_dataloader") for base in type(module).__mro__ if "lightning" not in base.__module__
    )
    if data is None and not own:
        raise ValueError(f"The run had no LightningDataModule, so its data are not known. {SETUP}")
    return module, data


def _monitor(manifest: dict[str, Any]) -> PixelClusterMonitor:
    if manifest["monitor"] != PixelClusterMonitor.__name__:
        raise ValueError(f"What a {manifest['monitor']} needs is not in its manifest. {SETUP}")
    missing = [name for name in manifest["only_in_code"] if name != "extra_metrics"]
    if missing:
        raise ValueError(f"The run's monitor was given {', '.join(missing)}, which no manifest can hold. {SETUP}")
    return PixelClusterMonitor(
        n_samples=manifest["n_samples"],
        kernel=KERNELS[manifest["kernel"]](),
        block_size=manifest["block_size"],
        image_key=manifest["image_key"],
        prompts=manifest.get("prompts"),  # older manifests do not say
    )


def _fix(monitor: GenerativeMonitor, manifest: dict[str, Any], folder: Path) -> None:
    """Give a monitor what was fixed for the run."""
    for name in SETTINGS:
        if name in manifest:
            setattr(monitor, name, manifest[name])
    monitor.on_error, monitor.weights = "raise", "raw"
    if isinstance(monitor, PixelClusterMonitor):
        monitor.partition = PixelPartition.load(folder / manifest["partition"])
        monitor.kernel = replace(monitor.kernel, gamma=manifest["gamma"])
        monitor.yardstick = {name: (band[0], band[1], band[2]) for name, band in manifest["yardstick"].items()}


class _OneCheck(Callback):
    """Measures at the start of training and stops before the first step."""

    def __init__(self, monitor: GenerativeMonitor, manifest: dict[str, Any], verify: Callable[[], None]) -> None:
        self.monitor, self.epoch, self.verify = monitor, manifest["current_epoch"], verify
        self.ranges = manifest["drawn"] if manifest["processes"] == 1 else [(0, manifest["n_samples"])]
        self.values: dict[str, float] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        monitor = self.monitor
        trainer.fit_loop.epoch_progress.current.processed = self.epoch  # a sampler may depend on it
        trainer.should_stop = True
        with left_alone(pl_module):
            monitor.samples_of(pl_module)
            monitor.prepare(trainer, pl_module)
            self.verify()
            parts = [monitor.draw(trainer, pl_module, range(*part)) for part in self.ranges]
            samples = torch.cat(parts)[: monitor.n_samples]
            seed_everything(monitor.seed)
            monitor.collect(samples)
            self.values = monitor.measure(trainer, samples)


def _measured(
    monitor: GenerativeMonitor, module: Any, data: Any, manifest: dict[str, Any], folder: Path
) -> dict[str, float]:
    trainer_class = importlib.import_module(Callback.__module__.rpartition(".callbacks")[0]).Trainer
    check = _OneCheck(monitor, manifest, lambda: _verify(monitor, manifest, folder))
    trainer = trainer_class(
        accelerator="cpu" if manifest["device"] == "cpu" else "auto",
        devices=1,
        precision=manifest["precision"],
        max_epochs=1,
        limit_val_batches=1.0 if manifest["validation"] else 0,
        num_sanity_val_steps=0,
        callbacks=[check],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(manifest["threads"])  # the order of a sum depends on them
    try:
        loaders = data if isinstance(data, (list, tuple)) else ()
        trainer.fit(module, *loaders, datamodule=None if loaders else data)
    finally:
        torch.set_num_threads(threads)
    return {name: float(value) for name, value in measured(check.values).items()}


def _verify(monitor: GenerativeMonitor, manifest: dict[str, Any], folder: Path) -> None:
    """Refuse other real images than those of the run."""
    if not isinstance(monitor, PixelClusterMonitor):
        return
    real = json.loads((folder / manifest["real"]).read_text(encoding="utf-8"))
    if fingerprint(monitor._real[: real["count"]]) != real["sha256"]:
        raise ValueError(
            f"The real images are not those of the run, which took {len(real['indices'])} of {real['from']}: their "
            "values differ. Give the data as they were."
        )
