# SPDX-License-Identifier: Apache-2.0
"""What the monitors of conditional generators share: prompts, encoders, kernels and their widths."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from genmonitor._io import atomic_write
from genmonitor.callbacks.encoders import Encoder, Frozen, OneHot, pixels
from genmonitor.callbacks.in_step import on_rank_zero
from genmonitor.callbacks.monitor import PROBE, GenerativeMonitor
from genmonitor.callbacks.prompts import Prompts
from genmonitor.callbacks.real_side import RealSide
from genmonitor.kernels import Kernel


class PromptedMonitor(GenerativeMonitor):
    """Base of the monitors whose samples have prompts: sample i has prompt i modulo their number, at every check.

    A subclass says which real images there are and what is measured.

    Args:
        prompts: strings, or class labels as integers.
        n_samples: images generated at each check.
        output_encoder: from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: from a list of n strings, or labels int64 [n], to features [n, e]; None for one-hot labels.
        kernel: of outputs.
        prompt_kernel: of prompts.
        num_features: random features of the kernels, or None.
        settings: those of `GenerativeMonitor`.
    """

    prompts: Prompts

    def __init__(
        self,
        prompts: Prompts,
        n_samples: int,
        output_encoder: Encoder | None,
        prompt_encoder: Encoder | None,
        kernel: Kernel,
        prompt_kernel: Kernel,
        num_features: int | None,
        **settings: Any,
    ) -> None:
        self.prompts = prompts
        super().__init__(n_samples, **settings)
        if self.n_samples < len(self.prompts):
            raise ValueError(
                f"Expected `n_samples` to be at least the number of prompts, {len(self.prompts)}, but got {n_samples}. "
                "Give fewer prompts or more samples."
            )
        if prompt_encoder is None and not self.prompts.are_labels:
            raise ValueError(
                "Expected a `prompt_encoder` for prompts that are strings, but got None. Give any callable from a list "
                "of strings to features [n, e], for example the second of `genmonitor.callbacks.clip_encoders(...)`."
            )
        self.output_encoder = Frozen("output_encoder", output_encoder or pixels)
        self.prompt_encoder = Frozen("prompt_encoder", prompt_encoder or OneHot(self.prompts.values))
        self.kernel, self.prompt_kernel, self.num_features = kernel, prompt_kernel, num_features
        self._given = {"kernel": repr(self.kernel), "prompt_kernel": repr(self.prompt_kernel)}
        self._value_range: tuple[float, float] | None = None

    # what a subclass says

    def find_real(self, trainer: Any, probe: Tensor) -> tuple[RealSide | None, list[str]]:
        """Return the real images, if any, and what the user should know of them; every process calls it.

        Args:
            trainer: whose datasets may be used.
            probe: some generated images [n, C, H, W].
        """
        raise NotImplementedError

    def prepare(self, trainer: Any, pl_module: Any) -> None:
        """Encode the prompts, find the real images, and fix the kernels' widths."""
        for encoder in (self.output_encoder, self.prompt_encoder):
            encoder.prepare(pl_module)
        probe = self.draw(trainer, pl_module, range(min(PROBE, self.n_samples)))
        self._no_features = self.encode(probe)[:0]
        prompts = self.prompts.of(range(len(self.prompts)), probe.device)
        self._prompt_rows = self.prompt_encoder(prompts, self.sample_batch_size).to(probe.device)
        self._indices = torch.tensor(self.share(trainer), dtype=torch.long, device=probe.device)
        self._real, notes = self.find_real(trainer, probe)
        for note in notes:
            self.note(f"{type(self).__name__}: {note}.")
        if self._real is not None:
            self._value_range = self._real.value_range(probe)
        self.prompt_kernel = self.prompt_kernel.resolved(self._prompt_rows.unique(dim=0))
        self.kernel = self._resolved(trainer, probe.device)

    def write_once(self) -> None:
        """Write down the prompts."""
        atomic_write(self._folder / f"{self.prefix}_prompts.json", json.dumps(self.prompts.values).encode())

    def encode(self, images: Tensor) -> Tensor:
        """Return features of images on their device, [0, d] of none."""
        if not len(images):
            return self._no_features
        return self.output_encoder(images, self.sample_batch_size).to(images.device)

    def prompt_features(self, indices: Tensor) -> Tensor:
        """Return the features of the prompts of these samples [n, e]."""
        return self._prompt_rows[indices % len(self._prompt_rows)]

    def read_share(self, trainer: Any, real: RealSide) -> Tensor:
        """Return this process's share of the real images, on the device."""
        share, empty = self.share(trainer, len(real)), torch.empty(0, *self._sample_shape)
        return (real.read(share) if len(share) else empty).to(self._indices.device)

    def facts(self) -> dict[str, Any]:
        """Return what is needed to measure the same again."""
        encoders = {encoder.name: encoder.described() for encoder in (self.output_encoder, self.prompt_encoder)}
        kernels = {"kernel": repr(self.kernel), "prompt_kernel": repr(self.prompt_kernel)}
        return {"prompts": f"{self.prefix}_prompts.json", **encoders, **kernels, "num_features": self.num_features}

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python and tensors only."""
        gammas = {"gamma": self.kernel.gamma, "prompt_gamma": self.prompt_kernel.gamma}
        return super().state_dict() | {"settings": self._settings(), **gammas}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; what is fixed for a run stays fixed when it is resumed."""
        super().load_state_dict(state_dict)
        other = [name for name, value in self._settings().items() if value != state_dict["settings"].get(name)]
        if other:
            self.note(
                f"{type(self).__name__} was resumed with another {', '.join(other)}, so its curves start anew: values "
                "before and after cannot be compared."
            )
            self.start_anew()
            return
        self.kernel = replace(self.kernel, gamma=state_dict["gamma"])
        self.prompt_kernel = replace(self.prompt_kernel, gamma=state_dict["prompt_gamma"])
        self.resume(state_dict)

    def resume(self, state_dict: dict[str, Any]) -> None:
        """Take over what else a state holds that was saved with the same settings."""

    def _settings(self) -> dict[str, Any]:
        """Return what values depend on, to be compared when a run is resumed: plain Python."""
        names = ("n_samples", "num_features", "seed")
        return {name: getattr(self, name) for name in names} | self._given | {"prompts": list(self.prompts.values)}

    def _resolved(self, trainer: Any, device: torch.device) -> Kernel:
        """Return the kernel of outputs with its width fixed for the run."""
        if self.kernel.gamma is not None or not self.kernel.takes_width:
            return self.kernel
        real = self._real
        if real is None:
            raise ValueError(
                "Expected a `kernel` with its gamma, since there are no real images to take it from and those of an "
                "untrained generator say little. Give GaussianKernel(gamma=...), or `real_images=`."
            )
        return on_rank_zero(trainer, lambda: real.resolved(self.kernel, lambda x: self.encode(x.to(device))))
