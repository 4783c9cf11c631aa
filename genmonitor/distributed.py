# SPDX-License-Identifier: Apache-2.0
"""Processes that evaluate together: one, those of torch.distributed, or others that can agree and broadcast."""

from __future__ import annotations

import re
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from genmonitor._processes import alone, broadcast, gather_rows, made_by_rank_zero
from genmonitor._stop import StopEvaluation, stops_alone, told_to_stop

_T = TypeVar("_T")


ENDS = "ends by "
"""Beginning of the reason of a process that ends, instead of one whose part of the work failed."""

_CALLS: Counter[tuple[str, int]] = Counter()


class MissingProcessError(RuntimeError):
    """A call that every process must make was not made by all."""


class FailedElsewhereError(RuntimeError):
    """Another process failed in the same step."""


class Collective(ABC):
    """A group of processes. Every process must make the same calls in the same order.

    Attributes:
        rank: Index of this process, from 0.
        world_size: Number of processes.
    """

    rank: int
    world_size: int

    @abstractmethod
    def all_true(self, flag: bool) -> bool:
        """Return True if the flag is true on every process."""

    @abstractmethod
    def broadcast(self, value: Any) -> Any:
        """Return rank zero's value on every process."""

    def only_these(self) -> AbstractContextManager[None]:
        """Let metrics gather only the samples of these processes inside the block."""
        return nullcontext()

    def any_true(self, flag: bool) -> bool:
        """Return True if the flag is true on any process."""
        return not self.all_true(not flag)

    @contextmanager
    def all_ranks_or_none(self, alone: bool = False) -> Iterator[None]:
        """Run the block on every process, or raise on every process, so that none waits for one that failed.

        The block may communicate only before any part that can fail on a single process.

        Args:
            alone: True if the block does not communicate, so that a process may leave it immediately when told to stop.

        Raises:
            FailedElsewhereError: If only other processes failed.
            StopEvaluation: If one was told to stop.
            SystemExit: If another process is about to end, by `sys.exit` for example; then this one cannot go on.
        """
        failure: BaseException | None = None
        try:
            with _all_there(), stops_alone(alone):
                yield
        except BaseException as error:
            if _comes_at_any_time(error):
                raise
            failure = error
        failure = StopEvaluation() if failure is None and told_to_stop() else failure
        if self.all_true(failure is None):
            return
        ends = "" if isinstance(failure, (Exception, StopEvaluation)) else ENDS
        reasons = self.gather(None if failure is None else f"{ends}{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        if any(reason == f"{StopEvaluation.__name__}: " for reason in reasons):
            raise StopEvaluation
        rank, reason = next((rank, reason) for rank, reason in enumerate(reasons) if reason is not None)
        if reason.startswith(ENDS):
            raise SystemExit(f"Another process ends, so this one ends too. Process {rank} {reason}")
        raise FailedElsewhereError(f"Another process failed, so this one stops here too. Process {rank}: {reason}")

    def from_rank_zero(self, make: Callable[[], _T]) -> _T:
        """Make something on rank zero alone and return it, or raise its error, on every process."""

        def made() -> _T:
            with _all_there(), stops_alone(True):  # the others wait for the broadcast in any case
                return make()

        return made_by_rank_zero(made, self.rank, self.broadcast)

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, in the order of the ranks."""
        values = [value] * self.world_size
        if self.world_size > 1:
            with _all_there():
                dist.all_gather_object(values, value)
        return values

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes [N, ...], in the order of the ranks.

        Numbers and dtypes of the rows may differ, and a process without rows need not know their shape.

        Raises:
            ValueError: On every process, if the shapes of a row differ.
        """
        if self.world_size == 1:
            return rows
        with _all_there():
            return gather_rows(rows)

    def rank_indices(self, n: int) -> range:
        """Return the indices of n items that this process handles, consecutive ones in the order of the ranks.

        Example:
            >>> SingleProcess().rank_indices(3)
            range(0, 3)
        """
        return range(n * self.rank // self.world_size, n * (self.rank + 1) // self.world_size)


class SingleProcess(Collective):
    """One process alone."""

    rank = 0
    world_size = 1

    def only_these(self) -> AbstractContextManager[None]:
        """Let metrics gather nothing inside the block."""
        return alone()

    def all_true(self, flag: bool) -> bool:
        """Return the flag."""
        return flag

    def broadcast(self, value: Any) -> Any:
        """Return the value."""
        return value


class DistributedProcesses(Collective):
    """The processes of torch.distributed, started by torchrun, Lightning Fabric or accelerate."""

    def __init__(self) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    def all_true(self, flag: bool) -> bool:
        """Return True if the flag is true on every process."""
        return all(self.gather(flag))

    def broadcast(self, value: Any) -> Any:
        """Return rank zero's value on every process."""
        with _all_there():
            return broadcast(value)


def _comes_at_any_time(error: BaseException) -> bool:
    """Return True for an interruption by a signal, possibly in the middle of a collective, that wants an answer now."""
    stopped = isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM
    return stopped or isinstance(error, (KeyboardInterrupt, GeneratorExit))


@contextmanager
def _all_there() -> Iterator[None]:
    """Say in words that another process has ended, which a backend tells by addresses and lines of its code."""
    try:
        yield
    except BaseException as error:
        if _comes_at_any_time(error):
            with suppress(Exception):  # of one process alone
                _store().set(f"genmonitor/ended/{dist.get_rank()}", type(error).__name__)
        if not isinstance(error, RuntimeError) or not re.search("(closed|reset) by peer", str(error)):
            raise
        rank = dist.get_rank()
        raise MissingProcessError(
            f"Process {rank} waited for another, which has ended, so it stops here too. "
            f"{_ends() or 'The other may have said why.'}"
        ) from error


def _ends() -> str:
    """Return which processes ended and why, as far as they had the time to say; the store may end with the first."""
    said = ""
    with suppress(Exception):
        for rank in range(dist.get_world_size()):
            if _store().check([f"genmonitor/ended/{rank}"]):
                said += f"Process {rank} ended by {_store().get(f'genmonitor/ended/{rank}').decode()}. "
    return said.strip()


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def current_processes() -> Collective:
    """Return the processes of torch.distributed if there are several, else this process alone."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return DistributedProcesses() if several else SingleProcess()


def wait_for_every_process(call: str, key: str, timeout: float, step: int = 0) -> None:
    """Wait with a timeout until every process of torch.distributed makes a call, before a collective.

    Args:
        call: Name of the function, for the error.
        key: Key of the call, the same on every process.
        timeout: Timeout in seconds.
        step: Step of the training at the call, likewise.

    Raises:
        MissingProcessError: On processes that made the call, if others did not in time.
    """
    store, size = _store(), dist.get_world_size()
    name, places = f"genmonitor/{key}/{step}/{_CALLS[key, step]}", [f"genmonitor/{key}/of {i}" for i in range(size)]
    _CALLS[key, step] += 1
    store.set(places[dist.get_rank()], str(step))
    start, pause = time.monotonic(), 0.001
    came = store.add(name, 1)
    too_late = came > size  # another process has given up
    while came != size and not too_late and time.monotonic() < start + timeout:
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        came = store.add(name, 0)
    if came == size:
        return
    gave_up = 2**32  # added to the count of arrivals, for those that arrive later
    if not too_late:
        came = store.add(name, gave_up)
        if came % gave_up == size:  # the last one arrived at this moment
            store.add(name, -gave_up)
            return
    if too_late:
        raise MissingProcessError(
            f"{call}() must be called by every process at once; this one came when another had given up waiting for it."
        )
    steps = {int(store.get(place)) for place in places if store.check([place])} - {step}
    elsewhere = f" at step {step}, and others were at {', '.join(map(str, sorted(steps)))}" if steps else ""
    raise MissingProcessError(
        f"{call}() must be called by every process; {came % gave_up} of {size} came within {timeout:g} s{elsewhere}. "
        "Call it on all of them, with a longer `timeout=` if some are late, or on one alone with `distributed=False`."
    )
