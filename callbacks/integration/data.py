# SPDX-License-Identifier: Apache-2.0
"""The data of a Trainer: where its real images are, and how many a batch holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from genmonitor.callbacks.integration.compat import validation_dataloaders
from genmonitor.evaluation.data.images import ImageKey
from genmonitor.evaluation.data.reference import ReferenceImages

if TYPE_CHECKING:
    import lightning.pytorch as pl


def reference_images(trainer: pl.Trainer, real_images: Any, image_key: ImageKey) -> ReferenceImages:
    """Return the real images that the user gave, or else those of the Trainer."""
    if real_images is not None:
        return ReferenceImages(given=real_images, image_key=image_key)
    training, validation = first_loader(trainer.train_dataloader), first_loader(validation_dataloaders(trainer))
    return ReferenceImages(training=training, validation=validation, image_key=image_key)


def batch_size(batch: Any) -> int:
    """Return the length of the first tensor in a batch of any structure, 0 where there is none.

    Example:
        >>> batch_size({"prompt": ["a cat", "a dog"], "images": [torch.zeros(2, 3, 8, 8)]})
        2
    """
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next(filter(None, map(batch_size, parts)), 0)


def first_loader(loaders: Any) -> Any:
    """Return the first loader of whatever a Trainer holds: one, lists and dictionaries of them, or a CombinedLoader."""
    first = getattr(loaders, "flattened", loaders)
    while isinstance(first, (Mapping, list, tuple)):
        first = next(iter(first.values() if isinstance(first, Mapping) else first), None)
    return first
