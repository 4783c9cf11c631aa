# SPDX-License-Identifier: Apache-2.0
"""How many outputs prompts are good for: W1KP_k averaged over them, and where it becomes high similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor._validation.arguments import check_calibration, check_prompted_outputs
from genmonitor.functional.w1kp.calibration import W1KPCalibration, similarities
from genmonitor.functional.w1kp.subsets import HIGH, closest_pairs, reusability


@dataclass(frozen=True)
class ReusabilityCurve:
    """The expected similarity of the closest pair among k outputs of a prompt, over many prompts.

    Attributes:
        mean: over the prompts, for k = 2, 3, …
        low: lower end of the mean's 95 % band, for each k.
        high: upper end.
        prompts: how many prompts it is the mean of.
        skipped: how many have fewer outputs than the largest k, and are left out.
        cutoff: where high similarity begins.
    """

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    prompts: int
    skipped: int
    cutoff: float

    @property
    def largest_k(self) -> int:
        """The largest number of outputs that the curve goes to."""
        return len(self.mean) + 1

    @property
    def reusability(self) -> int:
        """The largest k whose mean is below the cut-off, from 1; `largest_k` means that or more."""
        return self._crossing(self.mean)

    @property
    def interval(self) -> tuple[int, int]:
        """The same of the band's upper and of its lower end: the reusability's 95 % interval."""
        return self._crossing(self.high), self._crossing(self.low)

    def _crossing(self, curve: tuple[float, ...]) -> int:
        return reusability(torch.tensor(curve, dtype=torch.float64), self.cutoff)


def reusability_curve(
    features: Tensor,
    prompt_index: Tensor,
    *,
    calibration: W1KPCalibration | None = None,
    k: int | None = None,
    cutoff: float = HIGH,
) -> ReusabilityCurve:
    """Average the expected similarity of the closest pair among 2, 3, …, k outputs over prompts, with a 95 % band.

    The band is Student's, of the mean over prompts, cut to [0, 1]. Where the curve rises to the cut-off, new outputs
    begin to repeat earlier ones: so many outputs a prompt is good for.

    Args:
        features: embedded outputs [N, D].
        prompt_index: which prompt each belongs to, whole numbers [N].
        calibration: as for `w1kp_score`.
        k: the largest number of outputs, at least 2; prompts with fewer are left out. None for the number that the
            prompt with the fewest has, of those with two or more.
        cutoff: where high similarity begins.

    Raises:
        TypeError: as for `w1kp_score`.
        ValueError: as for `w1kp_score`, or if fewer than 2 prompts have k outputs.

    References:
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482.

    Example:
        >>> calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=1)
        >>> x, index = torch.tensor([[0.0], [2.0], [1.0], [0.0], [1.2], [2.0]]), torch.tensor([0, 0, 0, 1, 1, 1])
        >>> curve = reusability_curve(x, index, calibration=calibration)
        >>> [round(value, 2) for value in curve.mean], curve.reusability
        ([0.5, 0.8], 3)
    """
    calibration = check_calibration(calibration, k)
    x, index = check_prompted_outputs(features, prompt_index, calibration)
    found = list(similarities(x, index, calibration).values())
    if k is None:
        k = min((len(one) for one in found if len(one) > 1), default=2)
    large = [one for one in found if len(one) >= k]
    if len(large) < 2:
        raise ValueError(
            f"Expected at least 2 prompts with {k} outputs for a mean over prompts, but got {len(large)}. "
            "Draw more outputs, lower `k`, or take prompt_reusability for one prompt."
        )
    return mean_curve([closest_pairs(one, None, k)[0] for one in large], len(found) - len(large), cutoff)


def mean_curve(curves: Sequence[Tensor], skipped: int, cutoff: float) -> ReusabilityCurve:
    """Return the mean of two or more prompts' curves [k - 1] as far as the shortest goes; see `reusability_curve`."""
    shortest = min(map(len, curves))
    values = torch.stack([curve[:shortest] for curve in curves]).cpu()
    mean, half = values.mean(0), _half_width(values)
    bands = mean, (mean - half).clamp_min(0), (mean + half).clamp_max(1)
    middle, low, high = (tuple(band.tolist()) for band in bands)
    return ReusabilityCurve(middle, low, high, len(curves), skipped, cutoff)


def _half_width(curves: Tensor) -> Tensor:
    """Return half the width of the 95 % interval of the mean of curves [P, K], for each column."""
    from scipy.special import stdtrit

    n = len(curves)
    return float(stdtrit(n - 1, 0.975)) * curves.std(0) / n**0.5
