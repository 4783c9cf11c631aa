# SPDX-License-Identifier: Apache-2.0
"""The alerts of short trainings, each held against the curve that it names and against the samples themselves."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diagnosis_generators import GAN, HELD_OUT, VAE, Diffusion, trained
from diagnosis_images import image_set
from diagnosis_peers import fidelity
from torch import Tensor

from genmonitor import LoopMonitor
from genmonitor.evaluation import RegionEvaluator, RegionSettings
from genmonitor.evaluation.regions.values import IMAGE
from genmonitor.findings.finding import Finding

MODELS = {"GAN": (GAN, {}, 60), "VAE": (VAE, {}, 120), "diffusion": (Diffusion, {"steps": 20}, 120)}
"""Network, its arguments, and steps between two evaluations."""
TRAININGS = [
    *(("GAN", of_set, seed) for of_set in ("faces", "digits", "clothes", "photographs") for seed in (0, 1)),
    *(("VAE", of_set, seed) for of_set in ("faces", "digits", "clothes", "scenes") for seed in (0, 1)),
    *(("diffusion", of_set, 0) for of_set in ("faces", "digits", "clothes", "photographs")),
]
EVALUATIONS = 8
SAMPLES = 500
CLEARLY = 1.1
"""A measure of samples that is so many times worse is worse."""


@dataclass(frozen=True)
class Raised:
    """An alert: at which evaluation, and what it says."""

    evaluation: int
    finding: Finding


class Recording(RegionEvaluator):
    """Keeps the findings that become alerts."""

    def __init__(self, settings: RegionSettings) -> None:
        super().__init__(settings)
        self.raised: list[Raised] = []

    def commit(self, evaluation: Any, history: Any) -> list[Finding]:
        """Note what is alerted of."""
        found = super().commit(evaluation, history)
        self.raised += [Raised(len(history) - 1, finding) for finding in found]
        return found


def training(model_name: str, of_set: str, seed: int, evaluations: int) -> list[list[str]]:
    """Train a generator and return a row for each of its alerts, or one that says that there was none."""
    make, arguments, steps = MODELS[model_name]
    images = image_set(of_set).images.clamp(0, 1)
    training_images, held_out = images[:-HELD_OUT], images[-HELD_OUT:]
    evaluator = Recording(RegionSettings(n_clusters=4, n_cluster_images=600, n_samples=SAMPLES, seed=seed))
    torch.manual_seed(seed)
    model, drawn = make(tuple(images.shape[1:]), **arguments), []
    with tempfile.TemporaryDirectory() as folder:
        given = {"real_images": training_images, "validation_images": held_out, "verbose": False}
        monitor = LoopMonitor(evaluator, folder=folder, on_alert=lambda _: None, **given)
        for epoch in range(evaluations):
            trained(model, training_images, steps)
            monitor.evaluate(model.sample, model, step=steps * (epoch + 1), epoch=epoch)
            drawn.append(independent_samples(model))
    name = f"{model_name}, {of_set}, seed {seed}"
    rows = [[name, *held_against(raised, evaluator, monitor.history, drawn, held_out)] for raised in evaluator.raised]
    return rows or [[name, "none", "", "", "", ""]]


def independent_samples(model: torch.nn.Module) -> Tensor:
    """Draw samples that the monitor has not seen, and leave the training as it would have been."""
    with torch.random.fork_rng():
        model.eval()
        samples = model.sample(SAMPLES)
        model.train()
    return samples


def held_against(
    raised: Raised,
    evaluator: RegionEvaluator,
    history: Sequence[Mapping[str, float]],
    drawn: Sequence[Tensor],
    real: Tensor,
) -> list[str]:
    """Return what an alert says, its curve, whether that moves its way, which others do not, and what samples say."""
    key, now = raised.finding.measure, raised.evaluation
    specs = {spec.key: spec for spec in evaluator.values()}
    sign = {name: 1 if spec.better == "low" else -1 for name, spec in specs.items()}
    best = min(range(now), key=lambda i: sign[key] * history[i][key])
    worse = sign[key] * (history[now][key] - history[best][key]) > 0
    of_area = raised.finding.area.region or IMAGE
    beside = [
        name
        for name, spec in specs.items()
        if spec.region == of_area and spec.better and not spec.detail and name != key
    ]
    against = [name for name in beside if sign[name] * (history[now][name] - history[best][name]) < 0]
    inside = torch.ones(real.shape[2:], dtype=torch.bool)
    if of_area != IMAGE:
        partition = evaluator.fitted.regions.partition
        inside = partition.pixel_labels() == partition.regions()[of_area]
    was, is_now = (measured(drawn[i], real[: len(drawn[i])], inside) for i in (best, now))
    shown = [name for name in was if is_now[name] > CLEARLY * was[name]]
    return [
        f"{raised.finding.area}, epoch {now}",
        f"{key}: {history[best][key]:.2g} at {best}, {history[now][key]:.2g} at {now}",
        "yes" if worse else "no",
        ", ".join(against) or "none",
        ", ".join(shown) or "nothing",
    ]


def measured(fake: Tensor, real: Tensor, inside: Tensor) -> dict[str, float]:
    """Return measures of an area, all of them the worse the larger; spread and detail are 1 at best."""
    x, y = fake[:, :, inside], real[:, :, inside]
    spread = float(x.var(0).sum() / y.var(0).sum())
    detail = float(detail_of(fake, inside) / detail_of(real, inside))
    found = fidelity(x, y)
    return {
        "FID": found["fid"],
        "precision": 1 / max(found["precision"], 1 / SAMPLES),
        "coverage": 1 / max(found["coverage"], 1 / SAMPLES),
        "spread": max(spread, 1 / spread),
        "detail": max(detail, 1 / detail),
    }


def detail_of(images: Tensor, inside: Tensor) -> Tensor:
    """Return the mean square of what neighboring pixels of an area differ by."""
    both = inside[:, 1:] & inside[:, :-1]
    return (images[..., 1:] - images[..., :-1])[:, :, both].square().mean()
