# SPDX-License-Identifier: Apache-2.0
"""Processes that torchrun or Slurm's srun started for one command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

PATIENCE = timedelta(days=1)
"""How long a process waits for the others: the first one measures and writes alone, at times for more than torch's half
an hour. One that died is noticed at once."""


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
