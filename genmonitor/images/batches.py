# SPDX-License-Identifier: Apache-2.0
"""Batches of a loader: the position of their images, and their description in errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from genmonitor._validation import plain

ImageKey = str | int | Callable[[Any], Tensor] | None


def find_images(batch: Any, key: ImageKey) -> Tensor:
    """Find the images of a batch.

    Args:
        batch: Batch of a loader.
        key: Key, index or callable. None is the batch itself if it is a tensor, and the first tensor of 4, or else 3,
            dimensions of a tuple. For a dictionary it is the entry "image", "images" or "pixel_values", else the only
            tensor of 4, or else 3, dimensions.

    Returns:
        Images [N, C, H, W]; gray ones [N, H, W] get a channel.

    Raises:
        ValueError: If there are none, several tensors of one shape in a tuple, or several of these entries.

    Example:
        >>> import torch
        >>> find_images((torch.tensor([7]), torch.zeros(1, 8, 8)), None).shape
        torch.Size([1, 1, 8, 8])
    """
    found: Any = None
    alike: list[Any] = []
    if key is not None:
        found = look_up(batch, key, "image_key", "images")
    elif isinstance(batch, Tensor):
        found = batch
    elif isinstance(batch, Mapping):
        named = [name for name in ("image", "images", "pixel_values") if name in batch]
        alike = [name for name in named if isinstance(batch[name], Tensor)]
        tensors = [batch[name] for name in alike or named[:1]] or _like_images(batch.values())
        found = tensors[0] if len(tensors) == 1 else None
    elif isinstance(batch, Sequence):
        tensors = _like_images(batch)
        found = tensors[0] if tensors else None
        alike = [i for i, x in enumerate(batch) if isinstance(x, Tensor) and tensors and x.shape == tensors[0].shape]
    if len(alike) > 1:
        raise ValueError(
            f"Expected one tensor of images in a batch, but got {describe_batch(batch)}. Give `image_key=` the key or "
            f"index of those that the generator is to learn, {' or '.join(map(repr, alike))}, or `real_images=`."
        )
    if not isinstance(found, Tensor) or found.ndim not in (3, 4):
        raise ValueError(
            f"Expected images [N, C, H, W] in a batch, but got {describe_batch(batch if found is None else found)}. "
            "Give `image_key=` a key, an index or a callable from the batch to its images, or `real_images=`."
        )
    return plain(found)[:, None] if found.ndim == 3 else plain(found)


def _like_images(parts: Iterable[Any]) -> list[Tensor]:
    """Return the tensors of four dimensions, or else of three, which are gray images or embeddings of texts."""
    tensors = [x for x in parts if isinstance(x, Tensor)]
    return [x for x in tensors if x.ndim == 4] or [x for x in tensors if x.ndim == 3]


def look_up(batch: Any, key: Any, argument: str, wanted: str) -> Any:
    """Return the part of a batch for a key, an index or a callable; raise ValueError if there is none."""
    if callable(key):
        return key(batch)
    try:
        return batch[key]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"Expected `{argument}`={key!r} to lead to the {wanted} of a batch, but got {describe_batch(batch)}."
        ) from error


def describe_batch(batch: Any) -> str:
    """Describe the kind of a batch, for errors."""
    if isinstance(batch, Tensor):
        return f"a tensor of shape {list(batch.shape)}"
    if isinstance(batch, Mapping):
        return f"a dictionary with the keys {list(batch)}"
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        parts = [*map(describe_batch, batch[:5]), *(["…"] if len(batch) > 5 else [])]
        return f"a {type(batch).__name__} of {', '.join(parts)}"
    return type(batch).__name__
