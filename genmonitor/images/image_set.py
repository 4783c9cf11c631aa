# SPDX-License-Identifier: Apache-2.0
"""Reading images of a dataset without changing existing loaders or random states."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from genmonitor._io import Progress, no_progress
from genmonitor._validation import check_images, check_tensor
from genmonitor.images.batches import ImageKey, find_images
from genmonitor.training_state.data import found_generators, preserve_data
from genmonitor.training_state.rng import preserve_rng, seed_generators

READ_BATCH = 128
MAX_HELD = 2**26
"""Bytes up to which the images of a set are kept once all are read: 64 MiB."""
READ_TWICE = 32
"""Number of images to read twice, so that a flip of one in ten is missed in one of 500 datasets."""
INDICES = (list, tuple, range, np.ndarray, Tensor)
"""Indices, or batches of them, that stand for a sampler."""


class StreamedItems(list[Any]):
    """Items taken from a stream, in its order."""


class ImageSet:
    """Images by index, real or generated, read when needed through a separate loader.

    Args:
        data: A Dataset with a length, a DataLoader over one (its collate function and workers are used), a tensor, or
            another set; None for no images. It is opened on first use.
        image_key: Position of the images in a batch, see `find_images`.
        name: Name in errors and notes.
        held_out: Images that the generator is not trained on, to compare with in place of these.
        training: True for the training data of a Trainer, which may not be usable images.
        with_index: Function from data that may be streamed, and their name, to data with access by index; every process
            calls it when images are needed.

    Attributes:
        held_out: Images to compare with in place of these.
        required: True if the user gave these images, so that unusable ones are an error.
        indices: Indices of these images in the data; None for all.

    Raises:
        TypeError: When it is opened, if a tensor does not hold real numbers.
        ValueError: When it is opened, if there are no data, or they have no length or no access by index.
    """

    def __init__(
        self,
        data: Any = None,
        image_key: ImageKey = None,
        name: str = "`real_images`",
        *,
        held_out: ImageSet | None = None,
        training: bool = False,
        with_index: Callable[[Any, str], Any] = lambda data, name: data,
    ) -> None:
        self._given: Any = data._given if isinstance(data, ImageSet) else data
        self._with_index = with_index
        self.image_key, self.name, self.held_out = image_key, name, held_out
        self.required = data is not None and not training
        self.indices: list[int] | None = None
        self._held: Tensor | None = None

    @classmethod
    def of_training(cls, training: Any, validation: Any, image_key: ImageKey = None, **options: Any) -> ImageSet:
        """Make a set of training data, with the validation data held out; None for missing data."""
        held_out = None if validation is None else cls(validation, image_key, "the validation data", **options)
        return cls(training, image_key, "the training data", held_out=held_out, training=True, **options)

    @cached_property
    def data(self) -> Any:
        """Data with access by index."""
        if self._given is None:
            raise ValueError("Expected real images, but the Trainer has no training data. Give `real_images=`.")
        return self._with_index(self._given, self.name)

    @cached_property
    def dataset(self) -> Dataset[Any]:
        """Dataset of all items from which the sampler of the data chooses."""
        if isinstance(self.data, Tensor):
            return TensorDataset(check_tensor(self.name.strip("`"), self.data))
        dataset = self.data if self._loader is None else self._loader.dataset
        has_index = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not has_index:
            raise ValueError(
                f"Expected {self.name} to be a Dataset with a length and access by index, a DataLoader over one, or a "
                f"tensor, but got {type(dataset).__name__}. Give `real_images=` such a set of a few thousand images."
            )
        indices = sampled_indices(self.data)
        return dataset if indices is None else Subset(dataset, indices)

    @property
    def _loader(self) -> Any:
        return self.data if hasattr(self.data, "dataset") and not isinstance(self.data, Dataset) else None

    def __len__(self) -> int:
        return len(self.dataset if self.indices is None else self.indices)  # type: ignore[arg-type]

    @property
    def compared(self) -> ImageSet:
        """Images to compare generated ones with: those held out if there are any."""
        return self if self.held_out is None else self.held_out

    def subset(self, indices: Sequence[int], shape: tuple[int, ...] | None = None) -> ImageSet:
        """Return some of these images.

        Args:
            indices: Indices in this set.
            shape: Shape (C, H, W) of the generated images to compare with, which needs at least 2 images; None for no
                check.

        Raises:
            ValueError: If there are fewer than 2, or they do not have this shape.
        """
        chosen = copy(self)
        chosen.indices, chosen._held = self._in_dataset(indices), None
        if shape is None:
            return chosen
        if len(chosen) < 2:
            raise ValueError(f"Expected at least 2 real images, but {self.name} holds {len(chosen)}. Give more.")
        if chosen.shape != shape:
            raise ValueError(
                f"Expected real images of shape {list(shape)} like the generated ones, but got {list(chosen.shape)}. "
                "Resize or convert one of them, in `sample_fn` or in the dataset's transform."
            )
        return chosen

    def to_compare(self, n: int, seed: int, shape: tuple[int, ...]) -> ImageSet:
        """Choose n images at random, or all if there are fewer, to compare with generated ones of this shape."""
        source = self.compared
        order = random_order(len(source), n, torch.Generator().manual_seed(seed))
        return source.subset(order[:n].tolist(), shape)

    def places(self) -> tuple[Dataset[Any], list[int]]:
        """Return the dataset from which all Subsets were taken, and the indices of these images in it."""
        dataset, places = self.dataset, self._in_dataset(range(len(self)))
        while isinstance(dataset, Subset):
            inner = dataset.indices
            dataset, places = dataset.dataset, [inner[i] for i in places]
        return dataset, places

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Restore on exit what reading may change: the global random states and the state of the data."""
        with preserve_rng(), preserve_data({self.name: self.data}):
            yield

    def read(self, indices: Sequence[int] | Tensor | None = None, progress: Progress = no_progress) -> Tensor:
        """Read images as float32 on the CPU; integers are scaled from 0..255 to [0, 1].

        Image i is the same whenever it is read, even with random augmentation, unless that uses a random generator that
        is not reachable from the attributes of the dataset. Generators are restored.

        Args:
            indices: Sequence or tensor of any shape [...]; None for all, which are kept if they fit in 64 MiB.
            progress: Progress bar over the batches.

        Returns:
            Images [..., C, H, W].
        """
        if isinstance(indices, Tensor):
            return self.read(indices.flatten().tolist(), progress).unflatten(0, indices.shape)
        if indices is None and self._held is None:
            images = self.read(range(len(self)), progress)
            self._held = images if images.nbytes <= MAX_HELD else None
            return images
        if self._held is not None:
            return self._held if indices is None else self._held[list(indices)]
        if not indices:
            return torch.empty(0, *self.shape)
        out, start = torch.empty(0), 0
        with self.reading():
            for images in self.batches(indices, progress=progress):
                out = out if start else images.new_empty(len(indices), *images.shape[1:])
                out[start : start + len(images)] = images
                start += len(images)
        return out

    def batches(
        self, indices: Sequence[int], size: int | None = None, progress: Progress = no_progress
    ) -> Iterator[Tensor]:
        """Yield these images in batches, like `read`; to iterate inside `reading`.

        Args:
            indices: Indices of the images.
            size: Number of images in a batch; None for about 33 MiB. glibc returns memory of this size to the operating
                system, but keeps smaller pieces and may not reuse them.
            progress: Progress bar over the batches.
        """
        if size is None:
            size = READ_BATCH if len(indices) <= READ_BATCH else 33 * 2**20 // (4 * math.prod(self.shape)) + 1
        shape, places = None, iter(range(0, len(indices), size))
        name = self.name.strip("`") if self.name.startswith("`") else f"images of {self.name}"
        try:
            with iterating(self.loader(indices, size)) as items:
                for batch in progress(items, f"reading {self.name}"):
                    images = check_images(name, find_images(batch, self.image_key), shape)
                    wanted = min(size, len(indices) - next(places))
                    if len(images) != wanted:
                        raise ValueError(
                            f"Expected one image from each of {wanted} items of {self.name}, but got {len(images)}. "
                            "Let `image_key=` lead to all images of a batch [N, C, H, W]."
                        )
                    shape = tuple(images.shape[1:])
                    yield images.float().cpu()
        except RuntimeError as error:
            if "stack expects each tensor to be equal size" not in str(error):
                raise
            which = str(error).strip().splitlines()[-1]
            raise ValueError(f"Expected {name} of one size, but {which}. Resize them in the transform.") from error

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape (C, H, W) of the first image."""
        with self.reading():
            (image,) = self.batches([0], 1)
        return tuple(image.shape[1:])

    def first(self, n: int) -> Tensor:
        """Read the first n images, or all if there are fewer."""
        return self.read(range(min(n, len(self))))

    def some(self) -> Tensor:
        """Read images evenly spread over all, up to 16 MiB, which show the value range."""
        return self.read(range(0, len(self), -(-len(self) * math.prod(self.shape) // 2**22)))

    def signature(self) -> list[float]:
        """Return numbers that differ for other images."""
        return [float(len(self.dataset)), float(self.first(16).double().sum())]  # type: ignore[arg-type]

    def notes(self) -> tuple[str, ...]:
        """Return notes for the user on the source of the images."""
        notes = []
        if not self.required and self.held_out is None:
            notes.append(
                "there is no validation data, no `validation_step`, or validation is switched off. Generated images "
                "are compared with training images, so p-values may be too small or too large. Give validation data, "
                "in Lightning with a `validation_step`, which may be empty"
            )
        if isinstance(self.data, StreamedItems):
            some = f"its first {len(self.data)} images serve as real images for the run"
            notes.append(f"{self.name} can only be streamed, so {some}")
        return tuple(notes)

    def few_notes(self, n: int) -> tuple[str, ...]:
        """Return notes if there are fewer images than the n generated ones to compare with."""
        few = f"only {len(self)} real images available for comparison with {n} generated ones"
        return (few,) if len(self) < n else ()

    def reading_notes(self) -> tuple[str, ...]:
        """Return notes if images differ each time they are read; the first ones are read twice to check."""
        if torch.equal(self.first(READ_TWICE), self.first(READ_TWICE)):
            return ()
        return (
            f"an image of {self.name} differs each time it is read. Its dataset draws from a random generator that "
            "cannot be seeded, or has a state that cannot be put back. The training may then differ from one "
            "without the monitor. Give `real_images=` a separate Dataset without augmentation",
        )

    def loader(self, indices: Sequence[int], size: int = READ_BATCH) -> DataLoader[Any]:
        """Return a loader of these items in their order, to iterate inside `reading`."""
        options: dict[str, Any] = {"collate_fn": default_collate}
        if self._loader is not None:
            names = ("collate_fn", "num_workers", "worker_init_fn", "multiprocessing_context")
            options = {name: getattr(self._loader, name) for name in names if hasattr(self._loader, name)}
        if len(indices) <= READ_BATCH:  # starting workers would take longer than the batch
            options |= {"num_workers": 0, "multiprocessing_context": None}
        items = _FixedItems(self.dataset, self._in_dataset(indices), self.name)
        return DataLoader(items, batch_size=size, **options)

    def _in_dataset(self, indices: Sequence[int]) -> list[int]:
        return list(indices) if self.indices is None else [self.indices[i] for i in indices]


@contextmanager
def iterating(loader: Any) -> Iterator[Any]:
    """Iterate over a loader inside the block; afterwards none of its workers writes to shared memory."""
    iterator = iter(loader)
    try:
        yield iterator
    finally:
        getattr(iterator, "_shutdown_workers", lambda: None)()


def random_order(n: int, wanted: int, generator: torch.Generator) -> Tensor:
    """Return the integers below n in a random order; for more than a million at least the requested number.

    A permutation of all indices of many millions would take seconds and gigabytes.
    """
    if n <= 1_000_000:
        return torch.randperm(n, generator=generator)
    some = torch.randint(n, (2 * wanted,), generator=generator).unique()
    return some[torch.randperm(len(some), generator=generator)]


class _FixedItems(Dataset[Any]):
    """Items of a dataset, each with its own random states, so that random transforms are part of the image."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int], name: str) -> None:
        self.dataset, self.indices, self.name = dataset, indices, name
        self._generators = found_generators()

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> Any:
        index = self.indices[position]
        torch.default_generator.manual_seed(index)
        np.random.seed(index % 2**32)  # noqa: NPY002
        random.seed(index)
        seed_generators(self._generators, index)
        try:
            item = self.dataset[index]
        except IndexError as error:
            raise ValueError(
                f"Expected {self.name} to hold {len(self.dataset)} images, as its length says, but there is none at "  # type: ignore[arg-type]
                f"{index}. Let its length be the number of its items."
            ) from error
        return tree_map(_own, item)


