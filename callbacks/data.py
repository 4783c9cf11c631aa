# SPDX-License-Identifier: Apache-2.0
"""The data of a Trainer: its real images and the size of its batches."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import lightning.pytorch as pl
from torch import Tensor
from torch.utils.data import Sampler

from genmonitor._io import Progress, no_progress
from genmonitor.callbacks.compat import (
    given_dataloaders,
    validation_dataloaders,
)
from genmonitor.distributed import Collective
from genmonitor.images.batches import ImageKey
from genmonitor.images.image_set import ImageSet, sampled_indices, weights_of
from genmonitor.images.streams import streams_taken
from genmonitor.training_state.ownership import is_users_code


def reference_images(
    trainer: pl.Trainer,
    real_images: Any,
    image_key: ImageKey,
    comm: Collective,
    progress: Progress = no_progress,
) -> ImageSet:
    """Return the real images of the user, or else of the Trainer. Every process calls it.

    Raises:
        ValueError: On every process, if the Trainer has several loaders, or the processes have different data. Also if
            validation data are trained on because several processes lost the split.
    """
    with_index = streams_taken(image_key, comm, progress)
    if real_images is not None:
        return ImageSet(real_images, image_key, with_index=with_index)
    trained_on, held_out = trainer.train_dataloader, validation_dataloaders(trainer)
    training = find_loader(trained_on, image_key)
    validation = find_loader(held_out, image_key, "validation") if _have_batches(held_out) else None
    # overfitting takes both from the beginning of the data, independent of samplers
    if comm.world_size > 1 and not trainer.overfit_batches:  # type: ignore[attr-defined]
        given = given_dataloaders(trainer)
        names = ("training", "validation")
        before = None if given is None else tuple(map(find_loader, given, [image_key] * 2, names))
        check_split((training, validation), before, comm)
    if is_loader_key(trained_on, image_key):
        image_key = None
    return ImageSet.of_training(training, validation, image_key, with_index=with_index)


def choice_notes(trainer: pl.Trainer) -> list[str]:
    """Return notes on choices of `reference_images` that may not be intended.

    Of several validation loaders it takes the first. Of images that are drawn with weights it takes each once.
    """
    notes = []
    held_out = validation_dataloaders(trainer)
    held_out = getattr(held_out, "iterables", held_out)
    datasets = {id(getattr(loader, "dataset", loader)) for loader in all_loaders(held_out)}
    if isinstance(held_out, (list, tuple)) and len(datasets) > 1:
        notes.append(
            f"generated images are compared with those of the first of {len(held_out)} validation loaders. Give "
            "`real_images=` for others"
        )
    weights = [weights_of(getattr(x, "sampler", None)) for x in all_loaders(trainer.train_dataloader)]
    if any(x is not None and len(x[x > 0].unique()) > 1 for x in weights):
        notes.append(
            "training draws images by weights, but real images are taken evenly, so proportions differ. Give "
            "`real_images=` with the proportions that the generator is to learn"
        )
    samplers = [getattr(x, "sampler", None) for x in all_loaders([trainer.train_dataloader, held_out])]
    closed = {type(x) for x in samplers if isinstance(x, Sampler) and not hasattr(x, "indices")}
    notes += [
        f"{kind.__name__} may choose some of the images, but real images are taken from all. If it does, keep the "
        "indices in its attribute `indices`, or give `real_images=`"
        for kind in closed
        if is_users_code(kind.__module__)
    ]
    for owner in (trainer.lightning_module, getattr(trainer, "datamodule", None)):
        for name in ("on_before_batch_transfer", "on_after_batch_transfer"):
            hook = getattr(type(owner), name, None)
            if hook is not None and hook.__module__.partition(".")[0] not in ("lightning", "pytorch_lightning"):
                notes.append(
                    f"{type(owner).__name__}.{name} may change batches, but real images are read without it. If it "
                    "does, give an `image_key=` that changes them too, or `real_images=`"
                )
    return notes


def validates(trainer: pl.Trainer) -> bool:
    """Return True if the training validates any batch; Lightning's `enable_validation` is also true without one."""
    return trainer.enable_validation and _have_batches(validation_dataloaders(trainer))


def _have_batches(loaders: Any) -> bool:
    def length(loader: Any) -> float:
        try:
            return len(loader)
        except (TypeError, NotImplementedError):  # of a stream
            return math.inf

    return any(map(length, all_loaders(loaders)))


