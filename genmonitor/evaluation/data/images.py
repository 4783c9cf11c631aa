# SPDX-License-Identifier: Apache-2.0
"""Reading images of a dataset without touching loaders or random states that somebody else uses."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset, default_collate

from genmonitor._io import Progress, no_progress
from genmonitor._validation import check_images, check_tensor, plain
from genmonitor.training_state.data import found_generators, preserve_data
from genmonitor.training_state.rng import preserve_rng, seed_generators

ImageKey = str | int | Callable[[Any], Tensor] | None
NAMES = ("image", "images", "pixel_values")
READ_BATCH = 128
BATCH_BYTES = 33 * 2**20
SOME_VALUES = 2**22
"""Values of the images that tell the range of a set: 16 MiB."""
READ_TWICE = 32
"""Images that are read twice: a flip of one in ten goes unnoticed in one of 500 datasets."""


class StreamedItems(Dataset[Any]):
    """Items taken from a stream, in its order.

    Args:
        items: as a dataset gives them.
    """

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def note(self, name: str) -> str:
        """Return what the user should know of them."""
        return f"{name} can only be streamed, so its first {len(self)} images serve as real images for the run"

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class ImageSource:
    """Images of a dataset by index, read when they are needed through a loader of its own.

    Args:
        data: a Dataset with a length, a DataLoader over one (its collate function and workers are used), a tensor, or
            another source.
        image_key: where the images are in a batch, see `find_images`.
        name: what to call it in errors.

    Raises:
        TypeError: if a tensor holds no real numbers.
        ValueError: if the data has no length or no access by index.
    """

    def __init__(self, data: Any, image_key: ImageKey = None, name: str = "images") -> None:
        if isinstance(data, ImageSource):
            data = data.data
        self.data: Any = data
        if isinstance(data, Tensor):
            data = TensorDataset(check_tensor(name.strip("`"), data))
        self._loader = data if hasattr(data, "dataset") and not isinstance(data, Dataset) else None
        dataset = data.dataset if self._loader is not None else data
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise ValueError(
                f"Expected {name} to be a Dataset with a length and access by index, a DataLoader over one, or a tensor"
                f", but got {type(dataset).__name__}. Give `real_images=` such a set of a few thousand images."
            )
        indices = sampled_indices(data)
        self.dataset: Dataset[Any] = dataset if indices is None else Subset(dataset, list(indices))
        self.image_key = image_key
        self.name = name
        self.notes: tuple[str, ...] = (dataset.note(name),) if isinstance(dataset, StreamedItems) else ()

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def root(self) -> Dataset[Any]:
        """Return the dataset that all Subsets were taken from."""
        dataset = self.dataset
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        return dataset

    def places(self, indices: Sequence[int]) -> list[int]:
        """Return where images are in the dataset that all Subsets were taken from."""
        dataset, places = self.dataset, list(indices)
        while isinstance(dataset, Subset):
            inner = dataset.indices
            dataset, places = dataset.dataset, [inner[i] for i in places]
        return places

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Restore what reading may move, on exit: the global random states and what the data hold."""
        with preserve_rng(), preserve_data({self.name: self.data}):
            yield

    def read(self, indices: Sequence[int] | Tensor, progress: Progress = no_progress) -> Tensor:
        """Read images as float32 on the CPU; integers are scaled from 0..255 to [0, 1].

        Image i is the same whenever it is read, also where the dataset augments at random, unless it draws from a
        random generator that none of its attributes leads to. No generator is moved.

        Args:
            indices: [...], a sequence or a tensor of any shape.
            progress: wraps the batches.

        Returns:
            Images [..., C, H, W].
        """
        if isinstance(indices, Tensor):
            return self.read(indices.flatten().tolist(), progress).unflatten(0, indices.shape)
        if not len(indices):
            return self.read([0])[:0]
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
        """Yield these images in batches, as `read` returns them; iterate it inside `reading`.

        Args:
            indices: those wanted.
            size: images in a batch; None for about 33 MiB: glibc gives such pieces of memory back to the operating
                system, but keeps smaller ones and may not find them again.
            progress: wraps the batches.
        """
        if size is None:
            size = READ_BATCH if len(indices) <= READ_BATCH else BATCH_BYTES // (4 * math.prod(self.shape)) + 1
        shape, places = None, iter(range(0, len(indices), size))
        name = self.name.strip("`") if self.name.startswith("`") else f"images of {self.name}"
        try:
            for batch in progress(self.loader(indices, size), f"reading {self.name}"):
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
            raise ValueError(
                f"Expected {name} of one size, but {which}. Resize them in the dataset's transform."
            ) from error

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """(C, H, W) of the first image."""
        with self.reading():
            (image,) = self.batches([0], 1)
        return tuple(image.shape[1:])

    def some(self) -> Tensor:
        """Read images that are evenly spread over all, as many as a few megabytes hold: they tell the value range."""
        return self.read(range(0, len(self), -(-len(self) * math.prod(self.shape) // SOME_VALUES)))

    def reading_notes(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Return what to say where images are others each time they are read; the first of these are read twice."""
        some = list(indices[:READ_TWICE])
        if torch.equal(self.read(some), self.read(some)):
            return ()
        return (
            f"an image of {self.name} differs each time it is read: the dataset draws from a random generator that "
            "cannot be seeded. Give `real_images=` the images without augmentation",
        )

    def loader(self, indices: Sequence[int], size: int = READ_BATCH) -> DataLoader[Any]:
        """Return a loader of these items in their order; iterate it inside `reading`."""
        options: dict[str, Any] = {"collate_fn": default_collate}
        if self._loader is not None:
            names = ("collate_fn", "num_workers", "worker_init_fn", "multiprocessing_context")
            options = {name: getattr(self._loader, name) for name in names if hasattr(self._loader, name)}
        if len(indices) <= READ_BATCH:  # starting workers would take longer than the batch
            options |= {"num_workers": 0, "multiprocessing_context": None}
        return DataLoader(_FixedItems(self.dataset, indices, self.name), batch_size=size, **options)


class _FixedItems(Dataset[Any]):
    """Items of a dataset, each from random states of its own: what a transform draws is part of the image."""

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
            return self.dataset[index]
        except IndexError as error:
            raise ValueError(
                f"Expected {self.name} to hold {len(self.dataset)} images, as its length says, but there is none at "  # type: ignore[arg-type]
                f"{index}. Let its length be the number of its items."
            ) from error


def sampled_indices(loader: Any) -> list[int] | None:
    """Return the indices that a loader's sampler chooses from, such as those of a SubsetRandomSampler.

    A batch sampler may hold it, or a sampler for several processes, by way of a dataset of what it samples.
    """
    queue = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    seen: set[int] = set()
    while queue:
        sampler = queue.pop(0)
        if sampler is None or id(sampler) in seen:
            continue
        seen.add(id(sampler))
        if (indices := getattr(sampler, "indices", None)) is not None:
            return sorted(int(i) for i in indices)
        held = _attributes(sampler)
        held += [value for part in held if isinstance(part, Dataset) for value in _attributes(part)]
        queue += [value for value in held if isinstance(value, Sampler)]
    return None


def _attributes(thing: Any) -> list[Any]:
    return list(getattr(thing, "__dict__", {}).values())


def find_images(batch: Any, key: ImageKey) -> Tensor:
    """Find the images of a batch.

    Args:
        batch: what a loader yields.
        key: None for the batch itself if it is a tensor, the first tensor of 4 or else of 3 dimensions of a tuple, or
            the entry "image", "images" or "pixel_values" of a dictionary, else its only tensor of 4 or else of 3
            dimensions; else a key, an index or a callable.

    Returns:
        Images [N, C, H, W]; gray ones [N, H, W] get a channel.

    Raises:
        ValueError: if there are none.

    Example:
        >>> find_images((torch.tensor([7]), torch.zeros(1, 8, 8)), None).shape
        torch.Size([1, 1, 8, 8])
    """
    found: Any = None
    if key is not None:
        found = look_up(batch, key, "image_key", "images")
    elif isinstance(batch, Tensor):
        found = batch
    elif isinstance(batch, Mapping):
        alone = [tensors for tensors in _by_dimensions(batch.values()) if tensors][:1]
        found = next((batch[name] for name in NAMES if name in batch), None)
        found = alone[0][0] if found is None and alone and len(alone[0]) == 1 else found
    elif isinstance(batch, Sequence):
        found = next(chain(*_by_dimensions(batch)), None)
        alike = [
            i for i, x in enumerate(batch) if isinstance(x, Tensor) and found is not None and x.shape == found.shape
        ]
        if len(alike) > 1 and found.ndim == 4:
            raise ValueError(
                f"Expected one tensor of images in a batch, but got {describe_batch(batch)}. Give `image_key=` the "
                f"index of those that the generator is to learn, {' or '.join(map(str, alike))}, or `real_images=`."
            )
    if not isinstance(found, Tensor) or found.ndim not in (3, 4):
        raise ValueError(
            f"Expected images [N, C, H, W] in a batch, but got {describe_batch(batch if found is None else found)}. "
            "Give `image_key=` a key, an index or a callable from the batch to its images, or `real_images=`."
        )
    return plain(found)[:, None] if found.ndim == 3 else plain(found)


def _by_dimensions(parts: Iterable[Any]) -> tuple[list[Tensor], ...]:
    """Return the tensors of four dimensions, then those of three: gray images, but also embeddings of texts."""
    tensors = [x for x in parts if isinstance(x, Tensor)]
    return tuple([x for x in tensors if x.ndim == ndim] for ndim in (4, 3))


def look_up(batch: Any, key: Any, argument: str, wanted: str) -> Any:
    """Return what a key, an index or a callable leads to in a batch; raise ValueError where it leads nowhere."""
    if callable(key):
        return key(batch)
    try:
        return batch[key]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"Expected `{argument}`={key!r} to lead to the {wanted} of a batch, but got {describe_batch(batch)}."
        ) from error


def describe_batch(batch: Any) -> str:
    """Say what kind of batch it is, for errors."""
    if isinstance(batch, Tensor):
        return f"a tensor of shape {list(batch.shape)}"
    if isinstance(batch, Mapping):
        return f"a dictionary with the keys {list(batch)}"
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        parts = [*map(describe_batch, batch[:5]), *(["…"] if len(batch) > 5 else [])]
        return f"a {type(batch).__name__} of {', '.join(parts)}"
    return type(batch).__name__


def fingerprint(images: Tensor) -> str:
    """Return a hash of images, to tell whether two sets are the same."""
    return hashlib.sha256(images.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
