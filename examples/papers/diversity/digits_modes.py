# SPDX-License-Identifier: Apache-2.0
"""Vendi, RKE, FKEA, KEN and authenticity on real digits whose classes and copies are known.

python examples/papers/diversity/digits_modes.py        # half a minute; four tables and a picture
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor

from genmonitor import Authenticity, GaussianKernel, PromptSplit, RKEScore, VendiScore
from genmonitor.functional import rke_score, vendi_score

KERNEL = GaussianKernel.from_sigma(4.0)
NOVEL = (3, 7)
"""Classes that the reference lacks."""


def digits(seed: int) -> tuple[Tensor, Tensor]:
    """Return all digits in [-1, 1] in a random order [1797, 64], and their classes."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(seed))
    return torch.from_numpy(data.images / 8 - 1).flatten(1)[order], torch.from_numpy(data.target)[order]


def by_classes(x: Tensor, classes: Tensor, n: int) -> list[tuple[int, float, float]]:
    """Return Vendi and RKE of n digits of the first 1, 2, 5 and 10 classes."""
    found = []
    for count in (1, 2, 5, 10):
        some = torch.cat([x[classes == c][: n // count] for c in range(count)])
        found.append((count, float(vendi_score(some, kernel=KERNEL)), float(rke_score(some, kernel=KERNEL))))
    return found


def by_random_features(x: Tensor, sizes: list[int]) -> list[tuple[str, float, float]]:
    """Return Vendi and RKE by random Fourier features, and exactly."""
    found = []
    for size in (*sizes, None):
        metrics = VendiScore(KERNEL, num_features=size), RKEScore(KERNEL, num_features=size)
        for metric in metrics:
            metric.update(x)
        found.append((str(size or "exact"), *(float(metric.compute()) for metric in metrics)))
    return found


def novel(x: Tensor, classes: Tensor, eta: float, known: Tensor) -> tuple[float, Tensor, Tensor]:
    """Return KEN of the first half against the second one's known classes, and the 10 top samples of 4 modes."""
    half = len(x) // 2
    metric = PromptSplit(KERNEL, eta=eta, num_modes=4)
    metric.update(x[:half], reference=False)
    metric.update(x[half:][torch.isin(classes[half:], known)], reference=True)
    modes = metric.modes()
    top = modes.scores[:, :4].topk(10, dim=0).indices
    return float(modes.total), x[:half][top.T], classes[:half][top.T]


def copied(x: Tensor, share: float) -> tuple[float, int]:
    """Return the authenticity of held-out digits, of which some are replaced by training ones, and the copies found."""
    half = len(x) // 2
    train, held_out = x[:half], x[half : 2 * half].clone()
    count = round(share * len(held_out))
    held_out[:count] = train[:count] + 0.01
    metric = Authenticity()
    metric.update(train, real=True)
    metric.update(held_out, real=False)
    pairs = metric.copies()
    return float(metric.compute()), int(((pairs[:, 0] < count) & (pairs[:, 0] == pairs[:, 1])).sum())


def draw(rows: dict[str, Tensor]) -> Figure:
    """Draw ten images [10, 64] in each row, under its title."""
    figure = Figure(figsize=(6, 0.8 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 10, squeeze=False)
    for row, (title, images) in zip(axes, rows.items(), strict=True):
        row[0].set_title(title, loc="left", fontsize=8)
        for ax, image in zip(row, images, strict=False):
            ax.imshow(image.reshape(8, 8).numpy(), cmap="gray", vmin=-1, vmax=1)
        for ax in row:
            ax.axis("off")
    return figure


def main() -> None:
    """Print the tables, and save the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1797, help="digits")
    parser.add_argument("--frequencies", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("digits-modes.png"))
    args = parser.parse_args()
    x, classes = (side[: args.n] for side in digits(args.seed))

    print("classes   Vendi    RKE")
    for count, vendi, rke in by_classes(x, classes, min(150, args.n // 12)):
        print(f"{count:>7}{vendi:>8.1f}{rke:>7.1f}")
    print("\nfrequencies   Vendi    RKE")
    for size, vendi, rke in by_random_features(x, args.frequencies):
        print(f"{size:>11}{vendi:>8.1f}{rke:>7.1f}")

    print("\nreference              eta    KEN   classes of the top samples, mode by mode")
    rows = {}
    without = torch.tensor([c for c in range(10) if c not in NOVEL])
    for name, known, eta in (
        ("all classes", torch.arange(10), 1.0),
        ("without 3, 7", without, 1.0),
        ("", without, 3.0),
    ):
        total, images, found = novel(x, classes, eta, known)
        tops = ["/".join(map(str, mode.unique().tolist())) for mode in found]
        print(f"{name or 'without 3, 7':<20}{eta:>6.0f}{total:>7.3f}   {', '.join(tops)}")
        if eta > 1:
            rows = {f"novel mode {i + 1}": mode for i, mode in enumerate(images[:2])}

    print("\ncopies   authenticity   named rightly")
    for share in (0.0, 0.25, 0.5, 1.0):
        value, pairs = copied(x, share)
        print(f"{share:>6.0%}{value:>15.3f}{pairs:>10} of {round(share * (len(x) // 2))}")

    metric = VendiScore(KERNEL, num_features=args.frequencies[-1])
    metric.update(x)
    top = metric.mode_scores(x, metric.modes(4)).topk(10, dim=0).indices.T
    rows = {f"mode {i + 1} (FKEA)": x[mode] for i, mode in enumerate(top)} | rows
    draw(rows).savefig(args.out, dpi=120)
    print(f"\n{args.out}")


if __name__ == "__main__":
    main()
