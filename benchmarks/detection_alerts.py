# SPDX-License-Identifier: Apache-2.0
"""How often `detection.py` sees an alert where nothing changed, and how soon where something did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

import numpy as np
import torch
from detection_images import Source
from detection_methods import FAULTS, blur, brightness, contrast
from torch import Tensor

from genmonitor import GaussianKernel
from genmonitor.evaluation.regions.metrics import Compared, RealRegions
from genmonitor.evaluation.regions.search import Regions, error_views
from genmonitor.evaluation.regions.tracker import RegionTracker
from genmonitor.images.split import DRAWS

Fault = Callable[[Tensor, Tensor, float], Tensor]
Spoil = Callable[[Tensor, int, torch.Generator], Tensor]
START = 10
"""The evaluation that a fault begins at."""
NOISE = 0.15
"""The standard deviation, in parts of the range, of the noise of a generator that is far from real images all along."""


def alert_rows(source: Source, evaluations: int, runs: int) -> Iterator[list[str]]:
    """Yield false alarms per 1,000 evaluations, and the delay of each fault in evaluations."""
    unchanging: dict[str, Spoil] = {
        "real images": lambda x, _, __: x,
        "generator of contrast −30 %, unchanging": lambda x, _, __: contrast(x, torch.ones_like(x[0]).bool(), 0.3),
        f"generator with noise {NOISE:g}, unchanging": lambda x, _, g: x + NOISE * torch.randn(x.shape, generator=g),
    }
    for name, spoil in unchanging.items():
        for n in (source.n, 64, 16):
            some = replace(source, n=n)
            alarms = sum(bool(names) for run in range(runs) for names in alerts(some, run, evaluations, spoil))
            rate = f"{1000 * alarms / (runs * evaluations):.2f}"
            yield [f"{name}, n = {n}", f"{runs} × {evaluations}", rate, "", ""]
    for fault, (spoil, sizes) in FAULTS.items():
        for size in sizes[1:]:
            yield [f"{fault} {size:g}", *delays(source, runs, spoil, size)]
    for spoil, size, name in ((contrast, 0.5, "contrast −"), (blur, 1.0, "blur"), (brightness, 0.1, "brightness +")):
        yield [f"{name} {size:g} of a generator with noise {NOISE:g}", *delays(source, runs, spoil, size, NOISE)]


def delays(source: Source, runs: int, fault: Fault, size: float, noisy: float = 0.0) -> list[str]:
    """Return the number of runs, the median delay, and in what part of them the right region alone is named."""
    found, named = [], []
    for run in range(runs):
        label = 1 + run % source.partition.num_clusters
        inside = source.partition.pixel_labels() == label

        def spoiled(x: Tensor, i: int, generator: torch.Generator, inside: Tensor = inside) -> Tensor:
            x = x if i < START else fault(x, inside, size)
            return x + noisy * torch.randn(x.shape, generator=generator) if noisy else x

        raised = [(i, names) for i, names in enumerate(alerts(source, 100 + run, START + 10, spoiled)) if names]
        raised = [(i, names) for i, names in raised if i >= START]
        found.append(raised[0][0] - START + 1 if raised else float("inf"))
        named.append(bool(raised) and raised[0][1] == [f"cluster_{label}"])
    return [str(runs), "", f"{median(found):g}", f"{np.mean(named):.2f}"]


def alerts(source: Source, seed: int, evaluations: int, spoil: Spoil) -> list[list[str]]:
    """Return what is alerted of at each evaluation of fresh images."""
    generator = torch.Generator().manual_seed(seed)
    training, real = source.draw(generator)
    views = error_views(training, source.partition)
    compared = RealRegions(Compared(source.partition, GaussianKernel(1.0), views, None, seed), real)
    tracker, out = RegionTracker(), []
    measure = compared.measure
    draws = [measure(source.draw(generator)[1], testable=False).error for _ in range(DRAWS)]
    chance = {name: median(draw[name] for draw in draws) for name in draws[0]}
    regions = Regions(source.partition, GaussianKernel(1.0), chance=chance)
    for i in range(evaluations):
        found = measure(spoil(source.draw(generator)[0], i, generator))
        ratios = regions.error_ratios(found.error)
        scores = {name: z for name, z in tracker.scores(found.influence).items() if name != "image"}
        out.append(sorted(change.name for change in tracker.update(found.influence, ratios, scores, i)))
    return out
