# SPDX-License-Identifier: Apache-2.0
"""Number of images that prompts are good for: the paper's figure of W1KP_k against k, averaged over prompts.

Where the curve reaches high similarity, new images of a prompt begin to repeat earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from scipy.special import stdtrit

from genmonitor.functional import W1KPCalibration
from genmonitor.functional.w1kp import HIGH, expected_closest_pairs, reusability


@dataclass(frozen=True)
class Reusability:
    """Mean W1KP_k over prompts for k = 2, 3, … [K], with its 95 % interval."""

    mean: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    @property
    def images(self) -> int:
        """Largest number of images without two highly similar ones."""
        return reusability(self.mean, HIGH)

    @property
    def interval(self) -> tuple[int, int]:
        """That number for the upper and the lower end of the interval."""
        return reusability(self.high, HIGH), reusability(self.low, HIGH)


def reusability_of(prompts: list[torch.Tensor], calibration: W1KPCalibration) -> Reusability:
    """Average W1KP_k over the images [N, D] of each of several prompts, up to the fewest images of one."""
    k = min(map(len, prompts))
    curves = torch.stack([expected_closest_pairs(x, calibration=calibration, k=k)[0] for x in prompts])
    mean, n = curves.mean(0), len(curves)
    half = float(stdtrit(n - 1, 0.975)) * curves.std(0) / n**0.5
    return Reusability(mean, (mean - half).clamp_min(0), (mean + half).clamp_max(1))


def draw(curves: dict[str, Reusability], path: Path) -> None:
    """Draw curves by name, with their intervals and the level of high similarity."""
    figure = Figure(figsize=(7.6, 4.7), layout="constrained")
    ax = figure.subplots()
    for name, curve in curves.items():
        k = range(2, 2 + len(curve.mean))
        ax.plot(k, curve.mean, label=f"{name}: {curve.images} ({curve.interval[0]} to {curve.interval[1]})")
        ax.fill_between(k, curve.low, curve.high, alpha=0.2)
    ax.axhline(HIGH, color="gray", linestyle="--", label=f"high similarity: {HIGH}")
    ax.set(xlabel="k, images of the prompt", ylabel="W1KP_k", ylim=(0, 1), title="Images that one prompt is good for")
    ax.legend(loc="lower right", frameon=False)
    figure.savefig(path)
