# SPDX-License-Identifier: Apache-2.0
"""Evaluations along a training run, in a Trainer or a loop."""

from genmonitor.monitoring.base import Monitor
from genmonitor.monitoring.loop import LoopMonitor
from genmonitor.monitoring.options import EvaluationOptions

__all__ = ["EvaluationOptions", "LoopMonitor", "Monitor"]
