# SPDX-License-Identifier: Apache-2.0
"""Measuring a logged evaluation again, from its manifest and the checkpoint of the same moment."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback

from genmonitor.callbacks.base import GenerativeMonitor, sampled_model
from genmonitor.callbacks.integration.compat import set_epoch
from genmonitor.callbacks.integration.data import reference_images
from genmonitor.callbacks.integration.scripts import SETUP, find_script, imported
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor
from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.data.images import fingerprint
from genmonitor.evaluation.evaluator import run_evaluation
from genmonitor.evaluation.isolation import preserve_training_state
from genmonitor.evaluation.regions.finder import RegionFit
from genmonitor.evaluation.results import Samples
from genmonitor.kernels import GaussianKernel, LaplacianKernel
from genmonitor.monitoring.base import PROBE
from genmonitor.monitoring.device import evaluation_device, moved
from genmonitor.partition import PixelPartition

if TYPE_CHECKING:
    import lightning.pytorch as pl

FROM_THE_RUN = ("n_clusters", "partition", "site_size", "patch_size", "gamma", "kernel", "n_cluster_images", "linkage")
"""Settings that a replay takes from the run, in whatever way they were given."""
NEEDED = (
    *("monitor", "prefix", "evaluation", "settings", "weights", "seed", "n_samples", "sample_batch_size", "drawn"),
    *("prompts", "image_key", "evaluate_on", "unserializable_args", "folder", "module", "data", "current_epoch"),
    *("global_step", "validation", "device", "precision", "processes", "threads", "versions"),
)
NEEDED_OF_REGIONS = ("kernel", "gamma", "widths", "block_size", "range", "baseline", "partition", "real")
NOT_MEASURED = ("epoch", "step", "images_seen", "sampling_seconds", "metric_seconds")
KERNELS = {kernel.__name__: kernel for kernel in (GaussianKernel, LaplacianKernel)}


def replay(path: Path, checkpoint: Path, setup: str | None = None, script: Path | None = None) -> dict[str, float]:
    """Measure the values of a manifest again.

    Args:
        path: the manifest; what it names lies beside it.
        checkpoint: of the moment that was evaluated; nothing but tensors and plain Python is loaded from it.
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
    _check_keys(path, manifest)
    saved = _loaded(checkpoint)
    _check_same_moment(path, manifest, checkpoint, saved)
    sys.path.insert(0, str(Path.cwd()))
    if setup is not None:
        module, data, monitor = imported(setup)()
    else:
        module, data = _module_and_data(manifest, path.parent, checkpoint, script)
        monitor = _monitor(manifest)
    _check_monitor(monitor, manifest)
    # Lightning's WeightAveraging puts the averaged weights where the others were
    averaged = manifest["weights"] == "averaged" or "current_model_state" not in saved
    module.load_state_dict(saved["state_dict" if averaged else "current_model_state"])
    _use_fit(monitor, manifest, path.parent)
    return _evaluate(monitor, module, data, manifest, path.parent)


def _check_keys(path: Path, manifest: dict[str, Any]) -> None:
    """Refuse what is no manifest of a training run, or not a whole one."""
    needed = NEEDED + (NEEDED_OF_REGIONS if manifest.get("monitor") == PixelClusterMonitor.__name__ else ())
    if lacking := [name for name in needed if name not in manifest]:
        raise ValueError(
            f"Expected the manifest of an evaluation in a training run, but {path} lacks {', '.join(lacking)}."
        )


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
    prefix = path.name.rpartition("_evaluation_")[0]
    others = [
        p.name for p in sorted(path.parent.glob(f"{prefix}_evaluation_*.json")) if _step(p) == saved["global_step"]
    ]
    advice = f"The manifest of this checkpoint is {others[-1]}" if others else "No manifest beside it is of this moment"
    raise ValueError(
        f"Expected the checkpoint of step {manifest['global_step']} in epoch {manifest['current_epoch']}, the moment "
        f"of {path.name}, but {checkpoint} is of step {saved['global_step']} in epoch {saved['epoch']}. {advice}."
    )


