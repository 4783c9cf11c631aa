# SPDX-License-Identifier: Apache-2.0
"""One set of samples for all monitors of a Trainer with the same request at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from genmonitor.training_state.fingerprints import fingerprint_of

# by Trainer and request: images by index
_kept: WeakKeyDictionary[Any, dict[Hashable, dict[int, Tensor]]] = WeakKeyDictionary()


def draw_once(trainer: Any, request: Hashable, indices: list[int], draw: Callable[[list[int]], Tensor]) -> Tensor:
    """Return the samples of these indices, drawing those not yet drawn for the same request.

    Args:
        trainer: Trainer whose monitors share samples.
        request: All that a sample depends on, except its index.
        indices: Indices of the samples.
        draw: Function from indices to samples [len(indices), C, H, W]. It is called even if none is missing, since
            other processes may need this one for theirs.

    Returns:
        Images [len(indices), C, H, W], which own their memory.
    """
    kept = _kept.setdefault(trainer, {}).setdefault(request, {})
    missing = [i for i in indices if i not in kept]
    images = draw(missing)
    kept.update(zip(missing, images, strict=True))
    return torch.stack([kept[i] for i in indices]) if indices else images


def clear(trainer: Any) -> None:
    """Free a Trainer's samples."""
    _kept.pop(trainer, None)


def weights_fingerprint(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    """Return the fingerprints of this process's part of each parameter and buffer."""
    return tuple(fingerprint_of(x) for x in chain(module.parameters(), module.buffers()))
