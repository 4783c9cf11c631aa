# SPDX-License-Identifier: Apache-2.0
"""How often `detection.py` sees an alert where nothing changed, and how soon where something did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

import numpy as np
import torch
from detection_images import Source
from detection_methods import FAULTS, contrast
from torch import Tensor

from genmonitor.evaluation.regions.best import BestSoFar
from genmonitor.evaluation.verdicts import ALERT_FACTOR, RegressionDetector
from genmonitor.functional.mmd_influence import RealSide


def alert_rows(source: Source, evaluations: int, runs: int) -> Iterator[list[str]]:
    """Yield false alarms per 1,000 evaluations, and the delay of each fault in evaluations."""
    for name, size in {"real images": 0.0, "generator of contrast −30 %, unchanging": 0.3}.items():
        for n in (source.n, 64, 16):

            def dull(x: Tensor, _: int, size: float = size) -> Tensor:
                return contrast(x, torch.ones_like(x[0], dtype=torch.bool), size)

            some = replace(source, n=n)
            alarms = sum(bool(names) for run in range(runs) for names in alerts(some, run, evaluations, dull))
            rate = f"{1000 * alarms / (runs * evaluations):.2f}"
            yield [f"{name}, n = {n}", f"{runs} × {evaluations}", rate, "", ""]
    start = 10
    for fault, (spoil, sizes) in FAULTS.items():
        for size in sizes[1:]:
            delays, named = [], []
            for run in range(runs):
                label = 1 + run % source.partition.num_clusters
                inside = source.partition.pixel_labels() == label

                def spoiled(x: Tensor, i: int, spoil=spoil, inside=inside, size=size) -> Tensor:
                    return x if i < start else spoil(x, inside, size)

                raised = [(i, names) for i, names in enumerate(alerts(source, 100 + run, start + 10, spoiled)) if names]
                raised = [(i, names) for i, names in raised if i >= start]
                delays.append(raised[0][0] - start + 1 if raised else float("inf"))
                named.append(bool(raised) and raised[0][1] == [f"cluster_{label}"])
            yield [f"{fault} {size:g}", str(runs), "", f"{median(delays):g}", f"{np.mean(named):.2f}"]


def alerts(source: Source, seed: int, evaluations: int, spoil: Callable[[Tensor, int], Tensor]) -> list[list[str]]:
    """Return what is alerted of at each evaluation of fresh images."""
    generator = torch.Generator().manual_seed(seed)
    side = RealSide.of(source.draw(generator)[1], None, source.partition)
    best, detector, out = BestSoFar(), RegressionDetector(), []
    for i in range(evaluations):
        influence = side.influence(spoil(source.draw(generator)[0], i).flatten(1))
        scores = {name: z for name, z in best.scores(influence).items() if name != "image"}
        out.append(detector.update(scores, best.farther_by(influence, ALERT_FACTOR)))
        best.update(influence, i)
    return out
