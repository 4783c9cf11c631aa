# SPDX-License-Identifier: Apache-2.0
"""What test_agreement.py runs in each of two processes: the second one has another setting, or fails in `fit`."""

import tempfile

from _helpers.loops import EVALUATORS, Generator, labelled
from _helpers.modules import MeanGap
from _helpers.presenters import without_figures

from genmonitor import LoopMonitor
from genmonitor.distributed import FailedElsewhereError
from genmonitor.evaluation import (
    DisagreementEvaluator,
    DisagreementSettings,
    DiversityEvaluator,
    DiversitySettings,
    RegionEvaluator,
    RegionSettings,
    Sampler,
)

SETTINGS = ["n_samples", "seed", "sample_batch_size", "on_error", "extra_metrics", "n_clusters", "prompts"]
KINDS = ["regions", "diversity", "disagreement"]
DRAWS = {"sample": 16, "sample of another batch": 2, "sample of the start": 10}
"""Number of samples of the draw that fails: the probe, some of its rows once more, this process's part of the start."""
FAILURES = [*DRAWS, "NaN", "shape", "few images", "extra metric", "encoder"]
HAVE = {"extra metric": ("regions", "diversity"), "sample of the start": ("disagreement",)}
"""Monitors that have a part, where not all do."""
ENCODED = {
    "regions": lambda encoder: RegionEvaluator(
        RegionSettings(2, n_samples=20, n_cluster_images=40), site_encoder=encoder
    ),
    "diversity": lambda encoder: DiversityEvaluator(DiversitySettings.of(range(5), 20), output_encoder=encoder),
    "disagreement": lambda encoder: DisagreementEvaluator(
        DisagreementSettings.of(range(5), 20), output_encoder=encoder
    ),
}


def everything(rank):
    """Return the error of each case, by its name."""
    out = {name: fitted("diversity" if name == "prompts" else "regions", **other(name, rank)) for name in SETTINGS}
    parts = [(kind, name) for kind in KINDS for name in FAILURES if kind in HAVE.get(name, KINDS)]
    return out | {f"{kind}: {name}": fails(kind, name, rank) for kind, name in parts}


def other(name, rank):
    """Return a setting that is another one on the second process."""
    values = {
        "n_samples": 60 + 10 * rank,
        "seed": rank,
        "sample_batch_size": 100 - rank,
        "on_error": ("warn", "raise")[rank],
        "extra_metrics": ({}, {"gap": MeanGap()})[rank],
        "n_clusters": 3 + rank,
        "prompts": [[0, 1, 2, 3, 4], [0, 1, 2, 4, 3]][rank],
    }
    return {name: values[name]}


def fitted(kind, n_samples=60, seed=0, sample_batch_size=100, on_error="warn", extra_metrics=None, **settings):
    """Fit a monitor with these settings and return the error."""
    if kind == "diversity":
        evaluator = DiversityEvaluator(DiversitySettings.of(settings["prompts"], n_samples))
    else:
        evaluator = RegionEvaluator(
            RegionSettings(settings.get("n_clusters", 3), n_samples=n_samples), extra_metrics=extra_metrics
        )
    sampler = Sampler(n_samples, evaluator.prompts, batch_size=sample_batch_size, seed=seed)
    return error_of(evaluator, sampler, Generator(), labelled(0, 300), on_error=on_error)


def fails(kind, name, rank):
    """Fit a monitor whose second process fails in a part, and return the error."""
    broken, module = rank == 1, Generator()
    data = labelled(0, 3 if broken and name == "few images" else 300)
    evaluator = EVALUATORS["disagreement with the start" if name == "sample of the start" else kind](20)
    sample = module
    method = "sample" if kind == "regions" else "sample_prompts"

    def changed(given):
        images = getattr(module, method)(given)
        if len(images) == DRAWS.get(name):
            raise RuntimeError("no samples today")
        if name in DRAWS:
            return images
        return images * float("nan") if name == "NaN" else images.repeat(1, 2, 1, 1)

    def encoder(images):
        if broken:
            raise RuntimeError("no features today")
        return images if kind == "regions" else images.flatten(1)

    if broken and name in (*DRAWS, "NaN", "shape"):
        sample = changed
    if name == "encoder":
        evaluator = ENCODED[kind](encoder)
    if name == "extra metric":
        evaluator = type(evaluator)(evaluator.settings, extra_metrics={"gap": Broken(broken)})
    return error_of(evaluator, Sampler(20, evaluator.prompts), sample, data, module=module)


class Broken(MeanGap):
    """A metric that may fail to take images."""

    def __init__(self, broken):
        super().__init__()
        self.broken = broken

    def update(self, images, real):
        """Fail, or take the images."""
        if self.broken:
            raise RuntimeError("no images today")
        super().update(images, real)


def error_of(evaluator, sampler, sample, data, module=None, **options):
    """Return the class and the text of what `fit` raises, and whether this is the process that failed."""
    with tempfile.TemporaryDirectory() as folder:
        monitor = LoopMonitor(without_figures(evaluator), sampler, folder=folder, real_images=data, **options)
        try:
            monitor.fit(sample, module)
        except Exception as error:
            return str(error), isinstance(error, FailedElsewhereError)
    return "", False
