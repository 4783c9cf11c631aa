# SPDX-License-Identifier: Apache-2.0
"""Classes added to the images, named in the prompts or not: every score rises, Scendi only where they are not named.

python examples/papers/scendi/class_sweep.py        # a minute; two tables, and a picture of the first

After the tables of Ospanov, Jalali and Farnia 2025: Gaussian kernels with 2,000 random features, recall and coverage of
a reference set with all classes; Conditional-Vendi of Jalali et al. 2024 beside them. The second table compares the
corrected embedding x - Γ* t with plain subtraction x - t. All in the space of `tiny_clip`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure
from tiny_clip import COLORS, SHAPES, Scenes, TinyCLIP, draw_scenes, train_tiny_clip

from genmonitor import GaussianKernel, ScendiScore
from genmonitor.functional import (
    conditional_vendi_score,
    precision_recall_density_coverage,
    rke_score,
    scendi_score,
    vendi_score,
)
from genmonitor.plotting.style import INK, add_axes, cluster_color, new_figure

CURVES = {
    "vendi": ("Vendi", INK, "-"),
    "rke": ("RKE", INK, ":"),
    "scendi_unnamed": ("Scendi, Gaussian, not named", cluster_color(4), "--"),
    "scendi_named": ("Scendi, Gaussian, named", cluster_color(4), "-"),
    "cosine_unnamed": ("Scendi, cosine, not named", cluster_color(2), "--"),
    "cosine_named": ("Scendi, cosine, named", cluster_color(2), "-"),
    "conditional_unnamed": ("Conditional-Vendi, not named", cluster_color(1), "--"),
    "conditional_named": ("Conditional-Vendi, named", cluster_color(1), "-"),
}


def draw_classes(attribute: str, count: int, n: int, seed: int) -> Scenes:
    """Draw scenes with the first few shapes and any color, or the first few colors and any shape."""
    shapes = SHAPES[:count] if attribute == "shape" else SHAPES
    colors = tuple(COLORS)[:count] if attribute == "color" else tuple(COLORS)
    return draw_scenes(n, seed, shapes, colors)


def prompts_of(scenes: Scenes, attribute: str, named: bool) -> list[str]:
    """Return prompts that name shape, or color, or nothing: "a thing"."""
    return scenes.prompts(named and attribute == "shape", named and attribute == "color")


def sweep(space: TinyCLIP, attribute: str, n: int, num_features: int, seed: int = 0) -> list[dict[str, float]]:
    """Measure scenes with 1, 2 and 3 shapes, or colors, whose prompts name these, or do not.

    Returns:
        A row per number of classes: `vendi`, `rke`, `recall`, `coverage`; `scendi_named`, `cosine_named`,
        `conditional_named`; and the same of prompts that name nothing, as `scendi_unnamed`.
    """
    reference = space.images(draw_scenes(n, seed + 1).images)
    kernel = GaussianKernel().resolved(reference)
    rows = []
    for count in (1, 2, 3):
        scenes = draw_classes(attribute, count, n, seed)
        x = space.images(scenes.images)
        prdc = precision_recall_density_coverage(x, reference)
        row = {
            "vendi": vendi_score(x, kernel=kernel, num_features=num_features),
            "rke": rke_score(x, kernel=kernel, num_features=num_features),
            "recall": prdc["recall"],
            "coverage": prdc["coverage"],
        }
        for name, named in (("named", True), ("unnamed", False)):
            t, both = space.texts(prompts_of(scenes, attribute, named)), {"kernel": kernel, "prompt_kernel": kernel}
            row[f"scendi_{name}"] = scendi_score(x, t, num_features=num_features, **both)["scendi"]
            row[f"cosine_{name}"] = scendi_score(x, t)["scendi"]
            row[f"conditional_{name}"] = conditional_vendi_score(x, t, **both)["conditional_vendi"]
        rows.append({name: float(value) for name, value in row.items()})
    return rows


def subtract(space: TinyCLIP, attribute: str, n: int, seed: int = 0) -> list[dict[str, float]]:
    """Measure, by cosine, what is left of scenes with 1, 2 and 3 classes once the prompts that name them are off.

    Returns:
        A row per number of classes: Vendi of x, of x - Γ* t (`left_by_gamma`) and of x - t (`left_by_identity`).
    """
    rows = []
    for count in (1, 2, 3):
        scenes = draw_classes(attribute, count, n, seed)
        x, t = space.images(scenes.images), space.texts(prompts_of(scenes, attribute, named=True))
        metric = ScendiScore()
        metric.update(x, t)
        left = {"vendi": x, "left_by_gamma": metric.correct(x, t), "left_by_identity": x - t}
        rows.append({name: float(vendi_score(embedded)) for name, embedded in left.items()})
    return rows


def picture(rows: dict[str, list[dict[str, float]]]) -> Figure:
    """Draw the scores over the number of shapes, and of colors."""
    note = "Each score as a multiple of what it is with one class"
    figure = new_figure(900, 440, "Classes added: Scendi hardly rises where the prompts name them", note)
    for column, (attribute, found) in enumerate(rows.items()):
        ax = add_axes(figure, 60 + 300 * column, 60, 250, 300)
        for name, (label, color, line) in CURVES.items():
            values = [row[name] / found[0][name] for row in found]
            ax.plot([1, 2, 3], values, line, color=color, linewidth=2, marker="o", markersize=4, label=label)
        ax.set_xticks([1, 2, 3])
        ax.set_xlabel(f"{attribute}s drawn", fontsize=11, color=INK)
        ax.grid(axis="y", color="#E8E8E8", linewidth=0.8)
        ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1), fontsize=10, handlelength=3, frameon=False, labelcolor=INK)
    return figure


def main() -> None:
    """Train the space, print the tables and draw the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="of training the space")
    parser.add_argument("-n", type=int, default=1000, help="scenes of each row")
    parser.add_argument("--num-features", type=int, default=2000, help="random features of each Gaussian kernel")
    parser.add_argument("--out", type=Path, default=Path("runs/scendi"), help="where the picture is written")
    args = parser.parse_args()
    space, rows = train_tiny_clip(args.steps), {}
    print(f"{args.n} scenes, {args.num_features} random features; prompts that name the classes | that do not")
    print("                                               Scendi,       Scendi,       Conditional-")
    print("classes    Vendi   RKE     recall   coverage   Gaussian      cosine        Vendi")
    kinds = ("scendi", "cosine", "conditional")
    for attribute in ("shape", "color"):
        rows[attribute] = sweep(space, attribute, args.n, args.num_features)
        for count, row in enumerate(rows[attribute], start=1):
            cells = [f"{row[f'{x}_named']:.2f} | {row[f'{x}_unnamed']:.2f}" for x in kinds]
            print(
                f"{count} {attribute + 's' * (count > 1):<9}{row['vendi']:<8.2f}{row['rke']:<8.2f}{row['recall']:<9.2f}"
                f"{row['coverage']:<11.2f}{'   '.join(cells)}"
            )
    print("\nWhat is left when prompts that name the classes are taken off, by cosine: Vendi")
    print("classes    x       x - Γ* t   x - t")
    for attribute in ("shape", "color"):
        for count, row in enumerate(subtract(space, attribute, args.n), start=1):
            print(
                f"{count} {attribute + 's' * (count > 1):<9}{row['vendi']:<8.2f}{row['left_by_gamma']:<11.2f}"
                f"{row['left_by_identity']:.2f}"
            )
    args.out.mkdir(parents=True, exist_ok=True)
    picture(rows).savefig(args.out / "sweep.png")
    print(f"\nThe first table as curves: {args.out / 'sweep.png'}")


if __name__ == "__main__":
    main()
