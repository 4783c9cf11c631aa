# SPDX-License-Identifier: Apache-2.0
"""Plain loops in one process, and in each of two."""

import os
import warnings
from functools import partial
from pathlib import Path

import torch.distributed as dist
from _helpers.loops import Generator, small
from _helpers.modules import measured
from lightning.fabric import Fabric
from torch.nn.parallel import DistributedDataParallel

SIZES = {"regions": 61, "diversity": 60, "disagreement": 60}  # one of them is no whole number for each of two


def by_itself(folder, kind):
    """Evaluate in one process."""
    monitor = _monitor(folder, kind)
    return _evaluate(folder, monitor, Generator(), monitor.evaluate)


def by_torch(folder, kind, rank):
    """Evaluate in two processes with torch alone."""
    monitor = _monitor(folder, kind)
    return _evaluate(folder, monitor, DistributedDataParallel(Generator()), monitor.evaluate)


def by_fabric(folder, kind, rank):
    """Evaluate in two processes with Fabric, the monitor among its callbacks."""
    os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}  # where nobody is: the group is there already
    monitor = _monitor(folder, kind)
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp", callbacks=[monitor])
    fabric.launch()
    return _evaluate(folder, monitor, fabric.setup(Generator()), partial(fabric.call, "evaluate"))


def _monitor(folder, kind):
    warnings.filterwarnings("ignore", message=".*(this evaluation failed|baseline|only|prompts have fewer)")
    return small(Path(folder) / "run", kind, SIZES[kind], batch_size=16, on_error="warn")


def _evaluate(folder, monitor, module, evaluate):
    """Evaluate thrice; where there are two processes the last one cannot sample the second time."""
    for epoch in range(3):
        if epoch == 1 and dist.is_initialized() and dist.get_rank() == 1:
            evaluate(_broken, module, step=epoch, epoch=epoch)
        else:
            evaluate(module, step=epoch, epoch=epoch)
    return {"history": measured(monitor), "files": sorted(path.name for path in Path(folder).glob("run/*/*"))}


def _broken(given):
    raise RuntimeError("no samples today")
