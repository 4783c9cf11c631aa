# SPDX-License-Identifier: Apache-2.0
"""The real images that a generator's variety is compared with: read and encoded once, at the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """The real images that generated ones are compared with: some of a set, fixed for the run.

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
        self._probe = self.read(range(min(PROBE, len(self))))
        if self._probe.shape[1:] != shape:
            raise ValueError(
                f"Expected real images of shape {list(shape)} like the generated ones, but got "
                f"{list(self._probe.shape[1:])}. Resize or convert one of them, in `sample_fn` or in the dataset's "
                "transform."
            )

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


def compared_images(trainer: Any, real_images: Any, image_key: ImageKey) -> tuple[ImageSource, list[str]]:
    """Return the set that generated images are compared with, and what the user should know of it.

    Args:
        trainer: its validation data are used where `real_images` is None, or else its training data.
        real_images: a Dataset, DataLoader or tensor; or None.
        image_key: where the images are in a batch.

    Raises:
        ValueError: if the set has no length or no access by index.
    """
    name, notes = "`real_images`", []
    if real_images is None:
        real_images, name = validation_data(trainer), "the validation data"
    if real_images is None:
        real_images, name = first_loader(trainer.train_dataloader), "the training data"
        notes.append(
            "there is no validation data, or it is switched off: generated images are compared with training images"
        )
    return ImageSource(real_images, image_key, name), notes


def random_real_side(
    trainer: Any, real_images: Any, image_key: ImageKey, n: int, seed: int, shape: tuple[int, ...]
) -> tuple[RealSide, list[str]]:
    """Choose real images at random, and say what the user should know of them.

    Args:
        trainer: as for `compared_images`.
        real_images: as for `compared_images`.
        image_key: as for `compared_images`.
        n: so many are chosen, or all where there are fewer.
        seed: of the choice.
        shape: (C, H, W) of generated images.

    Raises:
        ValueError: if there are fewer than 2, or they are not of this shape.
    """
    source, notes = compared_images(trainer, real_images, image_key)
    generator = torch.Generator().manual_seed(seed)
    real = RealSide(source, torch.randperm(len(source), generator=generator)[:n].tolist(), shape)
    if len(real) < n:
        notes.append(f"only {len(real)} real images are there to compare {n} generated ones with")
    return real, notes


def check_neighbors(real: int, generated: int) -> None:
    """Refuse fewer images than have the neighbors that `Comparison` looks at."""
    if min(real, generated) <= NEIGHBOURS:
        raise ValueError(
            f"Expected more than {NEIGHBOURS} real and generated images, the neighbors that precision and recall "
            f"look at, but got {real} and {generated}. Give more."
        )


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
