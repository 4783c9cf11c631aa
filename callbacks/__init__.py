# SPDX-License-Identifier: Apache-2.0
"""Lightning callbacks that measure an image generator while it trains."""

from genmonitor.callbacks.disagreement import DisagreementMonitor
from genmonitor.callbacks.diversity import DiversityMonitor
from genmonitor.callbacks.encoders import clip_encoders
from genmonitor.callbacks.monitor import GenerativeMonitor
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor

__all__ = ["DisagreementMonitor", "DiversityMonitor", "GenerativeMonitor", "PixelClusterMonitor", "clip_encoders"]
