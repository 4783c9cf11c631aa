# SPDX-License-Identifier: Apache-2.0
"""Processes of a command, one unless `--distributed` joins those started together, and the progress that they show."""

from __future__ import annotations

import json
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING

from genmonitor._io import Progress, no_progress, terminal_progress

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

LAUNCHED = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"),
    *("SLURM_NTASKS_PER_NODE", "SLURM_NNODES", "SLURM_STEP_NUM_NODES", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    *("JSM_NAMESPACE_LOCAL_RANK", "LSB_DJOB_RANKFILE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    *("OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMI_SIZE"),
)
"""Variables with which launchers number processes, and by which torch and Lightning recognize a group."""
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "MASTER_ADDR", "MASTER_PORT")
TOLD_AFTER, JOINED_WITHIN = 5.0, timedelta(minutes=2)
"""Seconds after which a process reports that it waits, and time after which it gives up."""


@dataclass(frozen=True)
class Group:
    """Processes that work on a command, by default one.

    Attributes:
        rank: Number of this process, from 0; the first one prints the result.
        store: Store through which they communicate; None for one process.
    """

    rank: int = 0
    store: Store | None = None

    def is_first_to_end(self) -> bool:
        """Return True for the first process that calls it, which reports why all processes end."""
        if self.store is None:
            return True
        try:
            return bool(self.store.add("told", 1) == 1)
        except RuntimeError:  # the process that holds the store has ended, possibly without a message
            return True


@contextmanager
def launcher_hidden() -> Iterator[dict[str, str]]:
    """Hide the variables of a launcher from torch, Lightning and child processes; yield them."""
    hidden = {name: os.environ.pop(name) for name in LAUNCHED if name in os.environ}
    try:
        yield hidden
    finally:
        os.environ.update(hidden)


@contextmanager
def processes_of(args: Namespace, words: Sequence[str], launched: Mapping[str, str]) -> Iterator[Group]:
    """Yield the processes that work on a command: this one, unless arguments request others.

    Args:
        args: Arguments, with `distributed` for a group that a launcher started.
        words: Command line, which must be the same in all processes.
        launched: Variables of the launcher, which are hidden until then.

    Raises:
        ValueError: If no launcher started several processes, some are missing, or their arguments differ.
    """
    if not getattr(args, "distributed", False):
        yield Group()
        return
    os.environ.update(launched)
    import torch
    import torch.distributed as dist

    rank, size, local = _numbers()
    _check_address()
    if torch.cuda.is_available():
        torch.cuda.set_device(local % torch.cuda.device_count())
    if size == 1:
        yield Group()
        return
    store = _meet(rank, size, words)
    # the first process writes alone, while the others wait; a death is noticed at once
    dist.init_process_group(store=store, rank=rank, world_size=size, timeout=timedelta(days=1))
    try:
        yield Group(rank, store)
    finally:
        dist.destroy_process_group()


def _numbers() -> tuple[int, int, int]:
    """Return the rank, the number of processes and the rank on this machine, from the launcher."""
    if all(name in os.environ for name in TORCHRUN):
        names: Sequence[str] = TORCHRUN[:3]
    elif all(name in os.environ for name in SLURM):
        names = SLURM[:3]
    else:
        raise ValueError(
            f"Expected processes that torchrun or srun started, with --distributed, but neither {', '.join(TORCHRUN)} "
            f"nor {', '.join(SLURM)} are set. Start the command as in `torchrun --nproc-per-node 4 -m genmonitor ...`, "
            "or leave --distributed out. A job of Slurm has to export MASTER_ADDR and MASTER_PORT."
        )
    wrong = [f"{name}={os.environ[name]}" for name in (*names, "MASTER_PORT") if not os.environ[name].isdecimal()]
    if wrong:
        raise ValueError(f"Expected numbers in a launcher's variables, but got {', '.join(wrong)}. Set them anew.")
    rank, size, local = (int(os.environ[name]) for name in names)
    if not rank < size:
        raise ValueError(f"Expected {names[0]} below {names[1]}, but got {rank} and {size}. Set them anew.")
    return rank, size, local


def _check_address() -> None:
    """Refuse a host without an address, for which torch would look in vain for many minutes."""
    host = os.environ["MASTER_ADDR"]
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise ValueError(
            f"Expected MASTER_ADDR to name the host of the first process, but got {host!r}: {error}. Set it anew."
        ) from error


def _meet(rank: int, size: int, words: Sequence[str]) -> Store:
    """Return the store of the processes, once all are present with the same arguments."""
    joined: Future[Store] = Future()

    def join() -> None:
        try:
            joined.set_result(_join(rank, size, words))
        except Exception as error:
            joined.set_exception(error)

    Thread(target=join, daemon=True).start()  # torch waits without hearing signals, which the main thread gets
    try:
        store = joined.result(TOLD_AFTER)
    except TimeoutError:
        print(f"genmonitor: waiting for {size} processes", file=sys.stderr, flush=True)
        store = joined.result()
    given = [" ".join(json.loads(store.get(f"arguments/{number}"))) for number in range(size)]
    for number, other in enumerate(given):
        if other != given[0]:
            raise ValueError(
                f"Expected all {size} processes to be given the same arguments, but process 0 got `{given[0]}` and "
                f"process {number} got `{other}`. Leave --distributed out to run commands side by side."
            )
    return store


def _join(rank: int, size: int, words: Sequence[str]) -> Store:
    """Return the store of the processes, once all have set their arguments."""
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    try:
        shared, *_ = next(rendezvous("env://", rank, size, timeout=JOINED_WITHIN))
        # the same processes may run several commands, one after the other
        store = PrefixStore(f"genmonitor/{shared.add(f'genmonitor/{rank}', 1)}", shared)
        store.set(f"arguments/{rank}", json.dumps(list(words)))
        store.wait([f"arguments/{number}" for number in range(size)], JOINED_WITHIN)
    except RuntimeError as error:
        raise ValueError(
            f"Expected {size} processes to run this command with --distributed, but not all came within "
            f"{JOINED_WITHIN.seconds} seconds. Start all of them by one torchrun or srun, or leave --distributed out."
        ) from error
    return store


def progress_shows(shows: bool) -> None:
    """Turn progress on or off."""
    global _shows
    _shows = shows


_shows = True


@contextmanager
def show_progress(description: str, piped: bool = True) -> Iterator[Progress]:
    """Show the current step on standard error until the block ends, as one line if it is no terminal.

    Args:
        description: Description of the step, such as "reading images".
        piped: True to print that line.

    Yields:
        A function that wraps an iterable in a bar below that line.
    """
    if not (_shows and sys.stderr.isatty()):
        if _shows and piped:
            print(f"{description} …", file=sys.stderr, flush=True)
        yield no_progress
        return
    from tqdm import tqdm

    with tqdm(total=0, desc=description, bar_format="{desc} ({elapsed})", leave=False):
        yield terminal_progress
