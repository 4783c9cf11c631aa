# SPDX-License-Identifier: Apache-2.0
"""Which measure of an evaluation follows the quality of a generator through its training?

python benchmarks/measure.py                  # twelve trainings, half an hour; writes measure.md
python benchmarks/measure.py "GAN, digits"    # one of them

What is done stays in build/measure.json and is not done again; the tables hold all of it.

Each training is evaluated twelve times. Quality is judged by features of a classifier that was trained on the labels
of the same images, which no monitor sees: Fréchet distance, precision with recall, and how well a new classifier tells
generated images from real ones.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import torch
from diagnosis_generators import GAN, HELD_OUT, VAE, Diffusion, descend, trained
from diagnosis_images import ImageSet, generator_of, image_set
from diagnosis_trainings import independent_samples
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from stamp import HERE, processor, stamp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torchmetrics.image.fid import _compute_fid

from genmonitor import LoopMonitor
from genmonitor.evaluation import RegionEvaluator, RegionSettings
from genmonitor.functional import maximum_mean_discrepancy, precision_recall_density_coverage

DONE = HERE.parent / "build" / "measure.json"
SAMPLES = 500
EVALUATED_AT = (15, 30, 50, 80, 120, 180, 260, 380, 550, 800, 1150, 1600)
"""Steps of training."""
FLOW_STEPS = 20


class Flow(Diffusion):
    """A flow model: it learns the velocity on straight lines from noise to images (Lipman et al. 2023)."""

    def step(self, x: Tensor) -> None:
        """Take a step on a batch of images."""
        noise, steps = torch.randn_like(x), torch.randint(FLOW_STEPS, (len(x),))
        time = ((steps + torch.rand(len(x))) / FLOW_STEPS)[:, None, None, None]
        velocity = self.predict((1 - time) * noise + time * (2 * x - 1), steps)
        descend(self.optimizer, mse_loss(velocity, 2 * x - 1 - noise))

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """Draw n images, by Euler's method."""
        images = torch.randn(n, *self.shape)
        for step in range(FLOW_STEPS):
            images = images + self.predict(images, torch.full((n,), step)) / FLOW_STEPS
        return ((images + 1) / 2).clamp(0, 1)


MODELS: dict[str, Callable[..., nn.Module]] = {"GAN": GAN, "VAE": VAE, "diffusion": Diffusion, "flow": Flow}
TRAININGS = [(model, name) for model in MODELS for name in ("digits", "clothes", "scenes")]
CANDIDATES: dict[str, Callable[[dict[str, float]], float]] = {
    "error ratio": lambda x: x["error_ratio_image"],
    "1 − CMS": lambda x: 1 - x["image"],
    "MMD²": lambda x: x["mmd"],
    "structure": lambda x: x["structure_image"],
    "texture": lambda x: x["texture_image"],
    "larger view": lambda x: max(x["structure_image"], x["texture_image"]),
    "product of views": lambda x: max(x["structure_image"], 0) * max(x["texture_image"], 0),
    "KID, random features": lambda x: x["kid"],
}
TRUTHS = ("FID", "precision and recall", "classifier test")


def classifier(data: ImageSet) -> nn.Module:
    """Train a classifier of a set's labels; its output but for the last layer are the features of this domain."""
    torch.manual_seed(0)
    channels, classes = data.images.shape[1], int(data.labels.max()) + 1
    features = nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(64), nn.ReLU()),
    )
    both = nn.Sequential(features, nn.Linear(64, classes))
    both(data.images[:2])
    optimizer = torch.optim.Adam(both.parameters(), 1e-3)
    for _ in range(800):
        chosen = torch.randint(len(data.images) - HELD_OUT, (64,))
        descend(optimizer, cross_entropy(both(data.images[chosen]), data.labels[chosen]))
    accuracy = (both(data.images[-HELD_OUT:]).argmax(1) == data.labels[-HELD_OUT:]).float().mean()
    print(f"classifier of {int(classes)} classes: {100 * float(accuracy):.0f} % of held-out images right", flush=True)
    return features.eval().requires_grad_(False)


