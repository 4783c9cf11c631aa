# SPDX-License-Identifier: Apache-2.0
"""Metrics as torchmetrics.Metric: state, streaming and synchronization around the formulas in `functional`."""

from genmonitor.metrics.authenticity import Authenticity
from genmonitor.metrics.cka import PixelCKA
from genmonitor.metrics.cms import CosineMeanSimilarity
from genmonitor.metrics.discrepancy_map import DiscrepancyMap
from genmonitor.metrics.mmd import MaximumMeanDiscrepancy
from genmonitor.metrics.prdc import PRDC
from genmonitor.metrics.promptsplit import PromptSplit
from genmonitor.metrics.scendi import ScendiScore
from genmonitor.metrics.two_sample_test import TwoSampleTest
from genmonitor.metrics.vendi import ConditionalVendiScore, RKEScore, VendiScore
from genmonitor.metrics.w1kp import W1KPScore

__all__ = [
    "PRDC",
    "Authenticity",
    "ConditionalVendiScore",
    "CosineMeanSimilarity",
    "DiscrepancyMap",
    "MaximumMeanDiscrepancy",
    "PixelCKA",
    "PromptSplit",
    "RKEScore",
    "ScendiScore",
    "TwoSampleTest",
    "VendiScore",
    "W1KPScore",
]
