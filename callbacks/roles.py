# SPDX-License-Identifier: Apache-2.0
"""Which real images serve for what: fixed for the run, and none on both sides of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genmonitor.callbacks.data import ImageKey, ImageSource, first_loader


@dataclass(frozen=True)
class RealImages:
    """Indices into training images and into those that generated ones are compared with."""

    training: ImageSource
    for_clusters: list[int]
    for_yardstick: Tensor
    compared: ImageSource
    for_comparison: list[int]
    notes: list[str]


def assign_roles(
    trainer: Any,
    real_images: Any,
    image_key: ImageKey,
    n_clusters: int,
    n_samples: int,
    block_size: int | None,
    seed: int,
) -> RealImages:
    """Choose real images at random, from a generator of their own.

    Args:
        trainer: its datasets are used where `real_images` is None.
        real_images: a Dataset, DataLoader or tensor to take all roles from; or None.
        image_key: where the images are in a batch.
        n_clusters: images for the kernel's width and the clusters.
        n_samples: images to compare with.
        block_size: their number is cut to a multiple of it.
        seed: of the choice.

    Raises:
        ValueError: if there are no images, or fewer than 4 (2 for clusters, 2 to compare with).
    """
    training = real_images if real_images is not None else first_loader(trainer.train_dataloader)
    validation = None if real_images is not None else validation_data(trainer)
    if training is None:
        raise ValueError("Expected real images, but the Trainer has no training data. Give `real_images=`.")
    source = ImageSource(training, image_key, "the training data" if real_images is None else "`real_images`")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(source), generator=generator)
    notes = []
    if validation is not None:
        compared = ImageSource(validation, image_key, "the validation data")
        chosen = torch.randperm(len(compared), generator=generator)[:n_samples]
        rest = _apart(source, order, compared, chosen)
        if len(rest) < len(order):
            notes.append(
                f"{len(order) - len(rest)} of the {len(chosen)} validation images compared with are training images "
                "too; clusters and yardstick are taken from the others"
            )
    else:
        compared = source
        chosen, rest = order[: min(n_samples, len(order) // 2)], order[min(n_samples, len(order) // 2) :]
        if real_images is None:
            notes.append(
                "there is no validation data, or it is switched off: generated images are compared with training images"
            )
    if block_size is not None:
        chosen = chosen[: len(chosen) - len(chosen) % block_size]
    if len(chosen) < max(2, block_size or 0) or len(rest) < 2:
        raise ValueError(
            f"Expected at least 2 real images (a whole block with `block_size`) on each side, but {source.name} holds "
            f"{len(source)} and {compared.name} {len(compared)}. Give more images with `real_images=`."
        )
    shapes = [list(x.read(i[:1].tolist()).shape[1:]) for x, i in ((source, rest), (compared, chosen))]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"Expected real images of one shape, but {source.name} holds {shapes[0]} and {compared.name} {shapes[1]}. "
            "Resize or convert them in the dataset's transform, or give other images with `real_images=`."
        )
    first = rest[:1].tolist()
    if not torch.equal(source.read(first), source.read(first)):
        notes.append(
            f"an image of {source.name} is another each time it is read, since the dataset draws from a generator that "
            "is out of sight, which reading moves. Give `real_images=` the images without augmentation"
        )
    if len(chosen) < n_samples:
        notes.append(f"only {len(chosen)} real images are there to compare {n_samples} generated ones with")
    if len(rest) < 2 * n_samples:
        notes.append(
            f"the yardstick's draws of {n_samples} overlap much, so its band is too narrow: only {len(rest)} training "
            "images are there to draw from"
        )
    return RealImages(source, rest[:n_clusters].tolist(), rest, compared, chosen.tolist(), notes)


def _apart(source: ImageSource, order: Tensor, compared: ImageSource, chosen: Tensor) -> Tensor:
    """Return those of the training images that are not among the validation images compared with."""
    (dataset, place), (other, other_place) = source.origin(), compared.origin()
    if dataset is not other:
        return order
    taken = {other_place[i] for i in chosen.tolist()}
    return order[torch.tensor([place[i] not in taken for i in order.tolist()], dtype=torch.bool)]


def validation_data(trainer: Any) -> Any:
    """Return the Trainer's first validation loader, or None."""
    loaders = trainer.val_dataloaders
    if loaders is None and trainer.enable_validation:
        # Lightning asks for them before an epoch that validates, which the first need not be
        loaders = trainer.fit_loop.epoch_loop.val_loop._data_source.dataloader()
    return first_loader(loaders)