def _step(manifest: Path) -> int | None:
    step: int | None = json.loads(manifest.read_text(encoding="utf-8")).get("global_step")
    return step


def measured(values: Mapping[str, float]) -> dict[str, float]:
    """Return what is measured of the samples alone: not what the clock says, the start fixed, or history decides."""
    return {
        name: value
        for name, value in values.items()
        if name not in NOT_MEASURED and not name.startswith(("baseline_", "vs_best_"))
    }


def _module_and_data(manifest: dict[str, Any], folder: Path, checkpoint: Path, script: Path | None) -> tuple[Any, Any]:
    """Make the module and the data of a run from their classes and the hyperparameters in the checkpoint."""
    made: list[Any] = []
    for name in ("module", "data"):
        if manifest[name] is None:  # then the module has loaders of its own
            made.append(None)
            continue
        kind = imported(find_script(manifest[name], folder, manifest["folder"], script))
        try:
            made.append(_load(kind, checkpoint))
        except TypeError as error:
            raise ValueError(
                f"Could not make the {name}, {manifest[name]}, from the checkpoint: {error}. Call "
                f"self.save_hyperparameters() in its __init__, so that checkpoints hold its arguments. {SETUP}"
            ) from error
    module, data = made
    if data is None and not _has_train_dataloader(module):
        raise ValueError(f"The run had no LightningDataModule, so its data are not known. {SETUP}")
    return module, data


def _load(kind: Any, checkpoint: Path) -> Any:
    takes = inspect.signature(kind.load_from_checkpoint).parameters
    safely = {"weights_only": True} if "weights_only" in takes else {}
    return kind.load_from_checkpoint(str(checkpoint), map_location="cpu", **safely)


def _has_train_dataloader(module: Any) -> bool:
    """Say whether a module has loaders of its own, not only the method that it inherits from Lightning."""
    bases = (base for base in type(module).__mro__ if "lightning" not in base.__module__)
    return any(base.__dict__.get("train_dataloader") for base in bases)


def _monitor(manifest: dict[str, Any]) -> PixelClusterMonitor:
    if manifest["monitor"] != PixelClusterMonitor.__name__:
        raise ValueError(f"What a {manifest['monitor']} needs is not in its manifest. {SETUP}")
    missing = [name for name in manifest["unserializable_args"] if name != "extra_metrics"]
    if missing:
        raise ValueError(f"The run's monitor was given {', '.join(missing)}, which no manifest can hold. {SETUP}")
    if manifest["kernel"] not in KERNELS:
        raise ValueError(f"The run's monitor had a kernel of its own, {manifest['kernel']}. {SETUP}")
    return PixelClusterMonitor(
        n_cluster_images=manifest["settings"]["n_cluster_images"],
        n_samples=manifest["n_samples"],
        seed=manifest["seed"],
        prefix=manifest["prefix"],
        kernel=KERNELS[manifest["kernel"]](),
        block_size=manifest["block_size"],
        image_key=manifest["image_key"],
        prompts=manifest["prompts"],
        own_widths=manifest["settings"]["own_widths"],
        evaluate_on=manifest["evaluate_on"],
    )


def _check_monitor(monitor: GenerativeMonitor, manifest: dict[str, Any]) -> None:
    """Refuse another monitor than that of the run."""
    sampler = monitor.sampler
    found = {"monitor": type(monitor).__name__, "n_samples": sampler.n_samples, "seed": sampler.seed}
    if found["monitor"] == manifest["monitor"]:  # another kind has other settings
        # as JSON keeps them; regions are taken from the run, however they were found
        found |= json.loads(json.dumps(monitor.evaluator.settings()))
    logged = manifest["settings"] | manifest
    other = {name: value for name, value in found.items() if value != logged[name] and name not in FROM_THE_RUN}
    if other:
        wanted = ", ".join(f"{name}={logged[name]!r}" for name in other)
        given = ", ".join(f"{name}={value!r}" for name, value in other.items())
        raise ValueError(f"Expected the monitor of the run, with {wanted}, but got {given}. {SETUP}")


