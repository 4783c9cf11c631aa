# SPDX-License-Identifier: Apache-2.0
"""What DiversityMonitor measures with a calibration: how alike the images of one prompt are, and of which most."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from matplotlib.figure import Figure
from torch import Tensor

from genmonitor.callbacks.modes import gathered
from genmonitor.callbacks.prompts import Prompts
from genmonitor.functional import W1KPCalibration, prompt_reusability, similarity_level
from genmonitor.functional.w1kp import PromptVariability
from genmonitor.functional.w1kp_calibration import check_arguments, similarities
from genmonitor.functional.w1kp_subsets import pair_mean
from genmonitor.plotting import diversity as diversity_figures

LISTED, SHOWN = 5, 6
"""Prompts that are listed, and images of each."""
REUSED = 50
"""Samples of a listed prompt that its reusability is measured of: the cost grows with their square."""


@dataclass
class Variability:
    """W1KP of the samples of each prompt.

    Attributes:
        calibration: of the features.
        prompts: sample i has prompt i modulo their number.
        n: samples of a check.
        least: the least varied prompts of the last check, the least first.

    Raises:
        ValueError: if there is no calibration, or a prompt has a single sample.
    """

    calibration: W1KPCalibration
    prompts: Prompts
    n: int
    least: list[PromptVariability] = field(default_factory=list)
    _listed: list[int] = field(default_factory=list)
    _images: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_arguments(self.calibration, None)
        prompt, fewest = Counter(self.prompts.names(self.n)).most_common()[-1]
        if fewest < 2:
            raise ValueError(
                f"Expected at least 2 samples of each prompt for W1KP, but {prompt!r} has one of {self.n}. "
                f"Give n_samples={2 * len(self.prompts)} or more, or fewer prompts."
            )

    def measure(self, features: Tensor, indices: Tensor) -> dict[str, float]:
        """Return the mean W1KP of the prompts, having found the least varied ones; every process must call it.

        Args:
            features: of this process's samples [n, d].
            indices: which of the global set they are [n].
        """
        features, indices = gathered(features), gathered(indices)
        numbers = self.prompts.numbers(indices)
        found = similarities(features, numbers, self.calibration)
        means = {number: float(pair_mean(similarity)) for number, similarity in found.items()}
        self._listed = sorted(means, key=lambda number: means[number], reverse=True)[:LISTED]
        self.least = [self._row(number, means[number], features[numbers == number]) for number in self._listed]
        return {"w1kp": sum(means.values()) / len(means)}

    def keep_images(self, samples: Tensor, indices: Tensor) -> None:
        """Keep images of the least varied prompts for the figure; every process must call it.

        Args:
            samples: this process's [n, C, H, W].
            indices: which of the global set they are [n].
        """
        numbers = self.prompts.numbers(indices)
        self._images = [gathered(samples[numbers == number][:SHOWN])[:SHOWN].cpu() for number in self._listed]

    def figure(self, value_range: tuple[float, float]) -> Figure:
        """Draw the least varied prompts with some of their images."""
        rows = []
        for row, images in zip(self.least, self._images, strict=True):
            good_for = f"good for {row.reusability} of {min(row.outputs, REUSED)} images"
            rows.append((str(row.prompt), row.w1kp, f"{row.level} similarity\n{good_for}", images))
        return diversity_figures.least_varied(rows, value_range)

    def _row(self, number: int, w1kp: float, outputs: Tensor) -> PromptVariability:
        reusability = prompt_reusability(outputs[:REUSED], calibration=self.calibration)
        prompt = str(self.prompts.distinct[number])
        return PromptVariability(prompt, len(outputs), w1kp, similarity_level(w1kp), reusability)
