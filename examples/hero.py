# SPDX-License-Identifier: Apache-2.0
"""Draw what genmonitor finds in a generator whose digits lose part of their strokes from some epoch on.

python examples/hero.py                 # about a minute; writes runs/hero/hero.png

The generator stands in for one that is trained: it draws digits that no other part of the example has seen, with less
noise at each epoch, and from epoch 9 on a quarter of each digit fades. Regions, baseline, verdicts and the alert are
what a monitor would find, without a Trainer.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from data import digits
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from genmonitor.evaluation import (
    Finding,
    History,
    ImageSet,
    RegionEvaluator,
    RegionSettings,
    Samples,
    SingleProcess,
    run_evaluation,
)
from genmonitor.evaluation.regions.diagnoses import RegionEvaluation
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.evaluation.results import curve
from genmonitor.findings.finding import headlines
from genmonitor.plotting.style import (
    FAINT,
    INK,
    add_axes,
    cluster_color,
    new_figure,
    paste,
    show_regions,
    to_tiles,
)

EPOCHS, FAULT = 18, 9
"""Evaluations, and the first one at which the generator fails."""
KEPT = 0.35
"""Of the strokes where they fade, in the lower left quarter."""
ROWS, COLUMNS = 4, 4


def generate(held_out: Tensor, epoch: int) -> Tensor:
    """Return what the generator draws at an epoch, from digits [n, 1, 8, 8] in [-1, 1]."""
    noise = torch.randn(held_out.shape, generator=torch.Generator().manual_seed(epoch))
    images = held_out + 0.9 * 0.6**epoch * noise
    if epoch >= FAULT:
        faded = images[..., 4:, :4]
        images[..., 4:, :4] = -1 + KEPT * (faded + 1)
    return images.clamp(-1, 1)


def _drawn(images: Tensor) -> Samples:
    return Samples(images, torch.arange(len(images)))


def evaluate() -> tuple[RegionEvaluator, History, list[tuple[int, Finding]], Tensor, Tensor, RegionEvaluation]:
    """Run all evaluations.

    Returns:
        The fitted evaluator, the records, the alerts with their epochs, real images, the last generated ones, and what
        was found of these.
    """
    training, validation = digits()
    known, held_out = training.images[:900], training.images[900:]
    settings = RegionSettings(n_clusters=5, n_samples=len(held_out), diagnose_every=1)
    evaluator, comm = RegionEvaluator(settings), SingleProcess()
    evaluator.fit(ImageSet.of_training(known, validation.images), held_out[:16], comm)
    history: History = []
    alerts: list[tuple[int, Finding]] = []
    for epoch in range(EPOCHS):
        images = generate(held_out, epoch)
        _, found = run_evaluation(evaluator, partial(_drawn, images), comm, seed=0)
        history.append({"epoch": epoch, **found.values})
        found = replace(found, findings=evaluator.findings(found, history))
        alerts += [(epoch, alert) for alert in evaluator.commit(found, history)]
    return evaluator, history, alerts, validation.images, images, found


def region_alone(tiles: NDArray[Any], labels: NDArray[Any], region: int) -> NDArray[Any]:
    """Return images (n, H, W, 3) that are faint outside a region.

    Args:
        tiles: Images in [0, 1].
        labels: Labels (h, w) of the same images at any resolution.
        region: Label of the region.
    """
    rows, columns = (
        ((np.arange(size) + 0.5) * of / size).astype(int)
        for size, of in zip(tiles.shape[1:3], labels.shape, strict=True)
    )
    inside = (labels == region)[rows[:, None], columns]
    return np.where(inside[None, ..., None], tiles, 1 - 0.2 * (1 - tiles))


def picture(
    evaluator: RegionEvaluator,
    history: History,
    alerts: list[tuple[int, Finding]],
    real: Tensor,
    fake: Tensor,
    found: RegionEvaluation,
) -> Figure:
    """Draw real and generated digits, the region that is wrong, and the error ratio of each region over the epochs."""
    partition = evaluator.fitted.regions.partition
    finding = next(x for x in found.findings if x.area.region)
    worst = finding.area.region
    assert worst is not None
    label, labels = partition.regions()[worst], partition.pixel_labels().numpy()
    width, height, tile = 1240, 400, 52
    note = f"Digits whose lower left fades from epoch {FAULT} on. Nothing but images was given."
    figure = new_figure(width, height, str(finding), note)
    n = ROWS * COLUMNS
    sides = {name: to_tiles(images[:n].numpy(), (-1, 1)) for name, images in (("real", real), ("generated", fake))}
    sides[f"cluster {label} alone"] = region_alone(sides["generated"], labels, label)
    panel = COLUMNS * (tile + 5)
    for number, (name, tiles) in enumerate(sides.items()):
        canvas, _ = paste(tiles, COLUMNS)
        left = 18 + number * (panel + 14)
        ax = add_axes(figure, left, 70, panel, panel)
        ax.imshow(canvas, interpolation="nearest")
        ax.set_axis_off()
        color = cluster_color(label) if number == 2 else INK
        ax.set_title(name, loc="left", fontsize=12, color=color, fontweight="bold" if number == 2 else "normal")
    left = 3 * (panel + 14) + 76
    ax = add_axes(figure, left, 70, width - 154 - left, panel)
    _draw_errors(ax, history, [name for name in partition.regions() if name != "constant"], worst, label, alerts)
    regions = add_axes(figure, width - 134, 70 + panel - 116, 116, 116)
    show_regions(regions, labels)
    regions.set_title("regions", loc="left", fontsize=12, color=INK)
    return figure


def diagnosis(evaluator: RegionEvaluator, history: History, fake: Tensor, found: RegionEvaluation) -> Figure:
    """Draw where and what is wrong at the last evaluation."""
    return evaluator.presenter().figures(found, history, _drawn(fake))["diagnosis"]()


def _draw_errors(
    ax: Axes, history: History, regions: list[str], worst: str, label: int, alerts: list[tuple[int, Finding]]
) -> None:
    """Draw the error ratio of every cluster, that of the worst one in its color, and when the alert came."""
    epochs, color, keys = curve(history, "epoch"), cluster_color(label), RegionValues(regions).error_ratio
    for name in regions:
        own = name == worst
        ax.plot(
            epochs,
            curve(history, keys[name]),
            color=color if own else "#C4C4C4",
            linewidth=3 if own else 1.5,
            zorder=3 if own else 2,
        )
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.set_yticks([1, 2, 4, 8], ["1 ×", "2 ×", "4 ×", "8 ×"])
    ax.axhline(1, color=FAINT, linewidth=1)
    ax.text(epochs[-1], 1.05, "real images", fontsize=10, color="#555555", ha="right", va="bottom")
    for epoch, alert in alerts:
        if worst == alert.area.region:
            ax.axvline(epoch, color="#B3261E", linewidth=1.2, linestyle=":")
            place: dict[str, Any] = {"ha": "left", "va": "bottom", "transform": ax.get_xaxis_transform()}
            ax.text(epoch + 0.3, 0.4, "alert", fontsize=11, color="#B3261E", **place)
    ax.set_title("error ratio", loc="left", fontsize=12, color=INK)
    ax.set_xlabel("epoch", fontsize=11, color=INK)
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Evaluate, print what was found, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/hero"), help="where the picture is written")
    out = parser.parse_args().out
    evaluator, history, alerts, real, fake, found = evaluate()
    print(*headlines(found.findings), sep="\n")
    for epoch, alert in alerts:
        print(f"Alert at epoch {epoch}: {alert.text}")
    out.mkdir(parents=True, exist_ok=True)
    picture(evaluator, history, alerts, real, fake, found).savefig(out / "hero.png")
    diagnosis(evaluator, history, fake, found).savefig(out / "diagnosis.png")
    print(f"Pictures: {out / 'hero.png'}, {out / 'diagnosis.png'}")


if __name__ == "__main__":
    main()
