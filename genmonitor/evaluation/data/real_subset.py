# SPDX-License-Identifier: Apache-2.0
"""Some real images of a set, fixed for the run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from genmonitor.evaluation.data.images import ImageSource
from genmonitor.evaluation.data.reference import ReferenceImages, random_order
from genmonitor.evaluation.data.value_range import check_value_range

PROBE_IMAGES = 100
"""Images that tell shape and value range."""


class RealSubset:
    """Some real images of a set, fixed for the run.

    Args:
        source: the set.
        chosen: their indices in it.
        shape: (C, H, W) of generated images.

    Raises:
        ValueError: if there are fewer than 2, or they are not of this shape.
    """

    def __init__(self, source: ImageSource, chosen: Sequence[int], shape: tuple[int, ...]) -> None:
        self._source, self._chosen = source, list(chosen)
        if len(self) < 2:
            raise ValueError(f"Expected at least 2 real images, but {source.name} holds {len(self)}. Give more.")
        self._probe = self.read(range(min(PROBE_IMAGES, len(self))))
        if self._probe.shape[1:] != shape:
            raise ValueError(
                f"Expected real images of shape {list(shape)} like the generated ones, but got "
                f"{list(self._probe.shape[1:])}. Resize or convert one of them, in `sample_fn` or in the dataset's "
                "transform."
            )

    @classmethod
    def at_random(cls, real: ReferenceImages, n: int, seed: int, shape: tuple[int, ...]) -> RealSubset:
        """Choose n images at random, or all where there are fewer, to compare generated ones with."""
        source = real.compared()
        order = random_order(len(source), n, torch.Generator().manual_seed(seed))
        return cls(source, order[:n].tolist(), shape)

    def __len__(self) -> int:
        return len(self._chosen)

    def read(self, positions: range) -> Tensor:
        """Read some of them, on the CPU; of none, an empty tensor of their shape."""
        if not len(positions):
            return self._probe[:0]
        return self._source.read([self._chosen[i] for i in positions])

    def value_range(self) -> tuple[float, float]:
        """Return the lowest and highest value."""
        return float(self._probe.min()), float(self._probe.max())

    def range_notes(self, generated: Tensor, resumed: bool = False) -> tuple[str, ...]:
        """Return what to say of the value range of generated images, see `check_value_range`."""
        return check_value_range(self._probe, generated, resumed)

    def signature(self) -> list[float]:
        """Return numbers that are others for other images."""
        return [float(len(self)), float(self._probe.double().sum())]

    def notes(self, n: int) -> tuple[str, ...]:
        """Return what to say where they are fewer than n, or others each time they are read."""
        notes = self._source.notes + self._source.reading_notes(self._chosen)
        if len(self) < n:
            notes += (f"only {len(self)} real images are there to compare {n} generated ones with",)
        return notes
