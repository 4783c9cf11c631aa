# SPDX-License-Identifier: Apache-2.0
"""How far PromptSplit's eigenvalues are off with r random frequencies, and with n samples, after its paper's ablations.

python examples/papers/promptsplit/ablations.py     # half a minute; two tables, and a picture of both

The error in r is the distance between all exact eigenvalues and those of random features of the same samples, beside
the bound of Theorem 1; the error in n that of the outermost ones from those of many samples. The data are the Gaussian
mixtures of gaussian_mixture.py, four of whose eight components differ.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import torch
from gaussian_mixture import COMPONENTS, mixtures
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor.functional import prompt_split
from genmonitor.kernels import GaussianKernel
from genmonitor.kernels.product import PairKernel
from genmonitor.plotting.style import FAINT, INK, add_axes, cluster_color, new_figure

DIFFERING, MODES, ETA, DELTA = 4, 8, 1.0, 0.05
KERNELS = {"output_kernel": GaussianKernel.from_sigma(5.0), "prompt_kernel": GaussianKernel.from_sigma(0.5)}
"""Given, so that all numbers of samples have the same."""

Errors = Mapping[int, list[float]]


def bound(frequencies: int) -> float:
    """Return the bound of Theorem 1, which holds with probability 1 - `DELTA`."""
    return math.sqrt((8 + 8 * ETA**2) / frequencies) * (1 + math.sqrt(2 * math.log(1 / DELTA)))


def errors_in_r(frequencies: list[int], per_component: int, draws: int) -> Errors:
    """Return ‖λ - λ̃‖ over all eigenvalues, exact and of random features, for each number of frequencies and draw."""
    x, t, y, u = mixtures(DIFFERING, per_component)
    pairs = PairKernel.of(y, u, **KERNELS)
    rows = torch.cat([pairs.rows(x, t), pairs.rows(y, u)]).double()
    exact = spectrum(pairs.gram(rows, rows))
    return {
        r: [float((exact - spectrum_of(pairs.features(r, seed)(rows))).norm()) for seed in range(draws)]
        for r in frequencies
    }


def spectrum(gram: Tensor) -> Tensor:
    """Return the eigenvalues of D K, falling, K the Gram matrix of both sides, as those of Lᵀ D L with K = L Lᵀ."""
    return spectrum_of(torch.linalg.cholesky(gram + 1e-12 * torch.eye(len(gram)).to(gram)))


def spectrum_of(features: Tensor) -> Tensor:
    """Return the eigenvalues of the difference of covariances of features [2 n, R], falling, 2 n with zeros."""
    n = len(features) // 2
    weights = features.new_tensor([1 / n] * n + [-ETA / n] * n)
    triangle = torch.linalg.qr(features.T, mode="r").R if features.shape[1] > 2 * n else features.T
    values = torch.linalg.eigvalsh(triangle * weights @ triangle.T)
    return torch.cat([values, values.new_zeros(2 * n - len(values))]).sort(descending=True).values


def errors_in_n(per_component: list[int], many: int, draws: int) -> Errors:
    """Return ‖λ - λ'‖ over the 16 outermost eigenvalues of n samples a side and of many, for each n and draw."""
    target = outermost(many, seed=0)
    return {
        COMPONENTS * count: [float((outermost(count, seed) - target).norm()) for seed in range(1, draws + 1)]
        for count in per_component
    }


def outermost(per_component: int, seed: int) -> Tensor:
    """Return the eigenvalues of fresh samples of the same mixtures."""
    return prompt_split(*mixtures(DIFFERING, per_component, noise_seed=seed), **KERNELS, num_modes=MODES).eigenvalues


def picture(in_r: Errors, in_n: Errors) -> Figure:
    """Draw both errors on logarithmic axes, beside what Theorem 1 and the square root of n say."""
    note = "Points: draws. Orange: their mean. Dashed: the bound of Theorem 1, and on the right one over the root of n."
    figure = new_figure(1000, 450, "The error falls with random frequencies and with samples", note)
    first = next(iter(in_n))
    root = {n: fmean(in_n[first]) * math.sqrt(first / n) for n in in_n}
    panels: list[tuple[Errors, dict[int, float], str, str]] = [
        (in_r, {r: bound(r) for r in in_r}, "r, random frequencies", "all eigenvalues, against the exact ones"),
        (in_n, root, "n, samples a side", "16 outermost eigenvalues, against many samples"),
    ]
    style: dict[str, Any] = {"linewidth": 2}
    for index, (errors, line, label, title) in enumerate(panels):
        ax = add_axes(figure, 80 + 490 * index, 80, 400, 280)
        for x, values in errors.items():
            ax.scatter([x] * len(values), values, s=12, color=FAINT)
        ax.plot(list(line), list(line.values()), "--", color="#888888", **style)
        ax.plot(list(errors), [fmean(values) for values in errors.values()], color=cluster_color(4), **style)
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(list(errors), [str(x) for x in errors])
        ax.minorticks_off()
        ax.set_xlabel(label, fontsize=11, color=INK)
        ax.set_title(title, fontsize=11, color=INK, loc="left")
        ax.grid(axis="y", color="#E8E8E8", linewidth=0.8)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def print_errors(name: str, errors: Errors, bounds: Mapping[int, float]) -> None:
    """Print the mean and the spread of each number, and the bound where there is one."""
    print(f"{name:>6}  mean error  90 % below{'  Theorem 1' if bounds else ''}")
    for x, values in errors.items():
        high = quantiles(values, n=10)[-1] if len(values) > 1 else values[0]
        print(f"{x:>6}  {fmean(values):>10.4f}  {high:>10.4f}" + (f"  {bounds[x]:>9.4f}" if bounds else ""))


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frequencies", type=int, nargs="+", default=[50, 100, 200, 400, 800, 1600, 3200])
    parser.add_argument("--per-component", type=int, nargs="+", default=[5, 10, 20, 40, 80], help="samples a side / 8")
    parser.add_argument("--many", type=int, default=400, help="samples of each component that stand for all")
    parser.add_argument("--draws", type=int, default=10, help="of frequencies, and of samples")
    parser.add_argument("--out", type=Path, default=Path("runs/promptsplit"), help="where the picture is written")
    args = parser.parse_args()
    in_r = errors_in_r(args.frequencies, 25, args.draws)
    print_errors("r", in_r, {r: bound(r) for r in in_r})
    in_n = errors_in_n(args.per_component, args.many, args.draws)
    print()
    print_errors("n", in_n, {})
    args.out.mkdir(parents=True, exist_ok=True)
    picture(in_r, in_n).savefig(args.out / "ablations.png")
    print(f"\nPicture: {args.out / 'ablations.png'}")


if __name__ == "__main__":
    main()
