# SPDX-License-Identifier: Apache-2.0
"""Other people's metrics, fed from the same samples."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from torchmetrics import Metric


def extra_values(metrics: Any, samples: Tensor, real: Tensor) -> dict[str, float]:
    """Compute each metric of a MetricCollection from generated and real images.

    A metric whose `update` takes `real` gets both sides, the real one only once if it keeps it across resets; another,
    such as the Inception score, gets the generated side.

    Args:
        metrics: a MetricCollection, or a dictionary of metrics.
        samples: generated images [N, C, H, W].
        real: real images [M, C, H, W].

    Returns:
        Lower-case name to value; a metric that returns a mean and a deviation gives `name` and `name_std`.
    """
    out: dict[str, float] = {}
    for key, metric in metrics.items():
        name = key.lower()
        value = _value(metric.to(samples.device), samples, real)
        if isinstance(value, (tuple, list)):
            out |= {name: float(value[0]), f"{name}_std": float(value[1])}
        elif isinstance(value, dict):
            out |= {f"{name}_{part}": float(v) for part, v in value.items()}
        else:
            out[name] = float(value)
    return out


def _value(metric: Metric, samples: Tensor, real: Tensor) -> Any:
    metric.reset()
    if "real" not in inspect.signature(metric.update).parameters:
        metric.update(samples)
        return metric.compute()
    keeps_real = getattr(metric, "reset_real_features", True) is False
    if not (keeps_real and getattr(metric, "_genmonitor_has_real", False)):
        metric.update(real, real=True)
        metric._genmonitor_has_real = True  # type: ignore[assignment]
    metric.update(samples, real=False)
    return metric.compute()
