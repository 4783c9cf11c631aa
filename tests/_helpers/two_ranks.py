# SPDX-License-Identifier: Apache-2.0
"""What metrics/test_sync.py runs in each of two processes, together, since starting them takes seconds."""

from typing import Any

from _helpers.citizens import CITIZENS, HALVES, feed, images
from torch import Tensor
from torchmetrics import MetricCollection

from genmonitor import CosineMeanSimilarity, GaussianKernel, MaximumMeanDiscrepancy, PixelCKA, VendiScore

REAL, FAKE = images(30, 1), images(24, 2) ** 2

FIRST_BY_ALL = ["promptsplit cosine"]
"""Those whose first `update` has to be made by every process."""


def share(samples: Tensor, rank: int, first: int) -> list[Tensor]:
    """Rank zero's first samples in one batch, rank one's others in several."""
    return [samples[:first]] if rank == 0 else list(samples[first:].split(7))


def everything(rank: int) -> dict[str, Any]:
    return {
        "uneven": {name: uneven(name, rank) for name in CITIZENS},
        "none on one": {name: none_on_one(name, rank) for name in CITIZENS if name not in FIRST_BY_ALL},
        "no rows on one": {name: no_rows_on_one(name, rank) for name in CITIZENS},
        "on step": {name: on_step(name, rank) for name in CITIZENS},
        "real side kept": real_side_kept(rank),
        "collection": collection(rank),
        "refused": refused_by_rank_zero(rank),
        "gamma": gamma_of_both(rank),
        "local": local_afterwards(rank),
        "modes": modes_with_none_on_one(rank),
    }


def uneven(name: str, rank: int) -> Any:
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments)
    for tensors, how in citizen.data:
        for some in zip(*(share(x, rank, 11) for x in tensors), strict=True):
            metric.update(*some, **how)
    return metric.compute()


def none_on_one(name: str, rank: int) -> Any:
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments)
    return (feed(metric, citizen.calls(9)) if rank == 0 else metric).compute()


def modes_with_none_on_one(rank: int) -> Tensor:
    metric = VendiScore()
    if rank == 0:
        metric.update(FAKE.flatten(1))
    return metric.modes(3).eigenvalues


def no_rows_on_one(name: str, rank: int) -> Any:
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments)
    calls = citizen.calls(9)
    return feed(metric, calls if rank == 0 else [(tuple(x[:0] for x in xs), how) for xs, how in calls]).compute()


def on_step(name: str, rank: int) -> tuple[Any, Any]:
    """What `forward` says of each process's batch with `dist_sync_on_step`, and `compute` after it."""
    citizen = CITIZENS[name]
    metric = citizen.make(**citizen.arguments, dist_sync_on_step=True)
    *sides, (tensors, how) = citizen.data
    for others, of_others in sides:
        for some in zip(*(share(x, rank, 11) for x in others), strict=True):
            metric.update(*some, **of_others)
    rows = slice(0, 11) if rank == 0 else slice(11, None)
    return metric(*(x[rows] for x in tensors), **how), metric.compute()


def real_side_kept(rank: int) -> list[Any]:
    metric = CosineMeanSimilarity(HALVES, reset_real_features=False)
    for some in share(REAL, rank, 20):
        metric.update(some, real=True)
    values = []
    for power in (1, 2):
        for some in share(FAKE**power, rank, 5):
            metric.update(some, real=False)
        values.append(metric.compute())
        metric.reset()
    return values


def collection(rank: int) -> dict[str, Tensor]:
    metrics = MetricCollection({"cms": CosineMeanSimilarity(), "mmd": MaximumMeanDiscrepancy(), "cka": PixelCKA()})
    for side, real in ((REAL, True), (FAKE, False)):
        for some in share(side, rank, 10):
            metrics.update(some, real=real)
    return metrics.compute()


def refused_by_rank_zero(rank: int) -> str:
    """Rank zero cannot take a gamma from one sample: both have to learn of it, or one waits for ever."""
    try:
        VendiScore(GaussianKernel(), num_features=8).update(REAL[:1].flatten(1) if rank == 0 else REAL[1:].flatten(1))
    except ValueError as error:
        return str(error)
    return ""


def gamma_of_both(rank: int) -> dict[str, float]:
    streaming, kept = VendiScore(GaussianKernel(), num_features=8), CosineMeanSimilarity()
    for some in share(REAL, rank, 12):
        streaming.update(some.flatten(1))
        kept.update(some, real=True)
        kept.update(some, real=False)
    kept.compute()
    return {"streaming": float(streaming.gamma), "kept": float(kept.gamma)}


def local_afterwards(rank: int) -> int:
    metric = MaximumMeanDiscrepancy()
    for some in share(REAL, rank, 11):
        metric.update(some, real=True)
        metric.update(some, real=False)
    metric.compute()
    return sum(map(len, metric.fake_samples))
