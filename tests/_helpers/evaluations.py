# SPDX-License-Identifier: Apache-2.0
"""Tiny images and evaluators, for tests of evaluations that need no Trainer."""

from dataclasses import fields

import torch
from torch.utils.data import TensorDataset

from genmonitor import GaussianKernel
from genmonitor.distributed import Collective
from genmonitor.evaluation import (
    DisagreementEvaluator,
    DisagreementSettings,
    DiversityEvaluator,
    DiversitySettings,
    ImageSet,
    RegionEvaluator,
    RegionSettings,
    Samples,
    SingleProcess,
    run_evaluation,
)
from genmonitor.findings.finding import headlines

PROBE = 8


class ScriptedCollective(Collective):
    """One of two processes; what the other one says is fixed.

    Args:
        rank: of this one.
        other: the flag that the other one gives each time.
        sent: what rank zero broadcasts, where this is not rank zero.
    """

    world_size = 2

    def __init__(self, rank=0, other=True, sent=None):
        self.rank, self.other, self.sent = rank, other, sent
        self.flags = []

    def all_true(self, flag):
        self.flags.append(flag)
        return flag and self.other

    def gather(self, value):
        both = [value, None if self.other else "KeyError: there"]
        return both if self.rank == 0 else both[::-1]

    def broadcast(self, value):
        return value if self.rank == 0 else self.sent


def halves(n, seed=0, dark=1.0):
    """Return images [n, 1, 4, 6] in [0, 1] whose two halves vary each by itself, the right one made darker."""
    generator = torch.Generator().manual_seed(seed)
    sides = torch.rand(n, 2, generator=generator).repeat_interleave(3, 1)
    images = 0.8 * sides[:, None, None, :] + 0.2 * torch.rand(n, 1, 4, 6, generator=generator)
    return images * torch.tensor([1.0, 1.0, 1.0, dark, dark, dark])


def of_classes(labels, seed=0):
    """Return images [n, 1, 4, 4] in [0, 1], each of a class: every class has a row of its own that is bright."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.4 * torch.rand(len(labels), 1, 4, 4, generator=generator)
    images[torch.arange(len(labels)), 0, labels % 4] += 0.6
    return images


def labeled(n, n_classes=3, seed=0):
    """Return a dataset of such images and their classes, in turn."""
    labels = torch.arange(n) % n_classes
    return TensorDataset(of_classes(labels, seed), labels)


def samples_of(images):
    """Return images as the whole global set."""
    return Samples(images, torch.arange(len(images)))


def made(evaluator, settings, given):
    """Return an evaluator of the arguments given, those of its settings among them."""
    of_settings = {field.name: given.pop(field.name) for field in fields(settings) if field.name in given}
    return evaluator(settings.of(**of_settings), **given)


def region_evaluator(**settings):
    """Return an evaluator of 24 samples that looks for two regions in 40 images."""
    defaults = {"n_clusters": 2, "n_cluster_images": 40, "n_samples": 24}
    if "partition" in settings:
        del defaults["n_clusters"]
    return made(RegionEvaluator, RegionSettings, defaults | settings)


def diversity_evaluator(prompts=range(3), **settings):
    """Return an evaluator of 24 samples."""
    return made(DiversityEvaluator, DiversitySettings, {"prompts": prompts, "n_samples": 24} | settings)


def disagreement_evaluator(prompts=range(3), **settings):
    """Return an evaluator of 24 samples, 2 modes and a kernel of fixed width."""
    defaults = {"prompts": prompts, "n_samples": 24, "num_modes": 2, "kernel": GaussianKernel(1.0)}
    return made(DisagreementEvaluator, DisagreementSettings, defaults | settings)


def fit(evaluator, real, probe, comm=None):
    """Fit an evaluator to real images: a tensor, a dataset or ImageSet; return the report."""
    reference = real if isinstance(real, ImageSet) else ImageSet(real)
    return evaluator.fit(reference, probe[:PROBE], comm or SingleProcess())


def evaluate(evaluator, images, history=None, seed=0):
    """Run an evaluation of images, and commit it to a history where there is one; return what was found."""
    _, evaluation = run_evaluation(evaluator, lambda: samples_of(images), SingleProcess(), seed)
    if history is not None:
        history.append({"epoch": len(history), "step": 10 * len(history), **evaluation.values})
        evaluator.commit(evaluation, history)
    return evaluation


def measured(evaluation):
    """Return the values without what the clock says."""
    return {name: value for name, value in evaluation.values.items() if not name.endswith("_seconds")}


def message(evaluator, evaluation, history):
    """Return what is said in full of an evaluation."""
    return " ".join(map(str, headlines(evaluator.findings(evaluation, history))))
