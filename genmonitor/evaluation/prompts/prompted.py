# SPDX-License-Identifier: Apache-2.0
"""Features of a conditional generator's outputs and prompts, and the kernels on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from genmonitor._io import write_json
from genmonitor.encoders.frozen import Encoder, FrozenEncoder, OneHot, pixels
from genmonitor.encoders.text import text_encoder
from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.real_subset import RealSubset
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.prompts.estimates import PromptChanges, PromptGroups
from genmonitor.evaluation.results import EvaluationT, FitReport
from genmonitor.evaluation.settings import DisagreementSettings, DiversitySettings
from genmonitor.evaluation.text.prompts import PromptMeasure
from genmonitor.kernels import MEDIAN_SAMPLES, Kernel

OTHER_IMAGES = (
    "used with other real images before: everything is fitted again and the curves restart, since values before and "
    "after cannot be compared"
)


class PromptedFeatures:
    """Features of outputs and of their prompts, and the kernels on both, whose widths are fixed for a run.

    Args:
        prompts: sample i has prompt i modulo their number.
        output_encoder: from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: from a list of n strings, or labels int64 [n], to features [n, e]; a name for `text_encoder`; or
            None for one-hot labels.
        kernel: of outputs.
        prompt_kernel: of prompts.
        num_features: random features of the kernels, or None.
        batch_size: samples per call of an encoder.

    Raises:
        ValueError: if there is no encoder for prompts that are strings.
    """

    def __init__(
        self,
        prompts: Prompts,
        output_encoder: Encoder | None,
        prompt_encoder: Encoder | str | None,
        kernel: Kernel,
        prompt_kernel: Kernel,
        num_features: int | None,
        batch_size: int,
    ) -> None:
        if prompt_encoder is None and not prompts.are_labels:
            raise ValueError(
                "Expected a `prompt_encoder` for prompts that are strings, but got None. Give the name of a published "
                'one, such as "minilm" or "clip", or any callable from a list of strings to features [n, e].'
            )
        if isinstance(prompt_encoder, str):
            if prompts.are_labels:
                raise ValueError(
                    f"Expected `prompts` to be strings with `prompt_encoder`={prompt_encoder!r}, but got class labels. "
                    "Give the classes' names, or leave `prompt_encoder` out."
                )
            prompt_encoder = text_encoder(prompt_encoder)
        self.prompts, self.num_features = prompts, num_features
        self.output_encoder = FrozenEncoder("output_encoder", output_encoder or pixels, batch_size)
        self.prompt_encoder = FrozenEncoder("prompt_encoder", prompt_encoder or OneHot(prompts.values), batch_size)
        self.kernel, self.prompt_kernel = self._given = kernel, prompt_kernel
        self._data: list[float] = []
        self.resumed = False
        self._prompt_rows = self._no_features = torch.empty(0, 0)

    @property
    def dims(self) -> tuple[int, int]:
        """The number of features of an output and of a prompt, once fitted."""
        return self._no_features.shape[1], self._prompt_rows.shape[1]

    def fit(self, probe: Tensor) -> None:
        """Freeze the encoders on the device of some generated images, and encode the prompts."""
        for encoder in (self.output_encoder, self.prompt_encoder):
            encoder.freeze(probe.device)
        self._no_features = self.encode(probe)[:0]
        numbers = self.prompts.numbers(torch.arange(len(self.prompts)))
        distinct = Prompts(self.prompts.distinct).of(range(len(self.prompts.distinct)), probe.device)
        self._prompt_rows = self.prompt_encoder(distinct).to(probe.device)[numbers.to(probe.device)]

    def forget(self) -> None:
        """Forget the widths and the images that they were taken from."""
        self.kernel, self.prompt_kernel = self._given
        self._data, self.resumed = [], False

    def take_data(self, real: RealSubset | None, comm: Collective) -> bool:
        """Record the real images; forget what was fixed and return False if they were others before.

        Args:
            real: None if they are not needed, as on resuming with known widths: nothing is forgotten then.
            comm: the processes that evaluate together.
        """
        # rank zero's, since a dataset may differ between processes: they must agree on whether to start over
        signature = comm.broadcast(None if real is None else real.signature())
        if signature is None:
            return True
        same = not self._data or self._data == signature
        if not same:
            self.forget()
        self._data = signature
        return same

    def fit_widths(self, real: RealSubset | None, comm: Collective) -> None:
        """Fix the widths of the kernels that have none yet, that of outputs from real images."""
        self.prompt_kernel = self.prompt_kernel.resolved(self._prompt_rows.unique(dim=0))
        if self.kernel.gamma is not None or not self.kernel.takes_gamma:
            return
        if real is None:
            raise ValueError(
                "Expected a `kernel` with its gamma, since there are no real images to take it from and those of an "
                "untrained generator say little. Give GaussianKernel(gamma=...), or `real_images=`."
            )
        first = range(min(MEDIAN_SAMPLES, len(real)))
        self.kernel = comm.from_rank_zero(lambda: self.kernel.resolved(self.encode(real.read(first).to(self.device))))

    @property
    def device(self) -> torch.device:
        """The device of the generated images, once fitted."""
        return self._no_features.device

    def encode(self, images: Tensor) -> Tensor:
        """Return features of images on their device, [0, d] of none."""
        return self.output_encoder(images).to(images.device) if len(images) else self._no_features

    def of_prompts(self, indices: Tensor) -> Tensor:
        """Return the features of the prompts of these samples [n, e]."""
        return self._prompt_rows[indices % len(self._prompt_rows)]

    def networks(self) -> dict[str, nn.Module]:
        """Return the encoders that are Modules, by the argument that they came by."""
        encoders = (self.output_encoder, self.prompt_encoder)
        return {encoder.name: encoder.encoder for encoder in encoders if isinstance(encoder.encoder, nn.Module)}

    def write_artifacts(self, folder: Path, prefix: str) -> None:
        """Write the prompts."""
        # in a dictionary: the report shows a list as a table
        write_json(folder / self._file(prefix), {"prompts": self.prompts.values})

    def manifest(self, prefix: str) -> dict[str, Any]:
        """Return the entries needed to repeat the evaluation."""
        kernels = {"kernel": repr(self.kernel), "prompt_kernel": repr(self.prompt_kernel)}
        return {"prompts_file": self._file(prefix), **self.encoders(), **kernels}

    def encoders(self) -> dict[str, str]:
        """Return the names of the encoders, by argument."""
        return {encoder.name: encoder.description() for encoder in (self.output_encoder, self.prompt_encoder)}

    def state_dict(self) -> dict[str, Any]:
        """Return the widths, and what tells the real images from others."""
        return {"gamma": self.kernel.gamma, "prompt_gamma": self.prompt_kernel.gamma, "data": list(self._data)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the widths."""
        self.kernel = replace(self.kernel, gamma=state["gamma"])
        self.prompt_kernel = replace(self.prompt_kernel, gamma=state["prompt_gamma"])
        self._data, self.resumed = list(state["data"]), True

    @staticmethod
    def _file(prefix: str) -> str:
        return f"{prefix}_prompts.json"


