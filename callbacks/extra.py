# SPDX-License-Identifier: Apache-2.0
"""Other people's metrics, fed from the same samples."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

BATCH = 100
"""Images per update: a feature network for all of them at once would not fit."""


def feed(metrics: Any, samples: Tensor, real: Tensor) -> None:
    """Give each metric of a MetricCollection this process's generated and real images.

    A metric whose `update` takes `real` gets both sides, the real one only once if it keeps it across resets; another,
    such as the Inception score, gets the generated side.

    Args:
        metrics: a MetricCollection, or a dictionary of metrics.
        samples: generated images [N, C, H, W].
        real: real images [M, C, H, W].
    """
    for metric in metrics.values():
        metric.to(samples.device).reset()
        if "real" not in inspect.signature(metric.update).parameters:
            for batch in samples.split(BATCH):
                metric.update(batch)
            continue
        keeps_real = getattr(metric, "reset_real_features", True) is False
        if not (keeps_real and getattr(metric, "_genmonitor_has_real", False)):
            for batch in real.split(BATCH):
                metric.update(batch, real=True)
            metric._genmonitor_has_real = True
        for batch in samples.split(BATCH):
            metric.update(batch, real=False)


def computed(metrics: Any) -> dict[str, float]:
    """Compute each metric.

    Returns:
        Lower-case name to value; a metric that returns a mean and a deviation gives `name` and `name_std`.
    """
    out: dict[str, float] = {}
    for key, metric in metrics.items():
        name, value = key.lower(), metric.compute()
        if isinstance(value, (tuple, list)):
            out |= {name: float(value[0]), f"{name}_std": float(value[1])}
        elif isinstance(value, dict):
            out |= {f"{name}_{part}": float(v) for part, v in value.items()}
        else:
            out[name] = float(value)
    return out
