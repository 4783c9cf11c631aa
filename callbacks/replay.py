# SPDX-License-Identifier: Apache-2.0
"""Measuring a logged evaluation again, from the file of its run and the checkpoint of the same moment."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from genmonitor.callbacks.base import GenerativeMonitor, sampled_model
from genmonitor.callbacks.checkpoints.files import fit_loop, read_checkpoint, weights_in
from genmonitor.callbacks.checkpoints.setup import SETUP, find_script, imported, make_setup, run_at_start
from genmonitor.callbacks.integration.compat import at_progress
from genmonitor.callbacks.integration.data import reference_images
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor
from genmonitor.evaluation.data.images import fingerprint
from genmonitor.evaluation.distributed import SingleProcess
from genmonitor.evaluation.evaluator import PROBE, run_evaluation
from genmonitor.evaluation.regions.finder import Regions
from genmonitor.evaluation.results import Samples
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.evaluation.values import by_key, lookup
from genmonitor.monitoring.device import evaluation_device, moved
from genmonitor.partition import PixelPartition
from genmonitor.report.run import MonitorRun
from genmonitor.training_state.isolation import preserve_training_state

FROM_THE_RUN = {field.name for field in fields(RegionSettings)} - RegionSettings.not_of_clusters - {"kernel"}
FROM_THE_RUN |= {"partition"}
"""Settings that make no difference once the regions are known, which a replay takes from the run."""


def replay(path: Path, checkpoint: Path, setup: str | None = None, script: Path | None = None) -> dict[str, float]:
    """Measure the values of an evaluation again.

    Args:
        path: the file of the run, such as cms_run.json; what it names lies beside it.
        checkpoint: of the moment that was evaluated; nothing but tensors and plain Python is loaded from it.
        setup: "FILE.py:FUNCTION" or "package.module:FUNCTION", which returns (module, data, monitor) as for training,
            or the Trainer with its monitors in place of these; data are a LightningDataModule or a list of loaders for
            `Trainer.fit`. None to make them from the classes that the run names and the hyperparameters in the
            checkpoint.
        script: the file with these classes where the run names one; None to look for it, see `find_script`.

    Returns:
        The values that the samples give again, by key.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if they do not belong together, or something is missing that only the user's code can give.
    """
    manifest, saved = logged_evaluation(path, checkpoint), read_checkpoint(checkpoint)
    if setup is not None:
        made = make_setup(setup)
        module, data, monitor = made.module, made.data, _of_manifest(made.monitors, manifest)
        module.on_load_checkpoint(saved)
    else:
        sys.path.insert(0, str(Path.cwd()))
        module, data = module_and_data(manifest, path.parent, checkpoint, script)
        monitor = monitor_of(manifest)
    _check_monitor(monitor, manifest)
    module.load_state_dict(weights_in(saved, averaged=manifest["weights"] == "averaged"))
    monitor.sampler.batch_size = manifest["sample_batch_size"]
    if isinstance(monitor, PixelClusterMonitor):
        partition = PixelPartition.load(path.parent / manifest["partition"])
        monitor.evaluator.use_regions(Regions.from_manifest(manifest, partition, monitor.kernel))
    return _evaluate(monitor, module, data, manifest, path.parent, fit_loop(saved))


def logged_evaluation(path: Path, checkpoint: Path) -> dict[str, Any]:
    """Return all that holds for the evaluation at the moment of a checkpoint, with its "repeatable" values.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no run of a training, or has no evaluation at that moment.
    """
    run = MonitorRun.read(path)
    if lacking := sorted(NEEDED - run.manifest.keys()):
        raise ValueError(f"Expected the run of a training, but {path} lacks {', '.join(lacking)}.")
    step = read_checkpoint(checkpoint)["global_step"]
    return {**run.manifest_at(step), "repeatable": run.repeatable(step)}


NEEDED = {"module", "data", "weights", "global_step", "settings", "threads", "precision", "processes", "drawn"}
"""What a replay takes from a run, and a comparison or a loop without a Trainer does not leave."""


def _of_manifest(monitors: list[GenerativeMonitor], manifest: Mapping[str, Any]) -> GenerativeMonitor:
    """Return the monitor that wrote a manifest; any other where there is none, which is then refused."""
    if not monitors:
        raise ValueError(f"Expected the setup to return a monitor too, as for training, but got none. {SETUP}")
    return next((monitor for monitor in monitors if monitor.prefix == manifest["prefix"]), monitors[0])


def _check_monitor(monitor: GenerativeMonitor, manifest: Mapping[str, Any]) -> None:
    """Refuse another monitor than that of the run."""
    sampler = monitor.sampler
    found = {"monitor": type(monitor).__name__, "n_samples": sampler.n_samples, "seed": sampler.seed}
    if found["monitor"] == manifest["monitor"]:  # another kind has other settings
        found |= monitor.evaluator.comparable_settings()
    logged: dict[str, Any] = {**manifest, **manifest["settings"]}
    other = {name: value for name, value in found.items() if value != logged.get(name) and name not in FROM_THE_RUN}
    if other:
        wanted = ", ".join(f"{name}={logged.get(name)!r}" for name in other)
        given = ", ".join(f"{name}={value!r}" for name, value in other.items())
        raise ValueError(f"Expected the monitor of the run, with {wanted}, but got {given}. {SETUP}")


def _evaluate(
    monitor: GenerativeMonitor, module: Any, data: Any, manifest: Mapping[str, Any], folder: Path, loops: dict[str, Any]
) -> dict[str, float]:
    values: dict[str, float] = {}

    def body(trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        with at_progress(trainer, loops), preserve_training_state(pl_module):
            values.update(_evaluate_once(monitor, trainer, pl_module, manifest, folder))

    threads = torch.get_num_threads()
    torch.set_num_threads(manifest["threads"])  # the order of a sum depends on them
    try:
        run_at_start(
            module,
            data,
            body,
            accelerator="cpu" if manifest["device"] == "cpu" else "auto",
            precision=manifest["precision"],
            limit_val_batches=1.0 if manifest["validation"] else 0,
        )
    finally:
        torch.set_num_threads(threads)
    specs = by_key(monitor.values())
    return {key: float(value) for key, value in values.items() if lookup(specs, key).repeatable}


def _evaluate_once(
    monitor: GenerativeMonitor,
    trainer: pl.Trainer,
    pl_module: pl.LightningModule,
    manifest: Mapping[str, Any],
    folder: Path,
) -> dict[str, float]:
    sampler, n = monitor.sampler, manifest["n_samples"]
    model = sampled_model(trainer, pl_module)
    device = evaluation_device(monitor.evaluate_on, model.device, SingleProcess())
    ranges = manifest["drawn"] if manifest["processes"] == 1 else [(0, n)]

    def draw() -> Samples:
        images = torch.cat([sampler.draw(model, range(*part)) for part in ranges])[:n]
        return moved(Samples(images, torch.arange(n)), device)

    real = reference_images(trainer, monitor.real_images, monitor.image_key, SingleProcess())
    probe = sampler.draw(model, range(min(PROBE, n)))
    monitor.evaluator.fit(real, probe.to(device), SingleProcess())
    if monitor.evaluator.needs_first_samples:
        raise ValueError(
            "Expected an evaluation that a checkpoint can repeat, but this one compared the model with its own earlier "
            "samples, which no manifest holds."
        )
    _check_real_images(monitor, manifest, folder)
    _, evaluation = run_evaluation(monitor.evaluator, draw, SingleProcess(), sampler.seed)
    return evaluation.values


def _check_real_images(monitor: GenerativeMonitor, manifest: Mapping[str, Any], folder: Path) -> None:
    """Refuse other real images than those of the run."""
    if not isinstance(monitor, PixelClusterMonitor):
        return
    real = json.loads((folder / manifest["real"]).read_text(encoding="utf-8"))
    if fingerprint(monitor.evaluator.fitted.real[: real["count"]]) != real["sha256"]:
        raise ValueError(
            f"The real images are not those of the run, which took {len(real['indices'])} of {real['from']}: their "
            "values differ. Give the data as they were."
        )


def module_and_data(
    manifest: Mapping[str, Any], folder: Path, checkpoint: Path, script: Path | None
) -> tuple[Any, Any]:
    """Make the module and the data of a run from their classes and the hyperparameters in the checkpoint.

    Args:
        manifest: names the classes.
        folder: that of the manifest.
        checkpoint: holds the hyperparameters.
        script: the file with the classes; None to look for it.

    Raises:
        ValueError: if they cannot be made from that.
    """
    made: list[Any] = []
    for name, where in (("module", manifest["module"]), ("data", manifest["data"])):
        if where is None:  # then the module has loaders of its own
            made.append(None)
            continue
        kind = imported(find_script(where, folder, manifest["folder"], script))
        try:
            made.append(_load(kind, checkpoint))
        except TypeError as error:
            raise ValueError(
                f"Could not make the {name}, {where}, from the checkpoint: {error}. Call "
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


def monitor_of(manifest: Mapping[str, Any]) -> PixelClusterMonitor:
    """Make the monitor that wrote a manifest.

    Raises:
        ValueError: if that had something that no manifest holds.
    """
    if manifest["monitor"] != PixelClusterMonitor.__name__:
        raise ValueError(f"What a {manifest['monitor']} needs is not in its manifest. {SETUP}")
    missing = [name for name in manifest["unserializable_args"] if name != "extra_metrics"]
    if missing:
        raise ValueError(f"The run's monitor was given {', '.join(missing)}, which no manifest can hold. {SETUP}")
    return PixelClusterMonitor(
        **RegionSettings.from_manifest(manifest["settings"]).arguments(),
        prompts=manifest["prompts"],
        image_key=manifest["image_key"],
        evaluate_on=manifest["evaluate_on"],
        prefix=manifest["prefix"],
    )