def find_loader(loaders: Any, image_key: ImageKey, name: str = "training") -> Any:
    """Return the loader of images; None if there is no loader.

    Args:
        loaders: Loaders of a Trainer: a loader, lists and dictionaries of them, or a CombinedLoader.
        image_key: Position of the images in a batch; or the key of a loader among these.
        name: Name of the data, "training" or "validation".

    Raises:
        ValueError: If there are several, and `image_key` names none of them. Of a list of validation loaders the first
            is used, like in Lightning's own index.
    """
    loaders = getattr(loaders, "iterables", loaders)
    if is_loader_key(loaders, image_key):
        loaders = loaders[image_key]
    found = named_loaders(loaders)
    datasets = {id(getattr(loader, "dataset", loader)) for loader in found.values()}
    in_order = name == "validation" and isinstance(loaders, (list, tuple))
    if len(datasets) > 1 and not in_order:
        raise ValueError(
            f"Expected one loader of images in the {name} data, but got {' and '.join(found)}. Give `image_key=` the "
            "key of one of them, or `real_images=` the images that the generator is to learn."
        )
    return next(iter(found.values()), None)


def is_loader_key(loaders: Any, image_key: ImageKey) -> bool:
    """Return True if an image key names one of several loaders instead of a part of their batches."""
    loaders = getattr(loaders, "iterables", loaders)
    return isinstance(loaders, Mapping) and isinstance(image_key, Hashable) and image_key in loaders


def named_loaders(loaders: Any, place: str = "") -> dict[str, Any]:
    """Return all loaders, in their order, by position.

    Example:
        >>> named_loaders({"a": [1, 2], "b": 3})
        {"['a'][0]": 1, "['a'][1]": 2, "['b']": 3}
    """
    loaders = getattr(loaders, "iterables", loaders)
    if isinstance(loaders, (list, tuple)):
        loaders = dict(enumerate(loaders))
    if not isinstance(loaders, Mapping):
        return {} if loaders is None else {place: loaders}
    found: dict[str, Any] = {}
    for key, part in loaders.items():
        found |= named_loaders(part, f"{place}[{key!r}]")
    return found


def all_loaders(loaders: Any) -> list[Any]:
    """Return all loaders, in their order."""
    return list(named_loaders(loaders).values())


def batch_size(batch: Any) -> int:
    """Return the length of the first tensor in a batch of any structure, 0 if there is none.

    Example:
        >>> import torch
        >>> batch_size({"prompt": ["a cat", "a dog"], "images": [torch.zeros(2, 3, 8, 8)]})
        2
    """
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next(filter(None, map(batch_size, parts)), 0)


def check_split(used: tuple[Any, Any], given: tuple[Any, ...] | None, comm: Collective) -> None:
    """Refuse training and validation loaders with common images, or different ones by process. Every process calls it.

    With several processes Lightning gives each loader a DistributedSampler. If it wraps the loader's own `sampler`, the
    choice of images is kept. In a `batch_sampler` it replaces the sampler, so that each loader yields the whole
    dataset.

    Args:
        used: Training loader in use, and the validation loader or None.
        given: The same loaders as given by the user; None if they are unknown.
        comm: Processes that train together.

    Raises:
        ValueError: If both yield images of one dataset, one of them all, without a sign that this is intended. Also if
            samplers choose from different images on each process.
    """
    training, validation = used
    dataset = getattr(training, "dataset", None)
    if dataset is getattr(validation, "dataset", None) and dataset is not None:
        whole = _yield_everything(used)
        which = " and ".join(name for name, all_of in zip(("training", "validation"), whole, strict=True) if all_of)
        if any(whole) and (given is None or _yield_everything(given) != whole):
            raise ValueError(
                f"Expected validation images that are not trained on, but with several processes {which} data "
                f"are all {len(dataset)} images of the {type(dataset).__name__} from which both come. Lightning "
                "replaces the sampler in a `batch_sampler`. Make the split by `sampler=` or by Subset, or give "
                "`real_images=`."
            )
    for name, loader in zip(("training", "validation"), used, strict=True):
        indices = sampled_indices(loader)
        if comm.any_true(comm.broadcast(indices) != indices):
            raise ValueError(
                f"Expected the sampler of the {name} data to choose from the same images on every process, but the "
                "processes differ. Seed the generator of its indices, or give `real_images=`."
            )


def _yield_everything(loaders: tuple[Any, ...]) -> list[bool]:
    return [sampled_indices(loader) is None for loader in loaders]
