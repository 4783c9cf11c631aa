# SPDX-License-Identifier: Apache-2.0
"""Train a DCGAN on digits and watch FID, KID, MiFID and Inception score beside CMS, all of the same samples.

python examples/fid_beside_cms.py                              # about two minutes
python examples/fid_beside_cms.py --inception WEIGHTS.pth

All of these look at features of a network: here of a small one that knows digits, trained first. Photographs want
Inception's; torchmetrics has that network once `pip install torch-fidelity` was run, and its weights are the file
pt_inception-2015-12-05-6726825d.pth of https://github.com/toshas/torch-fidelity/releases.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from curves import add_curve, cms_axis, epoch_axis, latest
from data import ImageData
from dcgan import DCGAN
from lightning import Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import Metric
from torchmetrics.image.fid import FrechetInceptionDistance, NoTrainInceptionV3
from torchmetrics.image.inception import InceptionScore
from torchmetrics.image.kid import KernelInceptionDistance
from torchmetrics.image.mifid import MemorizationInformedFrechetInceptionDistance

from genmonitor._formatting import format_cms
from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.regions.search import Band, measure_baseline
from genmonitor.evaluation.results import curve
from genmonitor.plotting.style import INK, add_axes, new_figure

FEATURES = 32
_PANEL, _GAP, _COLUMNS = 190, 80, 2
_STEEP = 20  # values that span more than this factor are read on a log scale


class DigitFeatures(nn.Module):
    """From images [n, 1, 8, 8] in [-1, 1] to features [n, 32], the last layer but one of a classifier."""

    num_features = FEATURES  # where torchmetrics looks

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 16, FEATURES),
            nn.ReLU(),
        )
        self.scale = 1.0

    def forward(self, images: Tensor) -> Tensor:
        """Return features."""
        features: Tensor = self.layers(images.float())
        return features / self.scale


def train_classifier(data: ImageData, steps: int = 400) -> tuple[DigitFeatures, nn.Sequential, float]:
    """Learn to tell digits apart.

    Returns:
        The features, the whole classifier with logits [n, 10], and its accuracy on the held-out images.
    """
    features, last = DigitFeatures(), nn.Linear(FEATURES, 10)
    classifier = nn.Sequential(features, last)
    optimizer = torch.optim.AdamW(classifier.parameters(), 3e-3)
    batches = iter(())
    for _ in range(steps):
        batch = next(batches, None)
        if batch is None:
            batches = iter(data.train_dataloader())
            batch = next(batches)
        images, labels = batch
        optimizer.zero_grad()
        cross_entropy(classifier(images), labels).backward()
        optimizer.step()
    held_out = data.val_images
    with torch.no_grad():
        # to a standard deviation of 1: KID, which cubes products of features, is in the millions otherwise
        features.scale = float(features(data.train_images.images).std())
        last.weight *= features.scale
        accuracy = float((classifier(held_out.images).argmax(1) == held_out.labels).float().mean())
    return features.eval().requires_grad_(False), classifier.eval().requires_grad_(False), accuracy


class TrainedDigitFeatures(DigitFeatures):
    """The same after training, with weights that are the same every time: for configuration files."""

    def __init__(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            super().__init__()
            trained, _, _ = train_classifier(ImageData("digits", with_labels=True))
        self.layers, self.scale = trained.layers, trained.scale


class Inception(nn.Module):
    """torchmetrics' Inception on images [n, 1 or 3, h, w] in [-1, 1].

    Args:
        weights: the file of its weights.
        layer: "2048" for features, "logits_unbiased" for the Inception score.

    Raises:
        ModuleNotFoundError: if torch-fidelity is not installed.
    """

    num_features = 2048

    def __init__(self, weights: str | Path, layer: str = "2048") -> None:
        super().__init__()
        self.network = NoTrainInceptionV3("inception-v3-compat", [layer], str(weights))

    def forward(self, images: Tensor) -> Tensor:
        """Return the layer's values."""
        levels = ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
        features: Tensor = self.network(levels.expand(-1, 3, -1, -1))
        return features


def make_networks(inception: Path | None) -> tuple[nn.Module, nn.Module]:
    """Return a network for features and one for logits."""
    if inception is not None:
        return Inception(inception), Inception(inception, "logits_unbiased")
    features, classifier, accuracy = train_classifier(ImageData("digits", with_labels=True))
    print(f"The feature network tells {100 * accuracy:.1f} % of the held-out digits.")
    return features, classifier


