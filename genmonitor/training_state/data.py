# SPDX-License-Identifier: Apache-2.0
"""Data that a training reads: changes by the monitor's own reading are undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from torch import Tensor

from genmonitor._io import warn
from genmonitor.training_state.snapshot import MAX_BYTES, Snapshot


class _Reading(Snapshot):
    """State of data, remembered when a block first reads them."""

    def __init__(self) -> None:
        super().__init__({}, MAX_BYTES, data=True)
        self._data_read: list[Any] = []

    def read(self, data: Mapping[str, Any]) -> None:
        """Remember the state of data that are about to be read."""
        for name, thing in data.items():
            if any(thing is known for known in self._data_read):
                continue
            self._data_read.append(thing)
            self.add(_parts(name, thing))


_reading: ContextVar[_Reading | None] = ContextVar("_reading", default=None)


@contextmanager
def preserve_data(data: Mapping[str, Any], report: Callable[[str], Any] = warn) -> Iterator[None]:
    """Restore datasets and their parts on exit: counters, caches, positions and generators.

    A block inside another restores nothing, since the outermost one does.

    Args:
        data: Datasets, loaders or other sources, by their names in messages.
        report: Function that gets a sentence on changes that cannot be undone, if there are any.

    Raises:
        ValueError: Inside the block, if the next item of an iterator that cannot start again is requested.

    Example:
        >>> class Counting(list):
        ...     count = 0
        ...     def __getitem__(self, index):
        ...         self.count += 1
        ...         return super().__getitem__(index)
        >>> dataset = Counting([7])
        >>> with preserve_data({"the data": dataset}):
        ...     dataset[0]
        7
        >>> dataset.count
        0
    """
    if (outer := _reading.get()) is not None:
        outer.read(data)
        outer.is_read = True
        yield
        return
    reading = _Reading()
    token = _reading.set(reading)
    try:
        reading.read(data)
        yield
    finally:
        _reading.reset(token)
        if stuck := reading.restore()[1]:
            report(
                f"reading real images changed {', '.join(stuck)}, which cannot be put back, so the training may differ "
                "from one without the monitor. Give `real_images=` a Dataset or tensor of its own"
            )


def values_preserved() -> list[Any]:
    """Return the tensors and arrays of the data that the surrounding block preserves."""
    reading = _reading.get()
    return [] if reading is None else [x for x in reading.held if isinstance(x, (Tensor, np.ndarray))]


def found_generators() -> list[Any]:
    """Return the random generators of the data that the surrounding block preserves."""
    reading = _reading.get()
    return [] if reading is None else reading.generators


def _parts(name: str, thing: Any) -> dict[str, Any]:
    """Return the parts called when data are read, by name: functions of a loader, datasets inside others."""
    parts: dict[str, Any] = {}
    queue = [(name, thing)]
    while queue:
        name, thing = queue.pop(0)
        if thing is None or isinstance(thing, Tensor) or any(thing is part for part in parts.values()):
            continue
        if hasattr(thing, "dataset") and hasattr(thing, "collate_fn"):  # a loader
            queue += [(f"{name}.dataset", thing.dataset), (f"{name}.collate_fn", thing.collate_fn)]
            continue
        parts[name] = thing
        queue.append((f"{name}.dataset", getattr(thing, "dataset", None)))
        several = getattr(thing, "datasets", ())
        several = list(several.values()) if isinstance(several, Mapping) else several
        if isinstance(several, (list, tuple)):
            queue += [(f"{name}.datasets[{index}]", part) for index, part in enumerate(several)]
    return parts
