# SPDX-License-Identifier: Apache-2.0
"""Evaluations along a training run, whoever runs it: fitted once, each published, none of them its end."""

from genmonitor.monitoring.base import EvaluationOptions, Monitor
from genmonitor.monitoring.loop import LoopMonitor

__all__ = ["EvaluationOptions", "LoopMonitor", "Monitor"]
