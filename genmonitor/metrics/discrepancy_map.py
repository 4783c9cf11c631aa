# SPDX-License-Identifier: Apache-2.0
"""Discrepancy map as a stateful metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from genmonitor._validation import check_images
from genmonitor.functional.discrepancy_map import SIDES, check_map_arguments, discrepancy_map
from genmonitor.functional.permutation import LEVEL, NUM_PERMUTATIONS
from genmonitor.metrics._real_fake import TwoSidedMetric


class DiscrepancyMap(TwoSidedMetric):
    """Size of the difference between generated and real images at each pixel, and its p-value, at one level for all.

    Keeps every image of both sides. Several processes gather them and split the same pool in the same ways, so the map
    is that of a single process.

    Args:
        sides: Sides of the windows that are tested, in pixels, or in cells of images with more than 48 pixels a side.
        num_permutations: Number of random splits, at least 19.
        seed: Seed of the splits.
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as `functional.discrepancy_map` does,
            which also documents the values and what the p-values guarantee.

    References:
        Westfall and Young, "Resampling-Based Multiple Testing", 1993.

    Example:
        >>> import torch
        >>> from genmonitor import DiscrepancyMap
        >>> images = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> metric = DiscrepancyMap()
        >>> metric.update(images[:32], real=True)
        >>> images[32:, :, :3, 5:] += 0.5  # upper right
        >>> metric.update(images[32:], real=False)
        >>> found = metric.compute()
        >>> float(found["p"]), int(found["map"].argmax()) % 8 >= 5
        (0.001, True)
    """

    is_differentiable: bool = False
    higher_is_better: bool = False

    def __init__(
        self,
        sides: Sequence[int] = SIDES,
        num_permutations: int = NUM_PERMUTATIONS,
        seed: int = 0,
        reset_real_features: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(reset_real_features, **kwargs)
        check_map_arguments(sides, num_permutations, seed)
        self.sides = tuple(sides)
        self.num_permutations = num_permutations
        self.seed = seed

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the size of the difference at each pixel where it is more than chance.

        Args:
            val: Result of `compute`, or a list of results, of which the last is drawn; None for `compute()`.
            ax: A matplotlib axis; None for a new figure.

        Returns:
            The figure and its axis.
        """
        from matplotlib.figure import Figure

        found = self.compute() if val is None else val[-1] if isinstance(val, list) else val
        ax = Figure().subplots() if ax is None else ax
        sizes = found["map"].where(found["p_map"] <= LEVEL, 0.0)
        drawn = ax.imshow(sizes.cpu().numpy(), cmap="magma", vmin=0)
        ax.figure.colorbar(drawn, ax=ax, label="standard deviations under no difference")
        ax.set_axis_off()
        return ax.figure, ax

    def _checked_samples(self, name: str, samples: Tensor, shape: tuple[int, ...] | None) -> Tensor:
        return check_images(name, samples, shape)

    def _compared(self, fake: Tensor, real: Tensor) -> dict[str, Tensor]:
        return discrepancy_map(fake, real, sides=self.sides, num_permutations=self.num_permutations, seed=self.seed)
