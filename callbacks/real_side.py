# SPDX-License-Identifier: Apache-2.0
"""The real images that a generator's variety is compared with: read and encoded once, at the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from genmonitor import PRDC, RKEScore, VendiScore
from genmonitor.callbacks.data import ImageKey, ImageSource, first_loader
from genmonitor.callbacks.ranges import check_ranges
from genmonitor.callbacks.roles import validation_data
from genmonitor.kernels import MEDIAN_SAMPLES, Kernel

NEIGHBOURS = 5
PROBE = 100
"""Images that tell shape and value range."""


class RealSide:
    """The real images of a run.

    Args:
        trainer: its validation data are used where `real_images` is None, or else its training data.
        real_images: a Dataset, DataLoader or tensor; or None.
        image_key: where the images are in a batch.
        n: so many are compared with, or all where there are fewer.
        seed: of their choice.
        shape: (C, H, W) of generated images.

    Raises:
        ValueError: if there are too few, or not of this shape.
    """

    def __init__(
        self, trainer: Any, real_images: Any, image_key: ImageKey, n: int, seed: int, shape: tuple[int, ...]
    ) -> None:
        self.notes: list[str] = []
        name = "`real_images`"
        if real_images is None:
            real_images, name = validation_data(trainer), "the validation data"
        if real_images is None:
            real_images, name = first_loader(trainer.train_dataloader), "the training data"
            self.notes.append(
                "there is no validation data, or it is switched off: generated images are compared with training images"
            )
        self._source = ImageSource(real_images, image_key, name)
        generator = torch.Generator().manual_seed(seed)
        self._chosen = torch.randperm(len(self._source), generator=generator)[:n].tolist()
        if min(len(self), n) <= NEIGHBOURS:
            raise ValueError(
                f"Expected more than {NEIGHBOURS} real and generated images, the neighbours that precision and recall "
                f"look at, but got {len(self)} and {n}. Give more."
            )
        self._probe = self.read(range(min(PROBE, len(self))))
        if self._probe.shape[1:] != shape:
            raise ValueError(
                f"Expected real images of shape {list(shape)} like the generated ones, but got "
                f"{list(self._probe.shape[1:])}. Resize or convert one of them, in `sample_fn` or in the dataset's "
                "transform."
            )
        if len(self) < n:
            self.notes.append(f"only {len(self)} real images are there to compare {n} generated ones with")

    def __len__(self) -> int:
        return len(self._chosen)

    def read(self, positions: range) -> Tensor:
        """Read some of them, on the CPU."""
        return self._source.read([self._chosen[i] for i in positions])

    def value_range(self, generated: Tensor) -> tuple[float, float]:
        """Return the lowest and highest value; raise ValueError where generated images are scaled otherwise."""
        check_ranges(self._probe, generated)
        return float(self._probe.min()), float(self._probe.max())

    def resolved(self, kernel: Kernel, encode: Callable[[Tensor], Tensor]) -> Kernel:
        """Return the kernel with its width taken from the first 1000 of them."""
        return kernel.resolved(encode(self.read(range(min(MEDIAN_SAMPLES, len(self))))))


def find_real_side(
    trainer: Any, real_images: Any, image_key: ImageKey, n: int, seed: int, probe: Tensor
) -> tuple[RealSide | None, list[str]]:
    """Find the real images of a run, and what the user should know of them.

    Args:
        trainer: as for `RealSide`, and so on.
        real_images: where it is None and the Trainer has no images that would do, there is no real side.
        image_key: as for `RealSide`.
        n: as for `RealSide`.
        seed: as for `RealSide`.
        probe: some generated images.
    """
    try:
        real = RealSide(trainer, real_images, image_key, n, seed, tuple(probe.shape[1:]))
    except ValueError as error:
        if real_images is not None:
            raise
        return None, [f"precision, recall, density and coverage are not measured. {error}".removesuffix(".")]
    return real, real.notes


class Comparison:
    """Generated features against the real ones of all processes.

    Args:
        features: of this process's share of the real images [m, d].
        kernel: of the Vendi score.
        num_features: random Fourier features of a Gaussian kernel.

    Attributes:
        of_real: `real_vendi` and `real_rke`, what the real images get.
    """

    def __init__(self, features: Tensor, kernel: Kernel, num_features: int | None) -> None:
        self._metric = PRDC(k=NEIGHBOURS, reset_real_features=False).to(features.device)
        self._metric.update(features, real=True)
        self.of_real: dict[str, float] = {}
        num_features = (
            num_features if kernel.takes_width else None
        )  # the prompts' kernel may be the one that needs them
        for name, score in (("real_vendi", VendiScore), ("real_rke", RKEScore)):
            metric = score(kernel=kernel, num_features=num_features).to(features.device)
            metric.update(features)
            self.of_real[name] = float(metric.compute())

    def update(self, features: Tensor) -> None:
        """Take this process's share of the generated features in place of those of the last check."""
        self._metric.reset()
        self._metric.update(features, real=False)

    def compute(self) -> dict[str, float]:
        """Return precision, recall, density and coverage, and `of_real`; every process must call it."""
        return {name: float(value) for name, value in self._metric.compute().items()} | self.of_real
