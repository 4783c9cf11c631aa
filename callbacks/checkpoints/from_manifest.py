# SPDX-License-Identifier: Apache-2.0
"""Making module, data and monitor of a run from what its manifests and checkpoints say of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from genmonitor import kernels
from genmonitor.callbacks.integration.scripts import SETUP, find_script, imported
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor

KERNELS = {name: kind for name, kind in vars(kernels).items() if isinstance(kind, type)}


def module_and_data(manifest: dict[str, Any], folder: Path, checkpoint: Path, script: Path | None) -> tuple[Any, Any]:
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


def monitor_of(manifest: dict[str, Any]) -> PixelClusterMonitor:
    """Make the monitor that wrote a manifest.

    Raises:
        ValueError: if that had something that no manifest holds.
    """
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
