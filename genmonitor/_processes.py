# SPDX-License-Identifier: Apache-2.0
"""Agreement between processes of torch.distributed on choices, and on shape and dtype before tensors are sent."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import reduce
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from genmonitor._stop import StopEvaluation

_T = TypeVar("_T")
Kind = tuple[tuple[int, ...], torch.dtype]
"""Shape of one row, and dtype."""

_ALONE: ContextVar[bool] = ContextVar("_ALONE", default=False)


def several_processes() -> bool:
    """Return True if torch.distributed connects this process to others, unless it is `alone`."""
    return not _ALONE.get() and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def alone() -> Iterator[None]:
    """Let metrics ignore the other processes inside the block, so that these need not take part."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def from_rank_zero(choose: Callable[[], _T]) -> _T:
    """Return rank zero's choice on every process, or raise its error on every process, so that none waits for it."""
    return made_by_rank_zero(choose, dist.get_rank(), broadcast) if several_processes() else choose()


def made_by_rank_zero(make: Callable[[], _T], rank: int, broadcast: Callable[[Any], Any]) -> _T:
    """Make something on rank zero alone; return it, or raise its error, on every process.

    Args:
        make: Function that makes it, called on rank zero.
        rank: Rank of this process.
        broadcast: Function from a value to that of rank zero; every process calls it.
    """
    made: Any = None
    if rank == 0:
        try:
            made = make()
        except (Exception, StopEvaluation) as error:
            broadcast(portable(error))
            raise
    received = broadcast(made)
    if isinstance(received, (Exception, StopEvaluation)):
        raise received
    return received


def broadcast(value: Any) -> Any:
    """Return the value of the first process of torch.distributed on every process."""
    sent = [value]
    dist.broadcast_object_list(sent, src=0)
    return sent[0]


def portable(error: Exception | StopEvaluation) -> Exception | StopEvaluation:
    """Return an error that can be sent to other processes: the same if it can be pickled, else its type and text."""
    with suppress(Exception):
        if str(pickle.loads(pickle.dumps(error))) == str(error):  # noqa: S301 -- pickled in the same breath, no file
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def gather_rows(rows: Tensor) -> Tensor:
    """Return the rows of all processes [N, ...], in the order of the ranks.

    They may have different numbers and dtypes; a process without rows need not know the shape of a row.

    Raises:
        ValueError: On every process, if the shapes of a row differ.
    """
    from torchmetrics.utilities.distributed import gather_all_tensors

    own = (tuple(rows.shape[1:]), rows.dtype) if len(rows) else None
    kind = agreed("rows", _gathered(own))
    if kind is not None:
        rows = rows.to(kind[1]) if len(rows) else rows.new_empty(0, *kind[0], dtype=kind[1])
    return torch.cat(gather_all_tensors(rows.contiguous()))


def agreed_kinds(own: dict[str, Kind | None], group: Any = None) -> dict[str, Kind | None]:
    """Return the shape and dtype of each state over all processes, None if no process has samples.

    Args:
        own: States of this process; None where they have no samples.
        group: Group of processes; None for all.

    Raises:
        ValueError: On every process, if the shapes differ.
    """
    of_all = _gathered(own, group)
    return {name: agreed(name, [kinds[name] for kinds in of_all]) for name in own}


def agreed(name: str, kinds: Sequence[Kind | None]) -> Kind | None:
    """Return the common shape and the widest dtype of all processes, None if none has samples."""
    known = {rank: kind for rank, kind in enumerate(kinds) if kind is not None}
    if not known:
        return None
    first = min(known)
    shape = known[first][0]
    for rank, (other, _) in known.items():
        if other != shape:
            raise ValueError(
                f"Expected `{name}` of one shape on every process, but got {list(shape)} per sample on process {first} "
                f"and {list(other)} on process {rank}. Give every process samples of the same shape."
            )
    return shape, reduce(torch.promote_types, (dtype for _, dtype in known.values()))


def _gathered(value: Any, group: Any = None) -> list[Any]:
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group)
    return values
