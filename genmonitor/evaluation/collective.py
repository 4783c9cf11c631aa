# SPDX-License-Identifier: Apache-2.0
"""The processes that evaluate together: one, those of torch.distributed, or any others that can agree and broadcast."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from genmonitor.metrics._base import portable

_T = TypeVar("_T")
PATIENCE = timedelta(days=1)
"""How long a process waits for the others: the first one measures and writes alone, at times for more than torch's half
an hour. One that died is noticed at once."""


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
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
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
        outcome: Any = None
        failure: Exception | None = None
        if self.rank == 0:
            try:
                outcome = make()
            except Exception as error:
                failure = error
        received = self.broadcast(outcome if failure is None else portable(failure))
        if failure is not None:
            raise failure
        if isinstance(received, Exception):
            raise received
        result: _T = received
        return result

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
    """One process by itself."""

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
        sent = [value]
        dist.broadcast_object_list(sent, src=0)
        return sent[0]


def current_processes() -> Collective:
    """Return the processes of torch.distributed where there are several, else this one by itself."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return DistributedProcesses() if several else SingleProcess()


@contextmanager
def launched_processes() -> Iterator[Callable[[], bool] | None]:
    """Let the processes that torchrun or Slurm's srun started talk to each other inside the block.

    Yields:
        A function that returns True to the first process that calls it: that which tells why all of them end. None
        where nobody started several.
    """
    address = _address()
    if address is None:
        yield None
        return
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    store, rank, size = next(rendezvous("env://", *address))
    dist.init_process_group(store=store, rank=rank, world_size=size, timeout=PATIENCE)

    def is_first() -> bool:
        try:
            return bool(store.add("told", 1) == 1)
        except RuntimeError:  # the process that holds the store has ended, perhaps without a word
            return True

    try:
        yield is_first
    finally:
        dist.destroy_process_group()


def _address() -> tuple[int, int] | None:
    """Return rank and number of the processes, of which the first one's address is in the environment; None for one."""
    if dist.is_available() and dist.is_torchelastic_launched():
        local, rank, size = (int(os.environ[name]) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"))
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:  # of srun: a batch script has a single process
        from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

        slurm = SLURMEnvironment()
        os.environ |= {"MASTER_ADDR": slurm.main_address, "MASTER_PORT": str(slurm.main_port)}
        local, rank, size = slurm.local_rank(), slurm.global_rank(), slurm.world_size()
    else:
        return None
    if torch.cuda.is_available():
        torch.cuda.set_device(local % torch.cuda.device_count())
    return rank, size
