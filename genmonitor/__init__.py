# SPDX-License-Identifier: Apache-2.0
"""Training monitors that report where an image generator is wrong and what it fails to vary.

Public names are imported on first use, so that `genmonitor --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "PRDC",
    "Authenticity",
    "ConditionalVendiScore",
    "CosineKernel",
    "CosineMeanSimilarity",
    "DiscrepancyMap",
    "GaussianKernel",
    "LaplacianKernel",
    "LoopMonitor",
    "MaximumMeanDiscrepancy",
    "PixelCKA",
    "PixelPartition",
    "PromptSplit",
    "RKEScore",
    "ScendiScore",
    "TwoSampleTest",
    "VendiScore",
    "W1KPScore",
    "compare",
    "diagnose",
]

if TYPE_CHECKING:
    from genmonitor import functional as functional
    from genmonitor import kernels as kernels
    from genmonitor import metrics as metrics
    from genmonitor import partition as partition
    from genmonitor.evaluation import compare, diagnose
    from genmonitor.kernels import CosineKernel, GaussianKernel, LaplacianKernel
    from genmonitor.metrics import (
        PRDC,
        Authenticity,
        ConditionalVendiScore,
        CosineMeanSimilarity,
        DiscrepancyMap,
        MaximumMeanDiscrepancy,
        PixelCKA,
        PromptSplit,
        RKEScore,
        ScendiScore,
        TwoSampleTest,
        VendiScore,
        W1KPScore,
    )
    from genmonitor.monitoring import LoopMonitor
    from genmonitor.partition import PixelPartition

    __version__: str

else:  # otherwise type checkers would accept any name because of `__getattr__`
    _SUBMODULES = ("functional", "kernels", "metrics", "partition")
    _DEFINED_IN = {
        "CosineKernel": "kernels",
        "GaussianKernel": "kernels",
        "LaplacianKernel": "kernels",
        "PixelPartition": "partition",
        "LoopMonitor": "monitoring",
        "compare": "evaluation",
        "diagnose": "evaluation",
    }

    def __getattr__(name: str) -> Any:
        if name in __all__:
            value = getattr(importlib.import_module(f"genmonitor.{_DEFINED_IN.get(name, 'metrics')}"), name)
        elif name in _SUBMODULES:
            value = importlib.import_module(f"genmonitor.{name}")
        elif name == "__version__":
            from importlib.metadata import version

            value = version("genmonitor")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_SUBMODULES, "__version__"})
