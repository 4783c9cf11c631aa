# SPDX-License-Identifier: Apache-2.0
"""Images of data that can only be streamed: the first ones of a pass, kept as a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from genmonitor._io import Progress, no_progress
from genmonitor.distributed import Collective
from genmonitor.images.batches import ImageKey, find_images
from genmonitor.images.image_set import READ_BATCH, StreamedItems, iterating
from genmonitor.training_state.data import found_generators, preserve_data
from genmonitor.training_state.rng import preserve_rng, seed_everything, seed_generators

MAX_ITEMS = 5000
MAX_BYTES = 2**28
"""Largest number of images to take, and their largest size in memory: 256 MiB."""

_taken: WeakKeyDictionary[Any, StreamedItems] = WeakKeyDictionary()
"""Items taken from each stream, for all monitors of a run."""


def forget() -> None:
    """Drop the images at the start of a run, since the data may have changed since the last one."""
    _taken.clear()


def is_stream(data: Any) -> bool:
    """Return True if data have no access by index: an IterableDataset, a loader of one, or any other iterable.

    Example:
        >>> is_stream(DataLoader([1, 2, 3])), is_stream(map(str, [1]))
        (False, True)
    """
    dataset = getattr(data, "dataset", data)
    if isinstance(dataset, IterableDataset):
        return True
    return not isinstance(dataset, Tensor) and not hasattr(dataset, "__getitem__") and hasattr(dataset, "__iter__")


def streams_taken(image_key: ImageKey, comm: Collective, progress: Progress = no_progress) -> Callable[[Any, str], Any]:
    """Return a function from data and their name to data with access by index, for `ImageSet`.

    From data that can only be streamed, rank zero takes the first images for all processes, once they are needed.
    """

    def with_index(data: Any, name: str) -> Any:
        if not is_stream(data):
            return data
        if comm.any_true(data not in _taken):
            _taken[data] = comm.from_rank_zero(lambda: take_items(data, image_key, name, progress))
        return _taken[data]

    return with_index


def take_items(data: Any, image_key: ImageKey, name: str, progress: Progress = no_progress) -> StreamedItems:
    """Take the first items of a separate pass over a stream: 5000, or as many as 256 MiB hold.

    The pass has its own random states and uses no existing iterator. The state of the stream, such as its position, is
    restored; an iterator in it that cannot start again is refused.

    Args:
        data: An IterableDataset, a loader over one, or another iterable that can be iterated more than once.
        image_key: Position of the images in a batch, see `find_images`.
        name: Name in errors.
        progress: Progress bar over the batches.

    Raises:
        ValueError: If it is an iterator, which this would exhaust, or holds no images.
    """
    dataset = getattr(data, "dataset", data)
    if isinstance(data, Iterator) or isinstance(dataset, Iterator):
        raise ValueError(
            f"Expected {name} as data that can be read more than once, but got an iterator, "
            f"{type(data).__name__}. Give the dataset or loader that it came from."
        )
    items: list[Any] = []
    size = 0
    with preserve_rng(), preserve_data({name: data}):
        seed_everything(0)
        seed_generators(found_generators(), 0)
        with iterating(_own_loader(data)) as batches:
            for batch in progress(batches, f"the first images of {name}"):
                images = find_images(batch, image_key)
                items += [_item(batch, index, len(images)) for index in range(len(images))]
                size += images.numel() * images.element_size()
                if len(items) >= MAX_ITEMS or size >= MAX_BYTES:
                    break
    return StreamedItems(items[:MAX_ITEMS])


def _own_loader(data: Any) -> Any:
    """Return a loader with its own iterator, since one with persistent workers has a single iterator."""
    if isinstance(data, IterableDataset):
        return DataLoader(data, batch_size=READ_BATCH)
    if not isinstance(data, DataLoader):
        return data
    names = ("batch_size", "collate_fn", "num_workers", "worker_init_fn", "multiprocessing_context")
    return DataLoader(data.dataset, **{name: getattr(data, name) for name in names})


def _item(batch: Any, index: int, n: int) -> Any:
    """Return item `index` of a batch of n in the structure of the batch; parts common to all items stay unchanged."""
    if isinstance(batch, Tensor):
        # a copy, since a view would keep the whole batch and send it to the other processes
        return batch[index].clone() if batch.ndim and len(batch) == n else batch
    if isinstance(batch, Mapping):
        return {name: _item(part, index, n) for name, part in batch.items()}
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        if len(batch) == n and not any(isinstance(part, Tensor) for part in batch):
            return batch[index]
        return tuple(_item(part, index, n) for part in batch)
    return batch
