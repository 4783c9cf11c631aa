# SPDX-License-Identifier: Apache-2.0
"""Run a function in several processes that talk through gloo; importable by name, so not in a test file."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def in_two_processes(function: Callable[[int], Any], folder: Path, count: int = 2) -> list[Any]:
    """Return what `function(rank)` returns in each process; it may hold tensors, numbers, strings and containers."""
    mp.spawn(_run, args=(function, str(folder), count), nprocs=count)
    return [torch.load(folder / f"{rank}.pt") for rank in range(count)]


def _run(rank: int, function: Callable[[int], Any], folder: str, count: int) -> None:
    torch.set_num_threads(1)
    # a rendezvous by file needs no port that another run could have taken
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    try:
        torch.save(function(rank), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()
