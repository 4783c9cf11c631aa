# SPDX-License-Identifier: Apache-2.0
"""Lightning callbacks that measure an image generator while it trains."""

from genmonitor.callbacks.monitor import GenerativeMonitor
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor

__all__ = ["GenerativeMonitor", "PixelClusterMonitor"]
