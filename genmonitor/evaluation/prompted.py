# SPDX-License-Identifier: Apache-2.0
"""Base of evaluators of features of outputs and prompts: encoders, kernels and their saved state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from genmonitor.distributed import Collective
from genmonitor.encoders.frozen import Encoder, FrozenEncoder, OneHot, pixels
from genmonitor.encoders.pretrained import text_encoder
from genmonitor.evaluation.evaluator import Evaluator, agreed_signature
from genmonitor.evaluation.prompt_groups import PromptGroups, PromptTracker
from genmonitor.evaluation.results import EvaluationT, FitReport
from genmonitor.evaluation.settings import DisagreementSettings, DiversitySettings
from genmonitor.images.compared_sets import RangeNotes, check_value_range
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts
from genmonitor.kernels import MEDIAN_SAMPLES, Kernel


class PromptedEvaluator(Evaluator[EvaluationT]):
    """An evaluator of features of outputs and prompts, which reports prompts that got worse.

    Args:
        settings: Settings on which the values depend. Sample i has prompt i modulo the number of prompts.
        kernels: Kernels of outputs and of prompts; their gammas are fixed for a run.
        groups: Groups of samples that are judged together.
        output_encoder: Callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: Callable or Module from a list of n strings, or labels int64 [n], to features [n, e]; a name for
            `text_encoder`; or None for one-hot labels.
        batch_size: Number of samples per call of an encoder.
        prefix: Prefix of log keys and files.
        objects: Further arguments that a manifest cannot hold, by name.

    Attributes:
        tracker: Tracker of the value by which the samples of each prompt are judged.
        kernel: Kernel of outputs, with its gamma once it is known.
        prompt_kernel: Kernel of prompts, likewise.

    Raises:
        ValueError: If there is no encoder for prompts that are strings, or one of strings for labels.
    """

    tracker: PromptTracker
    tracks: ClassVar[type[PromptTracker]]

    def __init__(
        self,
        settings: DiversitySettings | DisagreementSettings,
        kernels: tuple[Kernel, Kernel],
        groups: PromptGroups,
        output_encoder: Encoder | None,
        prompt_encoder: Encoder | str | None,
        batch_size: int,
        prefix: str,
        **objects: Any,
    ) -> None:
        encoders = {"output_encoder": output_encoder, "prompt_encoder": prompt_encoder}
        super().__init__(settings.n_samples, prefix, settings, **encoders, **objects)
        self.prompts, self.seed, self.num_features = settings.prompts, settings.seed, settings.num_features
        # one prompt stands for none: it explains only the mean of the samples, so the modes are those of PCA
        self._by_prompt, self._given_groups = settings.prompts or Prompts([0]), groups
        self._output_encoder = FrozenEncoder("output_encoder", output_encoder or pixels, batch_size)
        encoder = _prompt_encoder(prompt_encoder, self._by_prompt)
        self._prompt_encoder = FrozenEncoder("prompt_encoder", encoder, batch_size)
        self._given_kernels = kernels
        self._prompt_rows = self._no_features = self._real_probe = torch.empty(0, 0)
        self._range = RangeNotes()
        self._restart()

    def _restart(self) -> None:
        """Forget all that depends on the real images or on evaluations."""
        self._start_over()
        self._value_range: tuple[float, float] | None = None  # without real images

    def _start_over(self) -> None:
        self.kernel, self.prompt_kernel = self._given_kernels
        self._data: list[float] = []
        self._resumed = False
        self.tracker = self.tracks(self._given_groups)

    @property
    def dims(self) -> tuple[int, int]:
        """Number of features of an output and of a prompt, once fitted."""
        return self._no_features.shape[1], self._prompt_rows.shape[1]

    def _encode_prompts(self, probe: Tensor) -> None:
        """Freeze the encoders on the device of some generated images, and encode the prompts."""
        for encoder in (self._output_encoder, self._prompt_encoder):
            encoder.freeze(probe.device)
        self._no_features = self._encode(probe)[:0]
        numbers = self._by_prompt.numbers(torch.arange(len(self._by_prompt)))
        distinct = Prompts(self._by_prompt.distinct).of(range(len(self._by_prompt.distinct)), probe.device)
        self._prompt_rows = self._prompt_encoder(distinct).to(probe.device)[numbers.to(probe.device)]

    def _fit_gammas(self, real: ImageSet | None, notes: tuple[str, ...], probe: Tensor, comm: Collective) -> FitReport:
        """Resolve gammas that are not given, that of outputs from real images; start over if these have changed.

        Args:
            real: Real images for the gamma; None if there are none or the gamma is known.
            notes: Notes, to which new ones are added.
            probe: Some generated images.
            comm: Processes that evaluate together.
        """
        signature, other = agreed_signature(None if real is None else real.signature(), comm)
        notes += other
        if real is not None:
            with comm.all_ranks_or_none():
                # real images from which the value range is taken
                self._real_probe = first = real.first(100)
                self._value_range = float(first.min()), float(first.max())
                found = check_value_range(first, probe, self._resumed)
                self._range.said, notes = bool(found), notes + found
        comparable = signature is None or not self._data or self._data == signature
        if not comparable:
            self._start_over()
            notes = (*notes, "used with other real images before: all is fitted again and the curves start over")
        self._data = signature or self._data
        self.prompt_kernel = self.prompt_kernel.resolved(self._prompt_rows.unique(dim=0))
        if self.kernel.gamma is None and self.kernel.takes_gamma:
            if real is None:
                raise ValueError(
                    "Expected a `kernel` with its gamma, since there are no real images to take it from and those of "
                    "an untrained generator say little. Give GaussianKernel(gamma=...), or `real_images=`."
                )
            device = self._no_features.device
            self.kernel = comm.from_rank_zero(
                lambda: self.kernel.resolved(self._encode(real.first(MEDIAN_SAMPLES).to(device)))
            )
        return FitReport(notes, comparable)

    def _encode(self, images: Tensor) -> Tensor:
        """Return features of images on their device, [0, d] for no images."""
        return self._output_encoder(images).to(images.device) if len(images) else self._no_features

    def _prompts_of(self, indices: Tensor) -> Tensor:
        """Return the features of the prompts of these samples [n, e]."""
        return self._prompt_rows[indices % len(self._prompt_rows)]

    def forget(self) -> None:
        """Let the next `fit` find everything from scratch."""
        self._restart()

    def networks(self) -> dict[str, nn.Module]:
        """Return the encoders that are Modules, by the name of their argument."""
        encoders = (self._output_encoder, self._prompt_encoder)
        return {encoder.name: encoder.encoder for encoder in encoders if isinstance(encoder.encoder, nn.Module)}

    def manifest(self) -> dict[str, Any]:
        """Return the data needed to repeat an evaluation."""
        kernels = {"kernel": repr(self.kernel), "prompt_kernel": repr(self.prompt_kernel)}
        return {**self._encoder_names(), **kernels}

    def fit_state(self) -> dict[str, Any]:
        """Return the gammas, the signature of the real images, and the best value of each prompt."""
        gammas = {"gamma": self.kernel.gamma, "prompt_gamma": self.prompt_kernel.gamma}
        return gammas | {"data": list(self._data), "changes": self.tracker.state_dict()}

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over the result of `fit_state`."""
        self.kernel = replace(self.kernel, gamma=state["gamma"])
        self.prompt_kernel = replace(self.prompt_kernel, gamma=state["prompt_gamma"])
        self._data, self._resumed = list(state["data"]), True
        self.tracker.load_state_dict(state["changes"])

    def _encoder_names(self) -> dict[str, str]:
        return {encoder.name: encoder.description() for encoder in (self._output_encoder, self._prompt_encoder)}


def _prompt_encoder(given: Encoder | str | None, prompts: Prompts) -> Encoder:
    """Return the encoder of prompts: the given one, a published one by name, or one-hot labels."""
    if given is None and not prompts.are_labels:
        raise ValueError(
            "Expected a `prompt_encoder` for prompts that are strings, but got None. Give the name of a published "
            'one, such as "clip" or "siglip", or any callable from a list of strings to features [n, e].'
        )
    if isinstance(given, str):
        if prompts.are_labels:
            raise ValueError(
                f"Expected `prompts` to be strings with `prompt_encoder`={given!r}, but got class labels. "
                "Give the classes' names, or leave `prompt_encoder` out."
            )
        return text_encoder(given)
    return given or OneHot(prompts.values)
