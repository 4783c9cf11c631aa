# SPDX-License-Identifier: Apache-2.0
"""What test_agreement.py runs in each of three processes: two with samples of different dtypes, one without."""

import tempfile
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from _helpers.citizens import CITIZENS, PER_BASE, feed
from _helpers.modules import measured, without_figures
from _helpers.two_ranks import FIRST_BY_ALL
from torch import Tensor, nn
from torchmetrics import MeanMetric

from genmonitor import MaximumMeanDiscrepancy, PixelPartition
from genmonitor._processes import alone
from genmonitor.distributed import MissingProcessError, current_processes, wait_for_every_process
from genmonitor.evaluation import RegionEvaluator, RegionSettings
from genmonitor.images.sampler import Sampler
from genmonitor.monitoring.loop import LoopMonitor

DTYPES = (torch.float32, torch.float64)
NAMES = [name for name in PER_BASE if name not in FIRST_BY_ALL]
TIMEOUT = 2.0


def everything(rank: int) -> dict[str, Any]:
    return {
        "metrics": {name: metric_of_dtypes(name, rank) for name in NAMES},
        "rows": current_processes().gather_rows(rows(rank)),
        "shapes": said(lambda: current_processes().gather_rows(torch.ones(rank, rank))),
        "metric's shapes": shapes_of_a_metric(rank),
        "two samples": evaluated(rank, n_samples=2),
        "float64 on one": evaluated(rank, n_samples=51, odd=1),
        "one alone": evaluated(rank, n_samples=51, distributed=False) if rank == 0 else None,
        "main process only": called_by(rank, 0),
        "two of three": called_by(rank, 0, 1),
        "too late": called_by(rank, 0, 1, late=2),
        "other steps": said(lambda: wait_for_every_process("evaluate", "steps", TIMEOUT, step=10 * (rank == 1))),
        "all of them": said(lambda: wait_for_every_process("evaluate", "later", 30)),
    }


def called_by(rank: int, *ranks: int, late: int | None = None) -> str | None:
    """What a call says that these processes make, and another one when they have given up."""
    dist.barrier()
    call = partial(wait_for_every_process, "evaluate", f"by {ranks} {late}", TIMEOUT)
    text = said(call) if rank in ranks else None
    dist.barrier()
    return said(call) if rank == late else text


def said(call: Any) -> str:
    try:
        call()
    except (ValueError, MissingProcessError) as error:
        return str(error)
    return ""


def rows(rank: int) -> Tensor:
    return torch.empty(0) if rank == 2 else torch.full((rank + 1, 3), rank + 1, dtype=DTYPES[rank])


def metric_of_dtypes(name: str, rank: int) -> Any:
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments)
    if rank == 2:
        return metric.compute()
    mine = [(xs, how) for i, (xs, how) in enumerate(citizen.calls(9)) if i % 2 == rank]
    cast = [(tuple(x.to(DTYPES[rank]) if x.is_floating_point() else x for x in xs), how) for xs, how in mine]
    return feed(metric, cast).compute()


def shapes_of_a_metric(rank: int) -> tuple[str, int, float]:
    """The error; how many samples this process has afterwards; and its value when it is alone."""
    metric = MaximumMeanDiscrepancy()
    for real in (True, False):
        metric.update(torch.rand(4, 2 + rank, generator=torch.Generator().manual_seed(rank)), real=real)
    text = said(metric.compute)
    with alone():
        value = float(metric.compute())
    return text, sum(map(len, metric.fake_samples)), value


def evaluated(rank: int, n_samples: int, odd: int | None = None, distributed: bool = True) -> list[dict[str, float]]:
    """What the monitor of a plain loop measures, with `odd` the process whose samples are float64."""
    net = nn.Linear(2, 16).double() if odd is None else nn.Linear(2, 16)
    with torch.no_grad():
        net.weight.fill_(0.5)
        net.bias.copy_(torch.arange(16) / 16)

    def sample(n: int) -> Tensor:
        out = net(torch.randn(n, 2, dtype=net.weight.dtype)).sigmoid().view(n, 1, 4, 4)
        return out.double() if rank == odd else out

    evaluator = RegionEvaluator(
        RegionSettings(partition=PixelPartition.grid((4, 4), rows=1, columns=2), n_samples=n_samples),
        extra_metrics={"brightness": MeanMetric()},
    )
    real = torch.rand(300, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        options = {"folder": folder, "real_images": real, "on_error": "raise", "distributed": distributed}
        monitor = LoopMonitor(evaluator, Sampler(n_samples, batch_size=8), **options)
        without_figures(monitor).evaluate(sample, net, step=0, epoch=0)
        return measured(monitor)
