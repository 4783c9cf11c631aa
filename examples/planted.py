# SPDX-License-Identifier: Apache-2.0
"""Images drawn from regions that are independent by construction, and a generator of them that spoils one region.

The true answer is known here: which pixels belong together, which region is wrong, and since when.
"""

from __future__ import annotations

import torch
from lightning import LightningModule
from torch import Tensor, nn

# The regions: 1..4 by falling size, 0 never changes.
PLANTED_MAP = """
0000000000000000
0111111133333330
0111111133333330
0111444411133330
0114444411133330
0114444411133330
0114444441133320
0111444441133220
0111114411132220
0111111111122220
0111111111222220
0111111112222220
0111111122222220
0111111222222220
0111112222222220
0000000000000000
"""


def planted_labels() -> Tensor:
    """Return the true regions of the planted images, int64 [16, 16]: 1..4 by falling size, 0 where pixels are constant.

    Example:
        >>> planted_labels().unique(return_counts=True)[1].tolist()
        [60, 92, 45, 32, 27]
    """
    return torch.tensor([[int(label) for label in row] for row in PLANTED_MAP.split()])


def _draw_planted(n: int, spoiled: int | None = None, generator: torch.Generator | None = None) -> Tensor:
    # Every value belongs to one region, or to one pixel: regions are independent by construction. The same
    # values are drawn whether or not a region is spoiled, so that spoiling leaves the others' bits alone.
    labels = planted_labels()
    regions = int(labels.max())
    brightness = 2 * torch.rand(n, regions, generator=generator) - 1
    slope = 2 * torch.rand(n, regions, generator=generator) - 1
    grain = 2 * torch.rand(n, *labels.shape, generator=generator) - 1
    if spoiled is not None:
        # From uniform on [-1, 1] to uniform on [0, 1]: the generator has lost this region's dark half.
        brightness[:, spoiled - 1] = (brightness[:, spoiled - 1] + 1) / 2
    ramp = torch.linspace(-1, 1, labels.shape[1])
    region = (labels - 1).clamp(min=0)
    images = 0.7 * brightness[:, region] + 0.15 * slope[:, region] * ramp + 0.15 * grain
    return torch.where(labels > 0, images, -1.0)[:, None]


def planted_images(n: int, seed: int, spoiled: int | None = None) -> Tensor:
    """Draw images [n, 1, 16, 16] whose regions, see `planted_labels`, are exactly independent of each other.

    A region's pixels follow its own brightness and slope, and a little noise of their own.

    Args:
        n: how many.
        seed: the draw; torch's global random generator is left alone.
        spoiled: a region, 1..4, that is never dark; all other pixels are those of the same seed without it.

    Raises:
        ValueError: if there is no such region.
    """
    _check_region(spoiled)
    return _draw_planted(n, spoiled, torch.Generator().manual_seed(seed))


def _check_region(spoiled: int | None) -> None:
    regions = int(planted_labels().max())
    if spoiled is not None and spoiled not in range(1, regions + 1):
        raise ValueError(f"Expected a region in 1..{regions} to spoil, or None, but got {spoiled!r}.")


class PlantedGenerator(LightningModule):
    """Draws planted images as the data are and, from an epoch on, spoils one region: what a monitor must notice.

    There is nothing to train: its one parameter only lets a Trainer run.

    Args:
        spoiled: the region, 1..4; None for none.
        from_epoch: the first epoch whose samples are spoiled, counted from 0.

    Raises:
        ValueError: if there is no such region.
    """

    def __init__(self, spoiled: int | None = None, from_epoch: int = 0) -> None:
        super().__init__()
        _check_region(spoiled)
        self.spoiled, self.from_epoch = spoiled, from_epoch
        self.unused = nn.Parameter(torch.zeros(()))

    def sample(self, n: int) -> Tensor:
        """Draw images [n, 1, 16, 16] from torch's global random generator."""
        spoil = self.current_epoch >= self.from_epoch
        return _draw_planted(n, self.spoiled if spoil else None).to(self.device)

    def training_step(self, images: Tensor, batch_index: int) -> Tensor:
        """Train nothing."""
        return self.unused.square()

    def validation_step(self, images: Tensor, batch_index: int) -> None:
        """Only there so that the Trainer has a validation loop, in which monitors run."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer that moves nothing."""
        return torch.optim.SGD(self.parameters(), lr=0.0)
