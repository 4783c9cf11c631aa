# SPDX-License-Identifier: Apache-2.0
"""Encoders of images and texts, published and your own, and metrics on their features.

Example:
    >>> import torch
    >>> from genmonitor.encoders import FeatureMetrics
    >>> metric = FeatureMetrics(torch.nn.Flatten(), ["prdc"], num_features=4)
    >>> for real in (True, False):
    ...     metric.update(torch.rand(20, 1, 2, 2), real=real)
    >>> sorted(metric.compute())
    ['coverage', 'density', 'precision', 'recall']
"""

from genmonitor.encoders.feature_metrics import FeatureMetrics
from genmonitor.encoders.pretrained import image_encoder, text_encoder

__all__ = ["FeatureMetrics", "image_encoder", "text_encoder"]
