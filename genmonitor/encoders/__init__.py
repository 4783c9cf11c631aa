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

from typing import TYPE_CHECKING, Any

from genmonitor.encoders.pretrained import image_encoder, text_encoder

if TYPE_CHECKING:
    from genmonitor.encoders.feature_metrics import FeatureMetrics

__all__ = ["FeatureMetrics", "image_encoder", "text_encoder"]


def __getattr__(name: str) -> Any:
    if name != "FeatureMetrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from genmonitor.encoders import feature_metrics  # torchmetrics takes two seconds to import

    return feature_metrics.FeatureMetrics
