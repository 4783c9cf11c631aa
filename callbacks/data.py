# SPDX-License-Identifier: Apache-2.0
"""Reading real images without touching the training's own loaders."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from genmonitor._validation import check_images
from genmonitor.callbacks.generators import generators_in, generators_kept, seed_generators
from genmonitor.callbacks.guard import random_states_kept

ImageKey = str | int | Callable[[Any], Tensor] | None
NAMES = ("image", "images", "pixel_values")
READ_BATCH = 128


class ImageSource:
    """Images of a dataset by index, read through a loader of its own.

    Args:
        data: a Dataset with a length, a DataLoader over one (its collate function and workers are used) or a tensor.
        image_key: where the images are in a batch, see `find_images`.
        name: what to call it in errors.

    Raises:
        ValueError: if the data has no length or no access by index.
    """

    def __init__(self, data: Any, image_key: ImageKey, name: str) -> None:
        if isinstance(data, Tensor):
            data = TensorDataset(data)
        self._loader = data if hasattr(data, "dataset") and not isinstance(data, Dataset) else None
        dataset = data.dataset if self._loader is not None else data
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise ValueError(
                f"Expected {name} to be a Dataset with a length and access by index, a DataLoader over one, or a tensor"
                f", but got {type(dataset).__name__}. Give `real_images=` such a set of a few thousand images."
            )
        indices = getattr(getattr(data, "sampler", None), "indices", None)  # those of a SubsetRandomSampler
        self.dataset: Dataset[Any] = dataset if indices is None else Subset(dataset, list(indices))
        self.image_key = image_key
        self.name = name

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def origin(self) -> tuple[Dataset[Any], Sequence[int]]:
        """Return the dataset that all Subsets were taken from, and where each image is in it."""
        dataset, indices = self.dataset, list(range(len(self)))
        while isinstance(dataset, Subset):
            inner = dataset.indices
            dataset, indices = dataset.dataset, [inner[i] for i in indices]
        return dataset, indices

    def read(self, indices: Sequence[int], progress: Callable[[Any], Any] = iter) -> Tensor:
        """Read images [len(indices), C, H, W] as float32 on the CPU; integers are scaled from 0..255 to [0, 1].

        Image i is the same whenever it is read, also where the dataset augments at random, unless it draws from a
        random generator that none of its attributes leads to. No generator is moved.
        """
        out: list[Tensor] = []
        with random_states_kept(), generators_kept(generators_in(self.dataset)):
            for batch in progress(self.loader(indices)):
                images = find_images(batch, self.image_key)
                shape = tuple(out[0].shape[1:]) if out else None
                out.append(check_images(f"images of {self.name}", images, shape).float())
        read = sum(map(len, out))
        if read != len(indices):
            raise ValueError(
                f"Expected one image from each of {len(indices)} items of {self.name}, but got {read}. "
                "Let `image_key=` lead to all images of a batch [N, C, H, W]."
            )
        return torch.cat(out)

    def loader(self, indices: Sequence[int]) -> DataLoader[Any]:
        """Return a loader of these items in their order; reading it moves the random states."""
        settings: dict[str, Any] = {"collate_fn": default_collate}
        if self._loader is not None:
            names = ("collate_fn", "num_workers", "worker_init_fn", "multiprocessing_context")
            settings = {name: getattr(self._loader, name) for name in names if hasattr(self._loader, name)}
        if len(indices) <= READ_BATCH:  # starting workers would take longer than the batch
            settings |= {"num_workers": 0, "multiprocessing_context": None}
        return DataLoader(_Fixed(self.dataset, indices, self.name), batch_size=READ_BATCH, **settings)


class _Fixed(Dataset[Any]):
    """Items of a dataset, each from random states of its own: what a transform draws is part of the image."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int], name: str) -> None:
        self.dataset, self.indices, self.name = dataset, indices, name
        self._generators = generators_in(dataset)

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


def find_images(batch: Any, key: ImageKey) -> Tensor:
    """Find the images of a batch.

    Args:
        batch: what a loader yields.
        key: None for the batch itself if it is a tensor, the first tensor of 4 or else of 3 dimensions of a tuple, or
            the entry "image", "images" or "pixel_values" of a dictionary; else a key, an index or a callable.

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
        found = next((batch[name] for name in NAMES if name in batch), None)
    elif isinstance(batch, Sequence):
        # four dimensions first: three are those of gray images, but also of a text's embedding
        tensors = [x for x in batch if isinstance(x, Tensor)]
        found = next((x for ndim in (4, 3) for x in tensors if x.ndim == ndim), None)
    if not isinstance(found, Tensor) or found.ndim not in (3, 4):
        raise ValueError(
            f"Expected images [N, C, H, W] in a batch, but got {described(batch if found is None else found)}. "
            "Give `image_key=` a key, an index or a callable from the batch to its images, or `real_images=`."
        )
    return found[:, None] if found.ndim == 3 else found


def look_up(batch: Any, key: Any, argument: str, wanted: str) -> Any:
    """Return what a key, an index or a callable leads to in a batch; raise ValueError where it leads nowhere."""
    if callable(key):
        return key(batch)
    try:
        return batch[key]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"Expected `{argument}`={key!r} to lead to the {wanted} of a batch, but got {described(batch)}."
        ) from error


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


def described(batch: Any) -> str:
    """Say what kind of batch it is, for errors."""
    if isinstance(batch, Tensor):
        return f"a tensor of shape {list(batch.shape)}"
    if isinstance(batch, Mapping):
        return f"a dictionary with the keys {list(batch)}"
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        parts = [*map(described, batch[:5]), *(["…"] if len(batch) > 5 else [])]
        return f"a {type(batch).__name__} of {', '.join(parts)}"
    return type(batch).__name__
