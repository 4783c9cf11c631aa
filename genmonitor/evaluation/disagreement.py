# SPDX-License-Identifier: Apache-2.0
"""DisagreementEvaluator: finds prompts for which a conditional generator differs from the data or its past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from genmonitor._io import Progress, no_progress
from genmonitor.distributed import Collective
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation import disagreement_findings as text
from genmonitor.evaluation.disagreement_findings import SAMPLES, DisagreementEvaluation
from genmonitor.evaluation.evaluator import NotFittedError
from genmonitor.evaluation.modes import ByChance, Disagreement, SampleSet, disagreement, thumbnail
from genmonitor.evaluation.prompt_groups import PromptGroups
from genmonitor.evaluation.prompted import PromptedEvaluator
from genmonitor.evaluation.results import FitReport, History
from genmonitor.evaluation.settings import DisagreementSettings
from genmonitor.findings.finding import Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.functional.promptsplit import PromptSplitModes, prompt_split
from genmonitor.functional.promptsplit_energy import disagreement_p_values, permuted_sides
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import PromptKey, Prompts, subset_by_prompt
from genmonitor.images.sampler import Samples

NO_SAMPLES = SampleSet(
    torch.empty(0, 0), torch.empty(0, dtype=torch.long), torch.empty(0), torch.empty(0, dtype=torch.long)
)


class DisagreementEvaluator(PromptedEvaluator[DisagreementEvaluation]):
    """Evaluates the disagreement of a model's outputs with a reference, by prompt.

    `genmonitor.callbacks.DisagreementMonitor` explains the values.

    Args:
        settings: Settings on which the values depend, such as the prompts.
        output_encoder: Callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: Callable or Module from a list of n strings, or labels int64 [n], to features [n, e]; or a name
            for `text_encoder`; None for one-hot labels.
        prompt_key: Position of the prompts of real images in a batch, for "data".
        batch_size: Number of samples per call of an encoder.
        baseline_draws: Number of random draws of the sides for the baseline of the total.
        prefix: Prefix of log keys and files.

    References:
        PromptSplit: Revealing Prompt-Level Disagreement in Generative Models (arXiv 2602.04009).
    """

    settings: DisagreementSettings
    prompts: Prompts
    tracker: text.DistanceTracker
    tracks = text.DistanceTracker

    def __init__(
        self,
        settings: DisagreementSettings,
        *,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | str | None = None,
        prompt_key: PromptKey = None,
        batch_size: int = 100,
        baseline_draws: int = 1,
        prefix: str = "disagreement",
    ) -> None:
        of, objects = settings, {"prompt_key": prompt_key if callable(prompt_key) else None}
        # only against real images, since moving away from the start is learning
        groups = PromptGroups(of.prompts, of.n_samples) if of.reference == "data" else PromptGroups(None, 0)
        kernels = of.kernels(one_hot=prompt_encoder is None)
        super().__init__(of, kernels, groups, output_encoder, prompt_encoder, batch_size, prefix, **objects)
        self.reference, self.num_modes, self.eta = of.reference, of.num_modes, of.eta
        self.prompt_key, self.baseline_draws = prompt_key, baseline_draws
        self._values = text.DisagreementValues(of.num_modes, of.reference)
        self._reference = self._current = NO_SAMPLES

    @property
    def best_key(self) -> str | None:
        """Key of the mean distance of the prompts from real images; None where none is measured."""
        return "distance" if self.tracker.groups.names else None

    def fit(self, real: ImageSet, probe: Tensor, comm: Collective, progress: Progress = no_progress) -> FitReport:
        """Encode the prompts, fix the kernels' gammas, and encode real images if they are the reference."""
        with comm.all_ranks_or_none():
            self._encode_prompts(probe)
        shape = tuple(probe.shape[1:])
        subset: ImageSet | None
        if self.reference == "data":
            subset, notes = subset_by_prompt(
                real, self.prompt_key, self.prompts, self.n_samples, self.seed, shape, comm, progress
            )
        else:
            with comm.all_ranks_or_none():
                subset, notes = self._choose_for_gamma(real, shape)
        report = self._fit_gammas(subset, notes, probe, comm)
        if self.reference == "data" and subset is not None:
            mine = comm.rank_indices(len(subset))
            with comm.all_ranks_or_none():
                images = subset.read(mine).to(probe.device)
            self._reference = self._gathered(images, torch.tensor(mine, dtype=torch.long), comm)
            groups = PromptGroups(self.prompts, self.n_samples, len(subset))
            self.tracker.compare_with(self._reference.features, groups)
        self._check_features()
        return replace(report, messages=self.tracker.groups.messages())

    @property
    def needs_first_samples(self) -> bool:
        """True if the model's first samples are the reference and are still missing."""
        return self.reference != "data" and not len(self._reference.features)

    def take_first_samples(self, samples: Samples, comm: Collective) -> None:
        """Encode the samples to compare later ones with."""
        self._reference = self._gathered(samples.images, samples.indices, comm)

    def update(self, samples: Samples) -> None:
        """Encode this process's samples."""
        self._current = self._sample_set(samples.images, samples.indices)
        self._range.look(self._real_probe, samples.images)

    def compute(self, comm: Collective) -> DisagreementEvaluation:
        """Return the eigenvalues, their total and the prompts that they are about."""
        if not len(self._reference.features):
            raise NotFittedError(f"Expected a fitted {type(self).__name__} with a reference. Call `fit` first.")
        current, reference = self._trimmed(self._current.gathered(comm)), self._reference
        with comm.all_ranks_or_none(alone=True):
            found = self._disagreement(current, reference)
        distances = self.tracker.measure(current.features)
        values = self._values.measured(found) | self.tracker.mean(distances) | self.tracker.by_key(distances)
        return DisagreementEvaluation(values, found, current, reference, distances, notes=self._range.items)

    def _disagreement(self, *sides: SampleSet) -> Disagreement:
        """Compare the model with the reference, and with the baseline of chance."""
        outputs = [side.features.to(sides[0].features) for side in sides]
        prompts = [self._prompts_of(side.indices.to(outputs[0].device)) for side in sides]
        names, of_reference = (self.prompts.named(side.indices.tolist()) for side in sides)
        rows, codes = torch.cat(outputs), torch.cat(prompts)

        options: Any = {"output_kernel": self.kernel, "prompt_kernel": self.prompt_kernel, "eta": self.eta}
        options |= {"num_features": self.num_features, "seed": self.seed}

        def split(num_modes: int, test: Tensor) -> PromptSplitModes:
            sides = rows[test], codes[test], rows[~test], codes[~test]
            return prompt_split(*sides, num_modes=num_modes, **options)

        observed = torch.arange(len(rows), device=rows.device) < len(names)
        drawn = permuted_sides(names, of_reference, self.baseline_draws, self.seed).to(rows.device)
        test, reference = zip(outputs, prompts, strict=True)
        kernels = self.kernel, self.prompt_kernel
        p, prompt_p = disagreement_p_values(test, reference, names, of_reference, *kernels, seed=self.seed)
        found = disagreement(lambda num_modes: split(num_modes, observed), self.num_modes, names, of_reference)
        return replace(found, p=p, prompt_p=prompt_p, by_chance=[ByChance.of(split(1, sides)) for sides in drawn])

    def commit(self, evaluation: DisagreementEvaluation, history: History) -> list[Finding]:
        """Keep the samples to compare with next; return a finding if prompts moved away from the data."""
        self._range.commit()
        if self.reference == "previous":
            self._reference = evaluation.current
        if not evaluation.distances:
            return []
        return self.tracker.alerts(evaluation.distances, history[-1])

    def values(self) -> list[ValueSpec]:
        """Return the declarations of total, modes and, against real images, the distance of each prompt."""
        return [*self._values.specs, *self.tracker.specs().values()]

    def findings(self, evaluation: DisagreementEvaluation, history: History) -> tuple[Finding, ...]:
        """Return findings of the prompts that moved away from the data, and of the size of the disagreement."""
        record, most = history[-1], evaluation.most()
        return (*self.tracker.findings(record), text.disagreement_finding(record, most, self._values.against))

    def presenter(self) -> text.DisagreementPresenter:
        """Return the presenter of modes and prompts."""
        return text.DisagreementPresenter(self.prompts, self._values.against, self._value_range)

    def manifest(self) -> dict[str, Any]:
        """Return the data needed to repeat an evaluation."""
        compared = {"reference": self.reference, "reference_samples": len(self._reference.features)}
        return super().manifest() | compared

    def comparable_settings(self) -> dict[str, Any]:
        """Return the settings that must agree for comparable values, as plain Python."""
        return super().comparable_settings() | self._encoder_names()

    def fit_state(self) -> dict[str, Any]:
        """Return the kernels' gammas, and the model's own samples if they are the reference."""
        value_range = None if self._value_range is None else list(self._value_range)
        state = super().fit_state() | {"range": value_range}
        if self.reference != "data" and not self.needs_first_samples:
            saved = {name: values.cpu() for name, values in vars(self._reference).items()}
            state["reference"] = saved | {"shown": self._reference.shown.half()}
        return state

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over the result of `fit_state`."""
        super().load_fit_state(state)
        if state["range"] is not None:
            self._value_range = (state["range"][0], state["range"][1])
        if "reference" in state:
            saved = state["reference"]
            self._reference = SampleSet(**saved | {"shown": saved["shown"].float()})

    def forget(self) -> None:
        """Let the next `fit` find everything from scratch."""
        super().forget()
        self._reference = NO_SAMPLES

    def _choose_for_gamma(self, real: ImageSet, shape: tuple[int, ...]) -> tuple[ImageSet | None, tuple[str, ...]]:
        """Choose arbitrary real images, from which a kernel takes its gamma."""
        if self.kernel.gamma is not None or not self.kernel.takes_gamma:
            return None, ()
        try:
            return real.to_compare(self.n_samples, self.seed, shape), ()
        except ValueError as error:
            if real.required:
                raise
            return None, (f"there are no real images to take the kernel's gamma from. {error}".removesuffix("."),)

    def _check_features(self) -> None:
        saved, encoded = self._reference.features.shape[-1], self.dims[0]
        if not self.needs_first_samples and saved != encoded:
            raise ValueError(
                f"Expected `output_encoder` to return {saved} values like the features of the reference in the "
                f"checkpoint, but got {encoded}. Resume with the encoder that the run began with."
            )

    def _sample_set(self, images: Tensor, indices: Tensor) -> SampleSet:
        """Encode this process's part of a side."""
        some = self._first_of_prompts(indices)
        return SampleSet(self._encode(images), indices, thumbnail(images[some]), indices[some])

    def _gathered(self, images: Tensor, indices: Tensor, comm: Collective) -> SampleSet:
        return self._trimmed(self._sample_set(images, indices).gathered(comm))

    def _trimmed(self, found: SampleSet) -> SampleSet:
        """Return a set with the number of samples to show that a single process would keep."""
        some = self._first_of_prompts(found.shown_indices)
        return replace(found, shown=found.shown[some], shown_indices=found.shown_indices[some])

    def _first_of_prompts(self, indices: Tensor) -> list[int]:
        """Return the rows of the first few samples of every prompt."""
        left = Counter(dict.fromkeys(self.prompts.distinct, SAMPLES))
        rows = []
        for row, prompt in enumerate(self.prompts.named(indices.tolist())):
            if left[prompt]:
                left[prompt] -= 1
                rows.append(row)
        return rows
