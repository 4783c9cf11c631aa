# SPDX-License-Identifier: Apache-2.0
"""Lightning callbacks that evaluate an image generator while it trains."""

from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.disagreement import DisagreementMonitor
from genmonitor.callbacks.diversity import DiversityMonitor
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor
from genmonitor.evaluation.clip import clip_encoders

__all__ = ["DisagreementMonitor", "DiversityMonitor", "GenerativeMonitor", "PixelClusterMonitor", "clip_encoders"]
