# SPDX-License-Identifier: Apache-2.0
"""Calibrate W1KP on images of your own, here digits by class, and read what it says of other images of theirs.

python examples/papers/w1kp/digits_calibration.py       # a few seconds; four tables and a picture

A class stands for a prompt, its images for the outputs. The steps are those of the paper: a calibration by images of
many prompts; which distance agrees with judgments of triplets (2AFC); cut-offs between levels, fitted to judgments of
pairs; and how many images a prompt is good for. Triplets are judged by the classes of their images. Of pairs nobody has
judged any: their levels follow a known rule, part of them at random, so that one can see whether the fit finds it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[2]))
from cutoffs import FittedCutoffs, fit_cutoffs
from data import digits
from reusability import draw, reusability_of
from two_afc import TwoAFC, two_afc_accuracy

from genmonitor import W1KPScore
from genmonitor.functional import W1KPCalibration, calibrate
from genmonitor.functional.w1kp import PromptVariability

PLANTED = (0.2, 0.4, 0.85)
"""The rule by which pairs of digits are judged here: the paper's cut-offs."""
DISAGREE = 0.2
"""Part of the judgments that are drawn at random instead."""


def judge_triplets(images: Tensor, labels: Tensor, n: int) -> dict[str, TwoAFC]:
    """Ask distances which of two images is nearer to a third: the one of its class, or one of another class.

    Args:
        images: [N, 1, 8, 8].
        labels: their classes [N].
        n: triplets.
    """
    generator = torch.Generator().manual_seed(0)
    ref = torch.randint(len(images), (n,), generator=generator)
    alike = labels[ref][:, None] == labels
    alike[torch.arange(n), ref] = False
    same, other = (torch.multinomial(mask.double(), 1, generator=generator)[:, 0] for mask in (alike, ~alike))
    chose_b = torch.randint(2, (n,), generator=generator)
    a, b = torch.where(chose_b == 0, same, other), torch.where(chose_b == 0, other, same)
    out = {}
    for name, features in embeddings(images).items():
        to_a, to_b = ((features[ref] - features[i]).square().sum(1) for i in (a, b))
        out[name] = two_afc_accuracy(to_a, to_b, chose_b.double())
    return out


def embeddings(images: Tensor) -> dict[str, Tensor]:
    """Return features [N, D] by name; the distance is the squared Euclidean one, as the paper's."""
    small = torch.nn.functional.avg_pool2d(images, 2)
    ink = images + 1
    return {
        "pixels": images.flatten(1),
        "pixels, of length one (cosine)": torch.nn.functional.normalize(ink.flatten(1)),
        "means of 2 x 2 pixels": small.flatten(1),
        "ink in all": ink.mean((1, 2, 3))[:, None],
    }


def judge_pairs(features: Tensor, labels: Tensor, calibration: W1KPCalibration) -> tuple[Tensor, Tensor]:
    """Return the similarity of pairs of one class [n], and levels that follow `PLANTED`, but for `DISAGREE` of them."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(features), generator=generator)
    order = order[labels[order].argsort(stable=True)]
    first, second = order[:-1:2], order[1::2]
    one_class = labels[first] == labels[second]
    first, second = first[one_class], second[one_class]
    similarity = 1 - calibration((features[first] - features[second]).square().sum(1))
    levels = torch.bucketize(similarity, torch.tensor(PLANTED), right=True)
    lost = torch.rand(len(levels), generator=generator) < DISAGREE
    return similarity, torch.where(lost, torch.randint(4, levels.shape, generator=generator), levels)


def print_classes(rows: list[PromptVariability]) -> None:
    """Print what W1KP says of each class."""
    print("class   W1KP  level    good for   closest pair")
    for row in rows:
        good_for = f"{row.reusability} of {row.outputs}"
        print(f"{row.prompt:>5}  {row.w1kp:>5.2f}  {row.level:<7} {good_for:>9}   {row.closest:.3f}")


def print_triplets(found: dict[str, TwoAFC]) -> None:
    """Print how often each distance chooses the image of the same class."""
    print(f"\n{'distance':<32}{'2AFC':>6}   95 % interval")
    for name, result in sorted(found.items(), key=lambda item: -item[1].accuracy):
        print(f"{name:<32}{100 * result.accuracy:>5.1f} %   {100 * result.low:.1f} to {100 * result.high:.1f} %")


def print_cutoffs(found: FittedCutoffs, calibration: W1KPCalibration, pairs: int) -> None:
    """Print planted and fitted cut-offs, and the distances that they stand for."""
    distances = np.interp([1 - value for value in found.cutoffs], calibration.heights, calibration.distances)
    print(f"\ncut-offs from {pairs} simulated judgments, {100 * DISAGREE:.0f} % of them at random")
    print("level begins     low  medium    high")
    print("planted      " + "".join(f"{value:>7.2f} " for value in PLANTED))
    print("fitted       " + "".join(f"{value:>7.3f} " for value in found.cutoffs))
    print("distance     " + "".join(f"{value:>7.2f} " for value in distances))
    print(f"accuracy {100 * found.cross_validated:.1f} % ± {100 * found.deviation:.1f} % over five folds")


def main() -> None:
    """Calibrate, save, load, measure, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("runs/w1kp"), help="where the calibration and the picture go")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train, held_out = digits(with_labels=True)
    assert train.labels is not None
    assert held_out.labels is not None

    features = train.images.flatten(1)
    calibrate(features, train.labels).save(args.out / "digits.pt")
    calibration = W1KPCalibration.load(args.out / "digits.pt")

    metric = W1KPScore(calibration)
    metric.update(held_out.images.flatten(1), held_out.labels)
    rows = metric.per_prompt()
    print_classes(rows)
    print_triplets(judge_triplets(train.images, train.labels, args.triplets))
    similarity, levels = judge_pairs(features, train.labels, calibration)
    print_cutoffs(fit_cutoffs(similarity, levels), calibration, len(levels))

    classes = [held_out.images[held_out.labels == digit].flatten(1) for digit in range(10)]
    curve = reusability_of(classes, calibration)
    low, high = curve.interval
    print(f"\na class is good for {curve.images} images ({low} to {high}) before two are highly similar")
    draw({"ten classes": curve}, args.out / "digits-reusability.png")
    print(f"calibration and picture: {args.out}")


if __name__ == "__main__":
    main()
