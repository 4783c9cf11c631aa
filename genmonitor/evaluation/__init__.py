# SPDX-License-Identifier: Apache-2.0
"""One evaluation of a generator, used by every monitor, command and loop.

Example:
    >>> import torch
    >>> from genmonitor.evaluation import ImageSet, RegionEvaluator, RegionSettings, Samples, SingleProcess
    >>> from genmonitor.evaluation import run_evaluation
    >>> images = torch.rand(80, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> evaluator = RegionEvaluator(RegionSettings(n_clusters=2, n_samples=20, n_cluster_images=40))
    >>> generated = Samples(images[:20], torch.arange(20))
    >>> report = evaluator.fit(ImageSet(images[20:]), generated.images, SingleProcess())
    >>> _, evaluation = run_evaluation(evaluator, lambda: generated, SingleProcess(), seed=0)
    >>> 0 < evaluation.values["image"] <= 1
    True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genmonitor._io import Progress, no_progress, terminal_progress
from genmonitor.distributed import Collective, SingleProcess
from genmonitor.evaluation.comparison import Comparison, compare
from genmonitor.evaluation.diagnosis import Diagnosis, diagnose
from genmonitor.evaluation.evaluator import Evaluator, run_evaluation
from genmonitor.evaluation.pixel_clusters import RegionEvaluator
from genmonitor.evaluation.results import Evaluation, FitReport, History, Presenter
from genmonitor.evaluation.settings import DisagreementSettings, DiversitySettings, RegionSettings
from genmonitor.findings.finding import Area, FaultKind, Finding
from genmonitor.findings.tables import Table
from genmonitor.findings.values import ValueSpec
from genmonitor.images.image_set import ImageSet
from genmonitor.images.sampler import Sampler, Samples

if TYPE_CHECKING:
    from genmonitor.evaluation.disagreement import DisagreementEvaluator
    from genmonitor.evaluation.diversity import DiversityEvaluator

__all__ = [
    "Area",
    "Collective",
    "Comparison",
    "Diagnosis",
    "DisagreementEvaluator",
    "DisagreementSettings",
    "DiversityEvaluator",
    "DiversitySettings",
    "Evaluation",
    "Evaluator",
    "FaultKind",
    "Finding",
    "FitReport",
    "History",
    "ImageSet",
    "Presenter",
    "Progress",
    "RegionEvaluator",
    "RegionSettings",
    "Sampler",
    "Samples",
    "SingleProcess",
    "Table",
    "ValueSpec",
    "compare",
    "diagnose",
    "no_progress",
    "run_evaluation",
    "terminal_progress",
]


def __getattr__(name: str) -> Any:
    if name not in ("DisagreementEvaluator", "DiversityEvaluator"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # torchmetrics, which these alone need, takes two seconds to import
    return getattr(import_module(f"{__name__}.{name.removesuffix('Evaluator').lower()}"), name)
