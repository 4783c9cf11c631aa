# SPDX-License-Identifier: Apache-2.0
"""How often a distance agrees with people on which of two images is nearer to a third."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TwoAFC(NamedTuple):
    """How often a distance agrees with people (two-alternative forced choice).

    Attributes:
        accuracy: share of all people, averaged over the triplets, who choose as the distance does.
        low: lower end of its 95 % interval.
        high: upper end.
        majority: share of the triplets where the distance chooses as most people do, of those with a majority.
        ceiling: the accuracy of who always chooses with the majority: no distance can be better.
        triplets: their number.
    """

    accuracy: float
    low: float
    high: float
    majority: float
    ceiling: float
    triplets: int


def two_afc_accuracy(to_a: Tensor, to_b: Tensor, chose_b: Tensor) -> TwoAFC:
    """Measure how often a distance agrees with people on which of two images, a or b, is nearer to a reference.

    The interval is Wilson's. Shares vary less than single votes, so it is a little wide for them; triplets that share
    images are not independent, so for them it is too narrow.

    Args:
        to_a: distance of a from the reference [N], of any kind; of features f it may be `(f_ref - f_a).norm(dim=1)`.
        to_b: distance of b from the reference [N]. Where both are equal, half of the people agree.
        chose_b: share of the people who found b the nearer [N], in [0, 1], as LPIPS and DreamSim publish theirs.

    Raises:
        ValueError: if there is no triplet, shapes differ, or values are not finite or no shares.

    References:
        Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", arXiv 1801.03924.
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482.
        Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 1927.

    Example:
        >>> found = two_afc_accuracy(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]), torch.tensor([0.2, 0.4]))
        >>> round(found.accuracy, 3), round(found.ceiling, 3), found.majority
        (0.6, 0.7, 0.5)
    """
    a, b, votes = (value.detach().double() for value in (to_a, to_b, chose_b))
    for name, value in (("to_a", a), ("to_b", b), ("chose_b", votes)):
        if value.ndim != 1 or not len(value) or value.shape != a.shape or not bool(value.isfinite().all()):
            raise ValueError(
                f"Expected `{name}` of shape [N] like `to_a`, finite, N at least 1, but got {list(value.shape)} with "
                f"{int(value.isfinite().sum())} finite values."
            )
    if not 0 <= float(votes.min()) <= float(votes.max()) <= 1:
        raise ValueError(
            f"Expected `chose_b` in [0, 1], but got {float(votes.min()):g} to {float(votes.max()):g}. "
            "Give the share of the people who chose b."
        )
    choice = torch.where(a == b, 0.5, (b < a).double())
    accuracy = float((choice * votes + (1 - choice) * (1 - votes)).mean())
    decided = votes != 0.5
    agrees = (1 - (choice - votes.round()).abs())[decided]
    majority = float(agrees.mean()) if len(agrees) else float("nan")
    ceiling = float(torch.maximum(votes, 1 - votes).mean())
    return TwoAFC(accuracy, *_wilson(accuracy, len(a)), majority, ceiling, len(a))


def _wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % interval of a share of n."""
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
