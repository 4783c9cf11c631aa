# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of tensors, computed on their device: numbers that change with any bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

WORD, BLOCK = 8, 2**13
"""Bytes that are summed as one integer, and bytes per row of these."""
MOST = 2**30
"""Largest number of bytes to read of a tensor; of larger ones evenly spread blocks."""


def values_in_memory(thing: Any) -> list[Any]:
    """Return the values of a tensor or an array in local memory: bytes, or the array itself.

    For a tensor split over several processes these are the values of this process.
    """
    kind = type(thing)
    if issubclass(kind, np.ndarray):
        return [thing] if thing.flags.writeable else []
    if not issubclass(kind, Tensor) or is_lazy(thing) or thing.is_meta:
        return []
    if hasattr(thing, "__tensor_flatten__"):  # around other tensors
        return [x for name in thing.__tensor_flatten__()[0] for x in values_in_memory(getattr(thing, name))]
    return [_bytes_of(thing.detach())] if thing.layout is torch.strided and thing.numel() else []


def fingerprint(values: Any) -> int:
    """Return a number that identifies bytes or the values of an array.

    Sums of rows and columns are weighted by position, so swaps are detected too.

    Args:
        values: Bytes, uint8 [n], from `values_in_memory`, or an array.

    Example:
        >>> fingerprint(torch.ones(3000).view(torch.uint8)) == fingerprint(torch.ones(3000).view(torch.uint8))
        True
    """
    if isinstance(values, np.ndarray):
        return hash(values.flat[:: values.nbytes // MOST + 1].tobytes())
    size = len(values)
    start = min(-values.storage_offset() % WORD, size)
    end = size - (size - start) % BLOCK
    blocks = values.narrow(0, start, end - start).view(torch.int64).view(-1, BLOCK // WORD)
    blocks = blocks[:: size // MOST + 1] if size > MOST else blocks
    rest = (values.narrow(0, *part).to(torch.int64) for part in ((0, start), (end, size - end)))
    sums = torch.cat([blocks.sum(1), blocks.sum(0), *rest]).cpu()  # at once: a GPU waits at each transfer
    return int((sums * torch.arange(3, 2 * len(sums) + 3, 2)).sum())


def are_equal(values: Tensor, others: Tensor) -> bool:
    """Return True if bytes on the CPU are equal."""
    whole = len(values) % WORD == 0 and values.storage_offset() % WORD == 0
    return torch.equal(*(x.view(torch.int64) if whole else x for x in (values, others)))


def fingerprint_of(tensor: Tensor) -> tuple[int, ...]:
    """Return the fingerprints of the part of a tensor on this process."""
    return tuple(fingerprint(values) for values in values_in_memory(tensor.detach()))


def _bytes_of(tensor: Tensor) -> Tensor:
    """Return the memory from the first number of a tensor to its last, without repetitions."""
    if tensor.is_contiguous() and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg()):
        return tensor.view(-1).view(torch.uint8)
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    place = tensor.storage_offset() * tensor.element_size(), ((last + 1) * tensor.element_size(),), (1,)
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage(), *place)