def make_metrics(features: nn.Module, classifier: nn.Module, n_samples: int) -> dict[str, Metric]:
    """Return torchmetrics' own metrics on these networks; the real side is encoded once where they can keep it."""
    shape = (1, 8, 8)
    kid = KernelInceptionDistance(features, subsets=20, subset_size=n_samples // 2, reset_real_features=False)
    mifid = MemorizationInformedFrechetInceptionDistance(features, reset_real_features=False)
    return {
        "fid": FrechetInceptionDistance(features, reset_real_features=False, input_img_size=shape),
        "kid": kid,
        "mifid": mifid,
        "inception_score": InceptionScore(classifier, splits=5),
    }


def baselines(metrics: Mapping[str, Metric], data: ImageData, n: int) -> dict[str, Band]:
    """Return what training images get in place of generated ones, 20 times, as genmonitor measures it for CMS.

    Args:
        metrics: as `make_metrics` gives them, with the real side that they were compared with; they keep it.
        data: with the training images.
        n: images of a draw.
    """

    def measure(images: Tensor) -> dict[str, float]:
        values = {}
        for name, metric in metrics.items():
            metric.reset()
            metric.update(images) if isinstance(metric, InceptionScore) else metric.update(images, real=False)
            found = metric.compute()
            values[name] = float(found[0] if isinstance(found, tuple) else found)
        return values

    known = data.train_images.images
    return measure_baseline(lambda draws: (measure(known[draw]) for draw in draws), len(known), n, seed=0)


def picture(monitor: PixelClusterMonitor, names: Sequence[str], bands: Mapping[str, Band]) -> Figure:
    """Draw CMS and the other metrics, each with its baseline."""
    history = monitor.history
    values = {name: curve(history, name) for name in names}
    deviations = {name: curve(history, f"{name}_std") for name in names if f"{name}_std" in history[-1]}
    band = monitor.evaluator.baseline["image"]
    return beside_cms(curve(history, "epoch"), curve(history, "image"), band, values, deviations, bands)


def beside_cms(
    epochs: Sequence[float],
    image: Sequence[float],
    baseline: Band | None,
    others: Mapping[str, Sequence[float]],
    deviations: Mapping[str, Sequence[float]] | None = None,
    bands: Mapping[str, Band] | None = None,
) -> Figure:
    """CMS of the image and other metrics of the same samples.

    Args:
        epochs: one per evaluation.
        image: CMS, one per evaluation.
        baseline: (low, median, high) of CMS; None for none.
        others: name to one value per evaluation, nan where none.
        deviations: standard deviations of those others that have one, drawn as a band around the curve.
        bands: (low, median, high) of what real images get, of those others that have it measured.

    >>> figure = beside_cms([1, 2], [0.9, 0.99], None, {"fid": [8.0, 3.0], "kid": [1.0, 0.5]}, {"kid": [0.1, 0.1]})
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['CMS, latest 0.9900', 'fid, latest 3', 'kid, latest 0.5']
    """
    rows = -(-(1 + len(others)) // _COLUMNS)
    known_bands = {"CMS": baseline, **(bands or {})}
    note = "the same samples for all; gray bars: what real images get; around a curve: one standard deviation"
    figure = new_figure(1000, 80 + (_PANEL + _GAP) * rows, "Other metrics beside CMS", note)
    places = [
        (70 + 490 * (i % _COLUMNS), 50 + (_PANEL + _GAP) * (rows - 1 - i // _COLUMNS)) for i in range(1 + len(others))
    ]
    axes = [add_axes(figure, left, bottom, 400, _PANEL) for left, bottom in places]
    cms_axis(axes[:1], [*image, *(baseline or ())])
    for ax, name, values in zip(axes, ["CMS", *others], [image, *others.values()], strict=True):
        epoch_axis(ax, epochs)
        if band := known_bands.get(name):
            ax.axhspan(band[0], band[2], color=INK, alpha=0.15, linewidth=0)
        add_curve(ax, epochs, values, INK, name)
        if name in (deviations or {}):
            mean, std = np.asarray(values), np.asarray((deviations or {})[name])
            ax.fill_between(epochs, mean - std, mean + std, color=INK, alpha=0.15, linewidth=0)
        number = format_cms(latest(values)) if ax is axes[0] else f"{latest(values):.4g}"
        ax.set_title(f"{name}, latest {number}", loc="left", fontsize=11, color=INK)
        ax.set_ylabel("")
        ax.spines[["top", "right"]].set_visible(False)
        if ax is axes[0]:
            continue
        known = [value for value in values if np.isfinite(value)]
        if known and 0 < min(known) * _STEEP < max(known):
            ax.set_yscale("log")
            ax.yaxis.set_minor_formatter(NullFormatter())
        elif known and max(known) >= 1e4:
            ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    return figure


def main() -> None:
    """Train, and say where to look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=81)
    parser.add_argument("--n-samples", type=int, default=500, help="images generated at each evaluation")
    parser.add_argument("--inception", type=Path, help="the file of Inception's weights")
    parser.add_argument("--out", type=Path, default=Path("runs/fid-beside-cms"), help="where runs are written")
    args = parser.parse_args()
    seed_everything(0, verbose=False)
    features, classifier = make_networks(args.inception)
    metrics, data = make_metrics(features, classifier, args.n_samples), ImageData("digits")
    monitor = PixelClusterMonitor(
        n_clusters=5,
        n_samples=args.n_samples,
        every_n_epochs=max(1, args.epochs // 16),
        extra_metrics=metrics,
    )
    logger = TensorBoardLogger(args.out.parent, name=args.out.name)
    trainer = Trainer(max_epochs=args.epochs, logger=logger, callbacks=[monitor], log_every_n_steps=1)
    trainer.fit(DCGAN(lr=1e-3), datamodule=data)
    bands = baselines(metrics, data, args.n_samples)
    figure = Path(logger.log_dir) / "fid-beside-cms.png"
    picture(monitor, list(metrics), bands).savefig(figure)
    print(f"Figure: {figure}")
    print(f"Curves: tensorboard --logdir {args.out}")


if __name__ == "__main__":
    main()
