# SPDX-License-Identifier: Apache-2.0
"""How alike the images of one prompt are (W1KP), and of which prompts most."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor._validation.arguments import check_calibration
from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.results import Samples
from genmonitor.functional import W1KPCalibration, prompt_reusability, similarity_level
from genmonitor.functional.w1kp import PromptVariability
from genmonitor.functional.w1kp_calibration import similarities
from genmonitor.functional.w1kp_subsets import pair_mean

LISTED, SHOWN = 5, 6
"""Prompts that are listed, and images of each."""
REUSED = 50
"""Samples of a listed prompt that its reusability is measured of: the cost grows with their square."""


@dataclass(frozen=True, eq=False)
class LeastVaried:
    """A prompt whose images are much alike.

    Attributes:
        found: its W1KP and what follows from it.
        images: some of its images [k, C, H, W], on the CPU.
    """

    found: PromptVariability
    images: Tensor

    def caption(self) -> str:
        """Return what its row in the figure says."""
        return (
            f"{self.found.level} similarity\n"
            f"good for {self.found.reusability} of {min(self.found.outputs, REUSED)} images"
        )


class PromptDiversity:
    """W1KP of the samples of each prompt.

    Args:
        calibration: of the features.
        prompts: sample i has prompt i modulo their number.
        n_samples: samples of an evaluation.

    Raises:
        ValueError: if a prompt has a single sample.
    """

    def __init__(self, calibration: W1KPCalibration, prompts: Prompts, n_samples: int) -> None:
        self.calibration, self.prompts = check_calibration(calibration, None), prompts
        prompt, fewest = Counter(prompts.names(check_at_least("n_samples", n_samples, 2))).most_common()[-1]
        if fewest < 2:
            raise ValueError(
                f"Expected at least 2 samples of each prompt for W1KP, but {prompt!r} has one of {n_samples}. "
                f"Give n_samples={2 * len(prompts)} or more, or fewer prompts."
            )

    def measure(self, features: Tensor, samples: Samples, comm: Collective) -> tuple[float, list[LeastVaried]]:
        """Return the mean W1KP of the prompts, and the least varied of them; every process must call it.

        Args:
            features: of this process's samples [n, d].
            samples: this process's.
            comm: the processes that evaluate together.
        """
        with comm.all_ranks_or_none():
            features, numbers = comm.gather_rows(features), self.prompts.numbers(comm.gather_rows(samples.indices))
            found = similarities(features, numbers, self.calibration)
            means = {number: float(pair_mean(similarity)) for number, similarity in found.items()}
            listed = sorted(means, key=lambda number: means[number], reverse=True)[:LISTED]
            rows = [self._row(number, means[number], features[numbers == number]) for number in listed]
        mine = self.prompts.numbers(samples.indices)
        shown = [comm.gather_rows(samples.images[mine == number][:SHOWN])[:SHOWN].cpu() for number in listed]
        least = [LeastVaried(row, images) for row, images in zip(rows, shown, strict=True)]
        return sum(means.values()) / len(means), least

    def _row(self, number: int, w1kp: float, outputs: Tensor) -> PromptVariability:
        reusability = prompt_reusability(outputs[:REUSED], calibration=self.calibration)
        prompt = str(self.prompts.distinct[number])
        return PromptVariability(prompt, len(outputs), w1kp, similarity_level(w1kp), reusability)
