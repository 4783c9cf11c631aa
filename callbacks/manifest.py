# SPDX-License-Identifier: Apache-2.0
"""The manifest by which a logged value can be measured again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genmonitor.callbacks.integration.provenance import circumstances

if TYPE_CHECKING:
    import lightning.pytorch as pl

    from genmonitor.callbacks.base import GenerativeMonitor


def manifest(
    monitor: GenerativeMonitor, trainer: pl.Trainer, pl_module: pl.LightningModule, weights: str
) -> dict[str, Any]:
    """Return the manifest of a monitor's last evaluation, for which these weights were in the module."""
    sampler, image_key = monitor.sampler, monitor.image_key
    return {
        "monitor": type(monitor).__name__,
        "prefix": monitor.prefix,
        "evaluation": monitor.history[-1],
        "settings": monitor.evaluator.settings(),
        "weights": weights,
        "seed": sampler.seed,
        "n_samples": sampler.n_samples,
        "sample_batch_size": sampler.batch_size,
        "drawn": sampler.drawn,
        "prompts": None if sampler.prompts is None else sampler.prompts.values,
        "image_key": None if callable(image_key) else image_key,
        "unserializable_args": unserializable_args(monitor),
        "folder": str(monitor.publisher.folder.path.resolve()),
        **monitor.evaluator.manifest(),
        **circumstances(trainer, pl_module),
    }


def unserializable_args(monitor: GenerativeMonitor) -> list[str]:
    """Name the arguments given that no manifest can hold: `genmonitor replay` needs them from the user's code."""
    given = {
        "sample_fn": monitor.sampler.sample_fn,
        "real_images": monitor.real_images,
        "image_key": monitor.image_key if callable(monitor.image_key) else None,
    }
    return [name for name, value in given.items() if value is not None] + monitor.evaluator.unserializable_args()