def random_features(shape: torch.Size) -> nn.Module:
    """Return a network that was not trained."""
    torch.manual_seed(1)
    net = nn.Sequential(
        *(nn.Conv2d(shape[0], 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(3), nn.Flatten()),
    )
    return net.eval().requires_grad_(False)


def quality(fake: Tensor, real: Tensor) -> dict[str, float]:
    """Return what features of the domain say of generated images, less for better ones."""
    x, y = fake.double(), real.double()
    fid = _compute_fid(y.mean(0), y.T.cov(), x.mean(0), x.T.cov())
    found = precision_recall_density_coverage(fake, real)
    labels = np.repeat([0, 1], [len(x), len(y)])
    both = torch.cat([x, y]).numpy()
    both = (both - both.mean(0)) / (both.std(0) + 1e-6)
    accuracy = cross_val_score(LogisticRegression(max_iter=500), both, labels, cv=5).mean()
    return {
        "FID": float(fid),
        "precision and recall": 2 - float(found["precision"]) - float(found["recall"]),
        "classifier test": float(accuracy),
    }


def evaluations(model_name: str, of_set: str) -> list[dict[str, float]]:
    """Train a generator; return the monitor's values and its quality at each evaluation."""
    data = image_set(of_set)
    images, held_out = data.images[:-HELD_OUT].clamp(0, 1), data.images[-HELD_OUT:].clamp(0, 1)
    seen, unknown = classifier(data), random_features(images.shape[1:])
    real = held_out[torch.randperm(HELD_OUT, generator=generator_of(of_set))[:SAMPLES]]
    torch.manual_seed(0)
    model, at, qualities = MODELS[model_name](tuple(images.shape[1:])), 0, []
    settings = RegionSettings(n_clusters=4, n_cluster_images=600, n_samples=SAMPLES)
    with tempfile.TemporaryDirectory() as folder:
        given = {"real_images": images, "validation_images": held_out, "verbose": False}
        monitor = LoopMonitor(RegionEvaluator(settings), folder=folder, on_alert=lambda _: None, **given)
        for epoch, steps in enumerate(EVALUATED_AT):
            trained(model, images, steps - at)
            at = steps
            monitor.evaluate(model.sample, model, step=steps, epoch=epoch)
            fake = independent_samples(model)
            kid = maximum_mean_discrepancy(unknown(fake), unknown(real))
            qualities.append(quality(seen(fake), seen(real)) | {"kid": float(kid)})
        return [{**record, **found} for record, found in zip(monitor.history, qualities, strict=True)]


def correlations(records: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return each candidate's rank correlation with each judgement."""
    return {
        name: {
            truth: float(spearmanr([value(x) for x in records], [x[truth] for x in records]).statistic)
            for truth in TRUTHS
        }
        for name, value in CANDIDATES.items()
    }


def table(found: dict[str, dict[str, dict[str, float]]], truth: str) -> str:
    """Return a row for each training, and the median and the least of all that could be ranked."""
    lines = ["| training | " + " | ".join(CANDIDATES) + " |", "| --- |" + " ---: |" * len(CANDIDATES)]
    rows = {name: [of[candidate][truth] for candidate in CANDIDATES] for name, of in found.items()}
    every = np.array(list(rows.values()))
    rows |= {"**median**": np.nanmedian(every, 0).tolist(), "**least**": np.nanmin(every, 0).tolist()}
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join("–" if np.isnan(x) else f"{x:.2f}" for x in row) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the trainings and write the tables."""
    chosen = [training for training in TRAININGS if ", ".join(training) in (sys.argv[1:] or map(", ".join, TRAININGS))]
    found = json.loads(DONE.read_text()) if DONE.exists() else {}
    DONE.parent.mkdir(exist_ok=True)
    for training in chosen:
        name = ", ".join(training)
        if name not in found:
            found[name] = correlations(evaluations(*training))
            DONE.write_text(json.dumps(found))
        print(name, {candidate: round(of["FID"], 2) for candidate, of in found[name].items()}, flush=True)
    found = {name: found[name] for name in map(", ".join, TRAININGS) if name in found}
    text = HEAD.format(
        count=len(found),
        processor=processor(),
        torch=version("torch"),
        stamp=stamp(),
        samples=SAMPLES,
    )
    text += "".join(f"\n## Rank correlation with {truth}\n\n{table(found, truth)}\n" for truth in TRUTHS)
    (HERE / "measure.md").write_text(text, encoding="utf-8")


HEAD = """# Which measure follows the quality of a generator?

`python benchmarks/measure.py` on {processor}: torch {torch}; {stamp}.

{count} trainings, each evaluated twelve times with {samples} generated against {samples} held-out images. A row is the
rank correlation, over one training, of a measure with what features of a classifier of the same images say.
"""


if __name__ == "__main__":
    main()
