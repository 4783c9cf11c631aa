# SPDX-License-Identifier: Apache-2.0
"""Lightning callbacks that evaluate an image generator while it trains.

A monitor of your own is an evaluator (`genmonitor.evaluation.Evaluator`) in a `GenerativeMonitor` with a `Sampler`.
"""

from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.disagreement import DisagreementMonitor
from genmonitor.callbacks.diversity import DiversityMonitor
from genmonitor.callbacks.options import MonitorOptions
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor
from genmonitor.callbacks.schedule import Schedule
from genmonitor.callbacks.sweep import SweepResult, sweep
from genmonitor.callbacks.validation_samples import ValidationSamples
from genmonitor.images.sampler import Sampler

__all__ = [
    "DisagreementMonitor",
    "DiversityMonitor",
    "GenerativeMonitor",
    "MonitorOptions",
    "PixelClusterMonitor",
    "Sampler",
    "Schedule",
    "SweepResult",
    "ValidationSamples",
    "sweep",
]
