# SPDX-License-Identifier: Apache-2.0
"""What test_sharding.py and test_lockstep.py run in each of two processes: a small model that `fully_shard` split."""

import tempfile
from typing import Any

import torch
from _helpers.modules import measured, without_figures
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from genmonitor import PixelPartition
from genmonitor.distributed import DistributedProcesses
from genmonitor.evaluation import RegionEvaluator, RegionSettings
from genmonitor.images.lockstep import Lockstep
from genmonitor.images.sampler import Sampler
from genmonitor.monitoring.loop import LoopMonitor
from genmonitor.training_state.proof import Trained, prove_unchanged
from genmonitor.training_state.sharding import gather, kept_sharded, sharded_parts

BATCH = torch.ones(3, 2)


def whole() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 16))


def split() -> nn.Module:
    net, mesh = whole(), init_device_mesh("cpu", (2,))
    for part in (net[0], net[2], net):
        fully_shard(part, mesh=mesh)
    return net


def everything(rank: int) -> dict[str, Any]:
    net = split()
    lockstep = Lockstep(net, torch.device("cpu"))
    parts = sharded_parts(net)
    return {
        "parts": [type(part).__name__ for part in parts],
        "gathered": gather(parts, rank),
        "shares": [lockstep.share(own) for own in ([[4, 5, 6], [7]][rank], [], [[], [8, 9]][rank])],
        "before an error": drawn(net, lockstep),
        "one fails": said(lockstep, lambda: fails(net, rank)),
        "one fails inside": said(lockstep, lambda: fails_inside(net, rank)),
        "one draws once more": said(lockstep, lambda: [net(BATCH) for _ in range(1 + rank)]),
        "after errors": drawn(net, lockstep),
        "called by something else": called_by_something_else(net),
        "in a loop": in_a_loop(net),
        "one moved": moved(net, rank),
    }


def local_part(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def drawn(net: nn.Module, lockstep: Lockstep) -> tuple[torch.Tensor, list[int]]:
    """The outputs, and how many numbers each parameter has here afterwards."""
    with torch.no_grad(), lockstep.batch():
        outputs = net(BATCH)
    return outputs, [local_part(x).numel() for x in net.parameters()]


def said(lockstep: Lockstep, draw: Any) -> str:
    try:
        with torch.no_grad(), lockstep.batch():
            draw()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fails(net: nn.Module, rank: int) -> None:
    net(BATCH)
    if rank == 1:
        raise KeyError("no samples today")
    net(BATCH)


def fails_inside(net: Any, rank: int) -> None:
    def refuse(*_: Any) -> None:
        raise KeyError("no samples today")

    hook = net[0].register_forward_hook(refuse) if rank == 1 else None
    try:
        net(BATCH)
    finally:
        if hook is not None:
            hook.remove()


def called_by_something_else(net: nn.Module) -> tuple[str, list[int]]:
    with torch.no_grad():
        net(BATCH)  # as a validation does: what the root gathered stays
        with kept_sharded(net):
            sizes = [local_part(x).numel() for x in net.parameters()]
            try:
                net(BATCH)
            except RuntimeError as error:
                return str(error), sizes
    return "", sizes


def moved(net: Any, rank: int) -> tuple[list[str], bool]:
    told: list[str] = []
    before = local_part(net[0].bias).clone()
    with kept_sharded(net), prove_unchanged(Trained(net), told.append, DistributedProcesses().gather):
        if rank == 1:
            with torch.no_grad():
                local_part(net[0].bias)[-1] += 1
    return told, torch.equal(local_part(net[0].bias), before)


def in_a_loop(net: nn.Module) -> list[dict[str, float]]:
    """What the monitor of a plain loop measures."""

    def sample(n: int) -> torch.Tensor:
        return net(torch.randn(n, 2)).sigmoid().view(n, 1, 4, 4)

    evaluator = RegionEvaluator(RegionSettings(partition=PixelPartition.grid((4, 4), rows=1, columns=2), n_samples=51))
    real = torch.rand(300, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        monitor = LoopMonitor(evaluator, Sampler(51, batch_size=8), folder=folder, real_images=real, on_error="raise")
        without_figures(monitor).evaluate(sample, net, step=0, epoch=0)
        return measured(monitor)
