# SPDX-License-Identifier: Apache-2.0
"""W1KP: the similarity of the images of one prompt, and the prompts whose images vary least."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.results import Samples
from genmonitor.functional import W1KPCalibration, similarity_level
from genmonitor.functional.w1kp import PromptVariability, ReusabilityCurve
from genmonitor.functional.w1kp.calibration import check_calibration, similarities
from genmonitor.functional.w1kp.subsets import (
    HIGH,
    REUSED,
    closest_pair,
    closest_pairs,
    mean_curve,
    pair_mean,
    reusability,
)

LISTED, SHOWN = 5, 6
"""Prompts that are listed, and images of each."""


@dataclass(frozen=True, eq=False)
class LeastVaried:
    """A prompt whose images are very similar.

    Attributes:
        found: its W1KP and values derived from it.
        images: some of its images [k, C, H, W], on the CPU: the two most similar of all, then the first others.
    """

    found: PromptVariability
    images: Tensor

    def caption(self) -> str:
        """Return the caption of its row in the figure."""
        return (
            f"{self.found.level} similarity\n"
            f"good for {self.found.reusability} of {min(self.found.outputs, REUSED)} images\n"
            f"closest pair {self.found.closest:.3f}"
        )


class MeasuredPrompts(NamedTuple):
    """W1KP of the prompts of an evaluation.

    Attributes:
        w1kp: its mean over the prompts.
        least: the least varied prompts, the least first.
        reusability: number of images that the prompts are good for; None with one prompt, or with two samples of one.
    """

    w1kp: float
    least: list[LeastVaried]
    reusability: ReusabilityCurve | None


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

    def measure(self, features: Tensor, samples: Samples, comm: Collective) -> MeasuredPrompts:
        """Measure W1KP of the prompts; every process must call it.

        Args:
            features: of this process's samples [n, d].
            samples: this process's.
            comm: the processes that evaluate together.
        """
        with comm.all_ranks_or_none():
            features, indices = comm.gather_rows(features), comm.gather_rows(samples.indices)
            order = indices.argsort()
            features, indices = features[order], indices[order]
            numbers = self.prompts.numbers(indices)
            found = similarities(features, numbers, self.calibration)
            means = {number: float(pair_mean(similarity)) for number, similarity in found.items()}
            listed = sorted(means, key=lambda number: means[number], reverse=True)[:LISTED]
            members = {number: indices[numbers == number].tolist() for number in listed}
            some = {number: similarity[:REUSED, :REUSED] for number, similarity in found.items()}
            drawn = len(some) > 1 and min(map(len, some.values())) > 2
            curves = {number: closest_pairs(some[number], None)[0] for number in (some if drawn else listed)}
            rows = [self._row(number, found[number], members[number], curves[number]) for number in listed]
            curve = mean_curve(list(curves.values()), 0, HIGH) if drawn else None
        least = []
        for row, of_prompt in zip(rows, members.values(), strict=True):
            shown = [*row.closest_pair, *(i for i in of_prompt if i not in row.closest_pair)][:SHOWN]
            least.append(LeastVaried(row, _images_of(shown, samples, comm)))
        return MeasuredPrompts(sum(means.values()) / len(means), least, curve)

    def _row(self, number: int, similarity: Tensor, members: list[int], curve: Tensor) -> PromptVariability:
        """Return the values of one prompt.

        Args:
            number: of the prompt.
            similarity: of its samples [n, n].
            members: their indices.
            curve: the expected similarity of the closest pair among 2, 3, … of them.
        """
        (a, b), w1kp = closest_pair(similarity), float(pair_mean(similarity))
        return PromptVariability(
            str(self.prompts.distinct[number]),
            len(similarity),
            w1kp,
            similarity_level(w1kp),
            reusability(curve, HIGH),
            (members[a], members[b]),
            float(similarity[a, b]),
        )


def _images_of(indices: list[int], samples: Samples, comm: Collective) -> Tensor:
    """Return the images of samples [k, C, H, W], wherever they are, in that order and on the CPU."""
    mine = torch.isin(samples.indices, torch.tensor(indices, device=samples.indices.device))
    images, found = comm.gather_rows(samples.images[mine]).cpu(), comm.gather_rows(samples.indices[mine]).tolist()
    return images[[found.index(i) for i in indices]]