def _own(value: Any) -> Any:
    """Return a copy of a tensor or array, since a dataset may write its next item into it; anything else itself."""
    return value.copy() if isinstance(value, np.ndarray) else value.clone() if isinstance(value, Tensor) else value


def sampled_indices(loader: Any) -> list[int] | None:
    """Return the indices that a loader's sampler chooses from, such as those of a SubsetRandomSampler.

    It is None if the sampler chooses from all. Items with weight 0 of a WeightedRandomSampler are never drawn. The
    sampler may be inside a batch sampler, or inside the dataset of a sampler for several processes.
    """
    queue = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    seen: set[int] = set()
    while queue:
        sampler = queue.pop(0)
        if sampler is None or id(sampler) in seen:
            continue
        seen.add(id(sampler))
        if isinstance(sampler, INDICES):
            parts: Any = (part if np.ndim(part) else [part] for part in sampler)
            return sorted({int(i) for i in chain.from_iterable(parts)})
        indices = getattr(sampler, "indices", None)
        if indices is not None:
            return sorted(int(i) for i in indices)
        weights = weights_of(sampler)
        if weights is not None and not weights.all():
            return weights.nonzero().flatten().tolist()
        held = _attributes(sampler)
        held += [item for _, part in held if isinstance(part, Dataset) for item in _attributes(part)]
        queue += [x for name, x in held if isinstance(x, Sampler) or ("sampler" in name and isinstance(x, INDICES))]
    return None


def weights_of(sampler: Any) -> Tensor | None:
    """Return the weights of a WeightedRandomSampler; None for another sampler."""
    return torch.as_tensor(sampler.weights) if isinstance(sampler, WeightedRandomSampler) else None


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    return list(getattr(thing, "__dict__", {}).items())


def fingerprint(images: Tensor) -> str:
    """Return a hash of images that tells if two sets are the same."""
    return hashlib.sha256(images.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