def _use_fit(monitor: GenerativeMonitor, manifest: dict[str, Any], folder: Path) -> None:
    """Give a monitor what was fixed for the run."""
    monitor.sampler.batch_size = manifest["sample_batch_size"]
    if isinstance(monitor, PixelClusterMonitor):
        low, high = manifest["range"]
        monitor.evaluator.use_regions(
            RegionFit(
                PixelPartition.load(folder / manifest["partition"]),
                replace(monitor.kernel, gamma=manifest["gamma"]),
                {name: (band[0], band[1], band[2]) for name, band in manifest["baseline"].items()},
                (low, high),
                widths=manifest["widths"],
            )
        )


class _EvaluateOnce(Callback):
    """Evaluates at the start of training and stops before the first step."""

    def __init__(self, monitor: GenerativeMonitor, manifest: dict[str, Any], folder: Path) -> None:
        self.monitor, self.manifest, self.folder = monitor, manifest, folder
        self.values: dict[str, float] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        monitor, sampler, n = self.monitor, self.monitor.sampler, self.manifest["n_samples"]
        model = sampled_model(trainer, pl_module)
        device = evaluation_device(monitor.evaluate_on, model.device, SingleProcess())
        ranges = self.manifest["drawn"] if self.manifest["processes"] == 1 else [(0, n)]
        set_epoch(trainer, self.manifest["current_epoch"])
        trainer.should_stop = True

        def draw() -> Samples:
            images = torch.cat([sampler.draw(model, range(*part)) for part in ranges])[:n]
            return moved(Samples(images, torch.arange(n)), device)

        with preserve_training_state(pl_module):
            real = reference_images(trainer, monitor.real_images, monitor.image_key, SingleProcess())
            probe = sampler.draw(model, range(min(PROBE, n)))
            monitor.evaluator.fit(real, probe.to(device), SingleProcess())
            if monitor.evaluator.needs_first_samples:
                raise ValueError(
                    "Expected an evaluation that a checkpoint can repeat, but this one compared the model with its own "
                    "earlier samples, which no manifest holds."
                )
            _check_real_images(monitor, self.manifest, self.folder)
            _, evaluation = run_evaluation(monitor.evaluator, draw, SingleProcess(), sampler.seed)
        self.values = evaluation.values


def _evaluate(
    monitor: GenerativeMonitor, module: Any, data: Any, manifest: dict[str, Any], folder: Path
) -> dict[str, float]:
    once = _EvaluateOnce(monitor, manifest, folder)
    trainer = Trainer(
        accelerator="cpu" if manifest["device"] == "cpu" else "auto",
        devices=1,
        precision=manifest["precision"],
        max_epochs=1,
        limit_val_batches=1.0 if manifest["validation"] else 0,
        num_sanity_val_steps=0,
        callbacks=[once],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(manifest["threads"])  # the order of a sum depends on them
    try:
        if isinstance(data, (list, tuple)):
            trainer.fit(module, *data)
        else:
            trainer.fit(module, datamodule=data)
    finally:
        torch.set_num_threads(threads)
    return {name: float(value) for name, value in measured(once.values).items()}


def _check_real_images(monitor: GenerativeMonitor, manifest: dict[str, Any], folder: Path) -> None:
    """Refuse other real images than those of the run."""
    if not isinstance(monitor, PixelClusterMonitor):
        return
    real = json.loads((folder / manifest["real"]).read_text(encoding="utf-8"))
    if fingerprint(monitor.evaluator.fitted.real[: real["count"]]) != real["sha256"]:
        raise ValueError(
            f"The real images are not those of the run, which took {len(real['indices'])} of {real['from']}: their "
            "values differ. Give the data as they were."
        )
