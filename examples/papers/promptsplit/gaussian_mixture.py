# SPDX-License-Identifier: Apache-2.0
"""As many modes as components that differ: PromptSplit of two Gaussian mixtures, after Figure 12 of its paper.

python examples/papers/promptsplit/gaussian_mixture.py     # some seconds; a table, and a picture of the eigenvalues

Each side has eight components of 50 values, 100 samples each, and a one-hot prompt of 8 values for each component. From
k = 0 to 8 of the reference's components lie elsewhere: k eigenvalues stand out above zero and k below it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor.functional import prompt_split, prompt_split_energy
from genmonitor.plotting.style import FAINT, INK, add_axes, cluster_color, new_figure

COMPONENTS, DIM, SPREAD, MODES = 8, 50, 0.3, 12
LARGE = 0.05
"""An eigenvalue that is further from zero stands out: a component has an eighth of the samples."""
TEST, REFERENCE = cluster_color(4), cluster_color(1)


def mixtures(differing: int, per_component: int, noise_seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw outputs [8 n, 50] and prompts [8 n, 8] of the test side and of the reference, the first components moved."""
    centers, elsewhere = torch.randn(2, COMPONENTS, DIM, generator=torch.Generator().manual_seed(0))
    moved = torch.cat([elsewhere[:differing], centers[differing:]])
    component = torch.arange(COMPONENTS).repeat_interleave(per_component)
    noise = SPREAD * torch.randn(2, len(component), DIM, generator=torch.Generator().manual_seed(1 + noise_seed))
    prompts = torch.eye(COMPONENTS)[component]
    return centers[component] + noise[0], prompts, moved[component] + noise[1], prompts


@dataclass(frozen=True)
class Row:
    """What PromptSplit finds where k components differ.

    Attributes:
        differing: k.
        eigenvalues: [24], falling, half of either sign.
        total: of the positive ones.
        energy: the sum of all squared eigenvalues.
    """

    differing: int
    eigenvalues: Tensor
    total: float
    energy: float

    @property
    def large(self) -> Tensor:
        """Return which eigenvalues stand out [24]."""
        return self.eigenvalues.abs() > LARGE

    @property
    def rest(self) -> float:
        """Return how far the others are from zero."""
        return float(self.eigenvalues[~self.large].abs().max())


def measure(per_component: int) -> list[Row]:
    """Compare the mixtures for every k."""
    rows = []
    for differing in range(COMPONENTS + 1):
        sides = mixtures(differing, per_component)
        modes = prompt_split(*sides, num_modes=MODES)
        rows.append(Row(differing, modes.eigenvalues, float(modes.total), float(prompt_split_energy(*sides))))
    return rows


def picture(rows: list[Row]) -> Figure:
    """Draw the eigenvalues of each k, falling."""
    note = "The 24 outermost eigenvalues. Orange: only the test side. Blue: only the reference. Gray: near zero."
    figure = new_figure(1000, 640, "Where k of 8 components differ, k eigenvalues of either sign stand out", note)
    extent = 1.1 * max(float(row.eigenvalues.abs().max()) for row in rows)
    for index, row in enumerate(rows):
        ax = add_axes(figure, 60 + 320 * (index % 3), 440 - 190 * (index // 3), 280, 120)
        values = row.eigenvalues.tolist()
        signs = (TEST if value > 0 else REFERENCE for value in values)
        colors = [color if large else FAINT for color, large in zip(signs, row.large.tolist(), strict=True)]
        ax.bar(range(1, len(values) + 1), values, 0.7, color=colors)
        ax.axhline(0, color=INK, linewidth=0.8)
        ax.set(ylim=(-extent, extent), xticks=[])
        ax.set_title(f"k = {row.differing}", fontsize=11, color=INK, loc="left")
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    return figure


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-component", type=int, default=100, help="samples of each component and side")
    parser.add_argument("--out", type=Path, default=Path("runs/promptsplit"), help="where the picture is written")
    args = parser.parse_args()
    rows = measure(args.per_component)
    print("k  large > 0  large < 0  smallest large  largest other  total  energy")
    for row in rows:
        large = row.eigenvalues[row.large]
        smallest = f"{float(large.abs().min()):.3f}" if len(large) else "-"
        counts = f"{int((large > 0).sum()):>9}  {int((large < 0).sum()):>9}"
        print(f"{row.differing}  {counts}  {smallest:>14}  {row.rest:>13.4f}  {row.total:>5.3f}  {row.energy:.4f}")
    args.out.mkdir(parents=True, exist_ok=True)
    picture(rows).savefig(args.out / "gaussian-mixture.png")
    print(f"Picture: {args.out / 'gaussian-mixture.png'}")


if __name__ == "__main__":
    main()
