# SPDX-License-Identifier: Apache-2.0
"""The processes that evaluate together: one, those of torch.distributed, or any others that can agree and broadcast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from genmonitor._stop import StopEvaluation
from genmonitor.metrics._base import broadcast, made_by_rank_zero

_T = TypeVar("_T")


class FailedElsewhereError(RuntimeError):
    """Another process failed in the same step."""


class Collective(ABC):
    """A group of processes. Every process must make the same calls in the same order.

    Attributes:
        rank: index of this process, from 0.
        world_size: number of processes.
    """

    rank: int
    world_size: int

    @abstractmethod
    def all_true(self, flag: bool) -> bool:
        """Return whether the flag is true on every process."""

    @abstractmethod
    def broadcast(self, value: Any) -> Any:
        """Return rank zero's value on every process."""

    def any_true(self, flag: bool) -> bool:
        """Return whether the flag is true on some process."""
        return not self.all_true(not flag)

    @contextmanager
    def all_ranks_or_none(self) -> Iterator[None]:
        """Run the block on every process, or raise on every process: where one fails, none waits for it.

        The block may talk to the other processes only before anything that can fail on one of them alone.

        Raises:
            FailedElsewhereError: if only other processes failed.
        """
        failure: BaseException | None = None
        try:
            yield
        except (Exception, StopEvaluation) as error:
            failure = error
        if self.all_true(failure is None):
            return
        reasons = self.gather(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        rank, reason = next((rank, reason) for rank, reason in enumerate(reasons) if reason is not None)
        raise FailedElsewhereError(f"Another process failed, so this one stops here too. Process {rank}: {reason}")

    def from_rank_zero(self, make: Callable[[], _T]) -> _T:
        """Make something on rank zero alone and return it, or raise its error, on every process."""
        return made_by_rank_zero(make, self.rank, self.broadcast)

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, in the order of the ranks."""
        values = [value] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(values, value)
        return values

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes [N, ...], in the order of the ranks; they may have different numbers."""
        if self.world_size == 1:
            return rows
        return torch.cat(gather_all_tensors(rows.contiguous()))

    def rank_indices(self, n: int) -> range:
        """Return which of n things this process handles: consecutive ones, in the order of the ranks.

        Example:
            >>> SingleProcess().rank_indices(3)
            range(0, 3)
        """
        return range(n * self.rank // self.world_size, n * (self.rank + 1) // self.world_size)


class SingleProcess(Collective):
    """One process alone."""

    rank = 0
    world_size = 1

    def all_true(self, flag: bool) -> bool:
        """Return the flag."""
        return flag

    def broadcast(self, value: Any) -> Any:
        """Return the value."""
        return value


class DistributedProcesses(Collective):
    """The processes of torch.distributed, whoever set them up: torchrun, Lightning Fabric, accelerate."""

    def __init__(self) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    def all_true(self, flag: bool) -> bool:
        """Return whether the flag is true on every process."""
        return all(self.gather(flag))

    def broadcast(self, value: Any) -> Any:
        """Return rank zero's value on every process."""
        return broadcast(value)


def current_processes() -> Collective:
    """Return the processes of torch.distributed where there are several, else this one alone."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return DistributedProcesses() if several else SingleProcess()
