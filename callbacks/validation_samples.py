# SPDX-License-Identifier: Apache-2.0
"""Samples from the module's own validation, in place of samples drawn for the evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genmonitor._io import Progress, no_progress
from genmonitor._validation import check_images
from genmonitor.callbacks.compat import find_weight_averaging
from genmonitor.callbacks.data import validates
from genmonitor.distributed import Collective
from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler, Samples

if TYPE_CHECKING:
    import lightning.pytorch as pl

    from genmonitor.callbacks.base import GenerativeMonitor


class ValidationSamples(Sampler):
    """Collects the first images that `validation_step` returns in each validation run, instead of drawing samples.

    An evaluation then costs no sampling, but comparability is lost. The samples come from different random numbers each
    time, and their number differs by process. Curves are therefore noisier, and changes from the best evaluation are
    found less reliably. Values depend on the number of processes, and no checkpoint can reproduce them.

    Args:
        n_samples: Number of images to take, over all processes.
        key: Key of the images [n, C, H, W] in the dictionary that `validation_step` returns, or else the name of the
            module's attribute that holds those of the batch.

    Example:
        >>> samples = ValidationSamples(500, key="generated")
        >>> samples.n_samples
        500
    """

    def __init__(self, n_samples: int, key: str = "samples") -> None:
        super().__init__(n_samples)
        self.key = key
        self._kept: list[Tensor] = []
        self._missing: str | None = None

    def start(self) -> None:
        """Begin a validation run."""
        self._kept, self._missing = [], None

    def take(self, pl_module: pl.LightningModule, outputs: Any, comm: Collective) -> None:
        """Take this process's images of a batch, as long as more are needed."""
        wanted = len(comm.rank_indices(self.n_samples)) - sum(map(len, self._kept))
        if wanted <= 0:
            return
        returned = isinstance(outputs, Mapping) and self.key in outputs
        images = outputs[self.key] if returned else getattr(pl_module, self.key, None)
        if not isinstance(images, Tensor) or images.ndim != 4:
            self._missing = type(images).__name__ if not isinstance(images, Tensor) else f"shape {list(images.shape)}"
            return
        with torch.inference_mode(False):  # a copy that can be computed with outside of the validation loop
            self._kept.append(images[:wanted].detach().clone())

    def draw(
        self, model: SampledModel, indices: Iterable[int], progress: Progress = no_progress, repair: bool = False
    ) -> Tensor:
        """Return one image per index, or fewer if not enough were seen yet."""
        if self._missing is not None:
            raise ValueError(
                f"Expected `validation_step` to return a dictionary with images [n, C, H, W] under {self.key!r}, or to "
                f"leave them in the module's attribute of that name, but got {self._missing}. Give reuse_key=."
            )
        if not self._kept:
            return torch.empty(0, device=model.device)
        images = torch.cat(self._kept)[: len(list(indices))].to(model.device)
        return check_images("images of `validation_step`", images.nan_to_num() if repair else images)

    def samples(self, model: SampledModel, comm: Collective, progress: Progress = no_progress) -> Samples:
        """Return this process's part of the images.

        Raises:
            ValueError: If the validation run gave fewer images.
        """
        indices = list(comm.rank_indices(self.n_samples))
        images = self.draw(model, indices)
        if len(images) < len(indices):
            raise ValueError(
                f"Expected {len(indices)} images from `validation_step`, but a validation run gave {len(images)}. "
                "Generate more in each batch, validate on more batches, or give a smaller n_samples=."
            )
        return Samples(images, torch.tensor(indices, dtype=torch.long, device=images.device))

    def check_rows(self, model: SampledModel, probe: Tensor) -> tuple[str, ...]:
        """Return nothing, since the user decides on the batches."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Return the settings of samples, besides the weights, as plain Python."""
        return {"n_samples": self.n_samples, "reuse": "validation", "reuse_key": self.key}


def check_reuse(monitor: GenerativeMonitor, trainer: pl.Trainer) -> None:
    """Refuse to take samples from validation if there are none, or they do not match the request.

    Raises:
        ValueError: If they cannot be taken.
    """
    reason = None
    if not validates(trainer):
        reason = "validates nothing. Give validation data"
    elif monitor.schedule.by_steps:
        reason = "evaluates between validations, by `every_n_train_steps`. Leave that out"
    elif monitor.weights == "raw" and find_weight_averaging(trainer) is not None:
        reason = "validates with averaged weights, and `weights`='raw' asks for others. Leave that out"
    if reason is not None:
        raise ValueError(f"Expected a Trainer and a monitor for `reuse`='validation', but this one {reason}.")