class PromptedEvaluator(Evaluator[EvaluationT]):
    """An evaluator of features of outputs and of their prompts, which tells of prompts that became worse.

    Args:
        settings: what the values depend on.
        features: of outputs and prompts.
        groups: of samples that are judged together.
        prefix: what its log keys and files begin with.
        objects: the arguments given that no manifest can hold, by name.

    Attributes:
        measure: of each prompt's samples, by which they are judged.
    """

    measure: ClassVar[PromptMeasure]

    def __init__(
        self,
        settings: DiversitySettings | DisagreementSettings,
        features: PromptedFeatures,
        groups: PromptGroups,
        prefix: str,
        **objects: Any,
    ) -> None:
        super().__init__(settings.count, prefix, settings, **objects)
        self.prompts, self.seed = settings.given_prompts, settings.seed
        self._features, self._groups = features, groups
        self._restart()

    def _restart(self) -> None:
        """Forget what depends on the real images, or on evaluations."""
        self._changes = PromptChanges(highest=self.measure.better == "high")
        self._value_range: tuple[float, float] | None = None  # without real images

    @property
    def kernel(self) -> Kernel:
        """The kernel of outputs, with its gamma once it is known."""
        return self._features.kernel

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once it is known."""
        return self._features.prompt_kernel

    def forget(self) -> None:
        """Let the next `fit` find everything anew."""
        self._features.forget()
        self._restart()

    def networks(self) -> dict[str, nn.Module]:
        """Return the encoders that are Modules."""
        return self._features.networks()

    def write_artifacts(self, folder: Path) -> None:
        """Write the prompts."""
        self._features.write_artifacts(folder, self.prefix)

    def fit_state(self) -> dict[str, Any]:
        """Return the kernels' widths, and what each prompt was at its best."""
        return self._features.state_dict() | {"changes": self._changes.state_dict()}

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `fit_state` returned."""
        self._features.load_state_dict(state)
        self._changes.load_state_dict(state["changes"])

    def _fit_widths(
        self, subset: RealSubset | None, notes: tuple[str, ...], probe: Tensor, comm: Collective
    ) -> FitReport:
        """Fix the kernels' widths by real images, where there are any."""
        if subset is not None:
            self._value_range = subset.value_range()
            notes += subset.range_notes(probe, self._features.resumed)
        comparable = self._features.take_data(subset, comm)
        if not comparable:
            self._changes = PromptChanges(highest=self.measure.better == "high")
        self._features.fit_widths(subset, comm)
        return FitReport(notes if comparable else (*notes, OTHER_IMAGES), comparable)
