# SPDX-License-Identifier: Apache-2.0
"""Work in pieces that fit a memory budget or a processor's cache of rows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torch import Tensor

from genmonitor._stop import check_stop

CACHE = 2**22
"""Bytes that stay in a processor's cache between two passes: 4 MiB."""

CONTAINER = Path("/sys/fs/cgroup")
"""Folder with the limits of a container."""

MEMORY_BUDGET = 2**29
"""Bytes that a temporary may take: 512 MiB. Larger work is done a block of rows at a time."""

PROCESSOR_TIMES = Path("/proc/stat")
"""File of Linux with the times of its processors."""


def row_blocks(rows: int, bytes_per_entry: int, columns: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut the rows of a matrix into blocks within the memory budget; for a symmetric one sixteen of at least 256 rows.

    Each block costs a few products outside the upper triangle, and products of few rows are slow.

    Args:
        rows: Number of rows of the matrix.
        bytes_per_entry: Number of bytes held at once per entry of a block.
        columns: Number of columns; None for a symmetric matrix, of which only the upper triangle is needed.

    Yields:
        Start and stop of each block.

    Example:
        >>> list(row_blocks(5, bytes_per_entry=4, columns=7))
        [(0, 5)]
    """
    within_budget = max(1, MEMORY_BUDGET // (bytes_per_entry * (columns or rows)))
    step = min(within_budget, max(1, rows)) if columns else min(within_budget, max(256, -(-rows // 16)))
    for start in range(0, rows, step):
        check_stop()
        yield start, min(start + step, rows)


def in_cache(count: int, bytes_each: int, cache: int = CACHE) -> Iterator[slice]:
    """Cut items of a size in bytes into groups that fit in the cache.

    Example:
        >>> list(in_cache(5, bytes_each=4, cache=8))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    step = max(1, cache // bytes_each)
    for start in range(0, count, step):
        check_stop()
        yield slice(start, start + step)


def rows_in_cache(matrix: Tensor) -> int:
    """Return the number of rows of a matrix that fit in the cache or, on a GPU, in the memory budget."""
    held = CACHE if matrix.device.type == "cpu" else MEMORY_BUDGET
    return max(1, held // (matrix.element_size() * max(1, matrix.shape[1])))


def mirrored(size: int, blocks: Iterable[tuple[int, int, Tensor]], like: Tensor) -> Tensor:
    """Return a symmetric matrix [size, size] from blocks of its upper triangle.

    Args:
        size: Size of the matrix.
        blocks: Blocks of rows: the first row, the row after the last, and the rows from their diagonal on. Every row
            occurs once.
        like: Tensor with the dtype and device of the entries.

    Example:
        >>> import torch
        >>> mirrored(2, [(0, 1, torch.tensor([[1, 2]])), (1, 2, torch.tensor([[3]]))], torch.tensor(0))
        tensor([[1, 2],
                [2, 3]])
    """
    out = like.new_empty(size, size)
    for start, stop, block in blocks:
        out[start:stop, start:] = block
        out[stop:, start:stop] = block[:, stop - start :].T
    return out


def processors() -> int:
    """Return the number of processors that this process may use, including a container's quota, unlike torch."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = CONTAINER / "cpu.max"
    quota, _, period = limit.read_text().partition(" ") if limit.exists() else ("max", "", "")
    return max(1, min(count, int(quota) // int(period))) if quota.isdigit() else count


def free_processors() -> int:
    """Return the number of processors that this process may use and that are idle for a tenth of a second.

    It is at least one, or all of them if the system does not report it.
    """
    allowed, before = processors(), _processor_times()
    time.sleep(0.1)
    idle, total = (now - then for now, then in zip(_processor_times(), before, strict=True))
    return max(1, min(allowed, round((os.cpu_count() or 1) * idle / total))) if total > 0 else allowed


def _processor_times() -> tuple[int, int]:
    """Return the idle and the total time of all processors so far, in ticks; zeros if unknown."""
    if not PROCESSOR_TIMES.exists():
        return 0, 0
    ticks = [int(x) for x in PROCESSOR_TIMES.read_text().split(maxsplit=9)[1:9]]
    return ticks[3] + ticks[4], sum(ticks)  # idle, and waiting for a disk
