# SPDX-License-Identifier: Apache-2.0
"""DisagreementEvaluator: for which prompts a conditional generator differs from the data or from what it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from genmonitor._validation import check_one_of
from genmonitor._validation.arguments import check_kernel, check_prompt_split_arguments
from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.prompted_images import PromptKey, subset_by_prompt
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.real_subset import RealSubset
from genmonitor.evaluation.data.reference import ReferenceImages
from genmonitor.evaluation.encoders.frozen import Encoder
from genmonitor.evaluation.evaluator import Evaluator, NotFittedError
from genmonitor.evaluation.progress import Progress, no_progress
from genmonitor.evaluation.prompts.changes import PromptChanges
from genmonitor.evaluation.prompts.disagreement_figures import SAMPLES, DisagreementEvaluation, DisagreementFigures
from genmonitor.evaluation.prompts.disagreement_modes import Ranked, SampleSet, disagreement, thumbnail
from genmonitor.evaluation.prompts.estimates import PromptDistances, PromptGroups
from genmonitor.evaluation.prompts.prompted import OTHER_IMAGES, PromptedFeatures
from genmonitor.evaluation.results import Alert, FitReport, History, Samples, Table
from genmonitor.evaluation.text import disagreement as text
from genmonitor.functional.promptsplit import PromptSplitModes, prompt_split
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.plotting.style import Drawing

Reference = Literal["data", "start", "previous"]

ONE_HOT_KERNEL = GaussianKernel.from_sigma(0.25)
"""Of one-hot labels: two classes have a similarity of exp(-16)."""
NO_INDICES = torch.empty(0, dtype=torch.long)
NO_SAMPLES = SampleSet(torch.empty(0, 0), NO_INDICES, torch.empty(0), NO_INDICES)


class DisagreementEvaluator(Evaluator[DisagreementEvaluation]):
    """Evaluates how far a model's outputs differ from a reference's, and for which prompts.

    Its arguments are those of `genmonitor.callbacks.DisagreementMonitor`, which says what the values are.

    Args:
        prompts: strings, or class labels as integers.
        n_samples: generated images per evaluation, a multiple of the number of prompts; None for the first one from
            1000 on.
        reference: "data", "start" or "previous".
        num_modes: how many modes of either sign are reported.
        output_encoder: from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: from a list of n strings, or labels int64 [n], to features [n, e]; or a name for `text_encoder`;
            None for one-hot labels.
        kernel: of outputs, None for a Gaussian.
        prompt_kernel: of prompts.
        num_features: random features in place of exact kernels, see `PromptSplit`.
        eta: weight of the reference.
        prompt_key: for "data", where the prompts of real images are in a batch.
        seed: of the choice of real images and of random features.
        batch_size: samples per call of an encoder.
        prefix: what its log keys and files begin with.

    References:
        PromptSplit: Revealing Prompt-Level Disagreement in Generative Models (arXiv 2602.04009).
    """

    about = text.ABOUT
    details = text.DETAILS
    figures_to_keep = ("modes", "prompts")

    def __init__(
        self,
        prompts: Sequence[str] | Sequence[int] | Tensor | Prompts,
        n_samples: int | None = None,
        *,
        reference: Reference = "data",
        num_modes: int = 5,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | str | None = None,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        num_features: int | None = None,
        eta: float = 1.0,
        prompt_key: PromptKey = None,
        seed: int = 0,
        batch_size: int = 100,
        prefix: str = "disagreement",
    ) -> None:
        self.prompts: Prompts = Prompts.from_any(prompts)
        n_prompts = len(self.prompts)
        if n_samples is None:
            n_samples = -(-1000 // n_prompts) * n_prompts
        super().__init__(n_samples, prefix)
        check_one_of("reference", reference, get_args(Reference))
        kernels = _kernels(kernel, prompt_kernel, prompt_encoder)
        check_prompt_split_arguments(*kernels, eta, num_modes, num_features)
        self._features = PromptedFeatures(
            self.prompts, n_samples, output_encoder, prompt_encoder, *kernels, num_features, batch_size, seed
        )
        if n_samples % n_prompts:
            less, more = n_samples // n_prompts * n_prompts, -(-n_samples // n_prompts) * n_prompts
            raise ValueError(
                f"Expected `n_samples` to be a multiple of the number of prompts, {n_prompts}, but got {n_samples}: "
                f"a prompt with more samples than another would count for more. Give {less} or {more}."
            )
        self.reference, self.num_modes, self.prompt_key, self.seed = reference, num_modes, prompt_key, seed
        self.eta = eta
        self._reference = self._current = NO_SAMPLES
        self._value_range: tuple[float, float] | None = None  # None without real images
        self._changed: Ranked = []
        self._groups = PromptGroups(self.prompts, n_samples)
        self._distances: PromptDistances | None = None  # against real images only: moving from the start is learning
        self._changes = PromptChanges(highest=False)

    @property
    def kernel(self) -> Kernel:
        """The kernel of outputs, with its gamma once it is known."""
        return self._features.kernel

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once it is known."""
        return self._features.prompt_kernel

    def fit(
        self, real: ReferenceImages, probe: Tensor, comm: Collective, progress: Progress = no_progress
    ) -> FitReport:
        """Encode the prompts, fix the kernels' widths, and encode real images where they are the reference."""
        self._features.fit(probe)
        shape = tuple(probe.shape[1:])
        subset: RealSubset | None
        if self.reference == "data":
            subset, notes = subset_by_prompt(
                real, self.prompt_key, self.prompts, self.n_samples, self.seed, shape, comm, progress
            )
        else:
            subset, notes = self._choose_for_width(real, shape)
        if subset is not None:
            self._value_range, notes = subset.value_range(), notes + subset.range_notes(probe, self._features.resumed)
        comparable = self._features.take_data(subset, comm)
        if not comparable:
            self._changes = PromptChanges(highest=False)
        self._features.fit_widths(subset, comm)
        if self.reference == "data" and subset is not None:
            mine = comm.rank_indices(len(subset))
            images = subset.read(mine).to(probe.device)
            self._reference = self._gathered(images, torch.tensor(mine, dtype=torch.long), comm)
            self._groups = PromptGroups(self.prompts, self.n_samples, len(subset))
            self._distances = PromptDistances(self._reference.features, self._groups)
        self._check_features()
        return FitReport(notes if comparable else (*notes, OTHER_IMAGES), comparable)

    @property
    def needs_first_samples(self) -> bool:
        """Whether the model's own first samples are the reference and are not there yet."""
        return self.reference != "data" and not len(self._reference.features)

    def take_first_samples(self, samples: Samples, comm: Collective) -> None:
        """Encode the samples that later ones are compared with."""
        self._reference = self._gathered(samples.images, samples.indices, comm)

    def update(self, samples: Samples) -> None:
        """Encode this process's samples."""
        self._current = self._sample_set(samples.images, samples.indices)

    def compute(self, comm: Collective) -> DisagreementEvaluation:
        """Return the eigenvalues and their total, and the prompts that they are about."""
        if not len(self._reference.features):
            raise NotFittedError(f"Expected a fitted {type(self).__name__} with a reference. Call `fit` first.")
        current, reference = self._trimmed(self._current.gathered(comm)), self._reference
        sides = (current.features, reference.features.to(current.features))
        prompts = [self._features.of_prompts(side.indices.to(sides[0].device)) for side in (current, reference)]
        names = [self.prompts.named(side.indices.tolist()) for side in (current, reference)]

        def split(num_modes: int) -> PromptSplitModes:
            return prompt_split(
                sides[0],
                prompts[0],
                sides[1],
                prompts[1],
                output_kernel=self.kernel,
                prompt_kernel=self.prompt_kernel,
                eta=self.eta,
                num_modes=num_modes,
                num_features=self._features.num_features,
                seed=self.seed,
            )

        found = disagreement(split, self.num_modes, *names)
        distances = {} if self._distances is None else self._distances.measure(current.features)
        return DisagreementEvaluation(text.values(found, self.num_modes), found, current, reference, distances)

    def commit(self, evaluation: DisagreementEvaluation, history: History) -> list[Alert]:
        """Keep what the next evaluation is compared with; return an alert if prompts moved away from the data."""
        self._changed = evaluation.found.changed
        if self.reference == "previous":
            self._reference = evaluation.current
        if not evaluation.distances:
            return []
        record = history[-1]
        moved = self._changes.update(evaluation.distances, record["epoch"])
        return text.moved_away(self.prefix, moved, record, self._groups.by_prompt)

    def networks(self) -> dict[str, nn.Module]:
        """Return the encoders that are Modules."""
        return self._features.networks()

    def charts(self) -> dict[str, list[str]]:
        """Return which values share a chart, by its title."""
        return text.charts(self.num_modes, self.reference)

    def higher_is_better(self) -> dict[str, bool]:
        """Return that the disagreement with data is better when it is lower; with another model it may be either."""
        return {"total": False} if self.reference == "data" else {}

    def figures(self, evaluation: DisagreementEvaluation, history: History, samples: Samples) -> dict[str, Drawing]:
        """Return what draws the curves, the prompts of the modes and the prompts that differ most."""
        figures = self._figures(evaluation)
        return {
            "curves": figures.curves(history, self.num_modes),
            "modes": figures.modes(),
            "prompts": figures.changed(),
        }

    def tables(self, evaluation: DisagreementEvaluation) -> dict[str, Table]:
        """Return the prompts that differ most, with samples of both sides."""
        return {"prompts": self._figures(evaluation).table(evaluation.distances)}

    def message(self, evaluation: DisagreementEvaluation, history: History) -> str:
        """Return one line about the last evaluation."""
        return text.message(history[-1], evaluation.found.changed, text.AGAINST[self.reference])

    def summary(self, history: History) -> str:
        """Return a table of the last evaluation and of the prompts that differed most."""
        note = self._groups.note() if self.reference == "data" else ""
        return text.table(history, self._changed, self.num_modes, self.reference, note)

    def write_artifacts(self, folder: Path) -> None:
        """Write the prompts."""
        self._features.write_artifacts(folder, self.prefix)

    def manifest(self) -> dict[str, Any]:
        """Return what is needed to evaluate the same again."""
        compared = {"reference": self.reference, "reference_samples": len(self._reference.features)}
        return self._features.manifest(self.prefix) | compared

    def settings(self) -> dict[str, Any]:
        """Return what values depend on, as plain Python."""
        own = {"reference": self.reference, "num_modes": self.num_modes, "eta": self.eta}
        return super().settings() | self._features.settings() | self._features.encoders() | own

    def fit_state(self) -> dict[str, Any]:
        """Return the kernels' widths, the prompts that differed most, and the model's own samples as the reference."""
        value_range = None if self._value_range is None else list(self._value_range)
        state = self._features.state_dict() | {"changed": [list(pair) for pair in self._changed], "range": value_range}
        state["changes"] = self._changes.state_dict()
        if self.reference != "data" and not self.needs_first_samples:
            state["features"] = self._reference.features.cpu()
            state["shown"] = self._reference.shown.half()
            state["indices"] = self._reference.indices.cpu()
            state["shown_indices"] = self._reference.shown_indices.cpu()
        return state

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `fit_state` returned."""
        self._features.load_state_dict(state)
        self._changed = [(prompt, part) for prompt, part in state["changed"]]
        self._changes.load_state_dict(state["changes"])
        if state["range"] is not None:
            self._value_range = (state["range"][0], state["range"][1])
        if "features" in state:
            self._reference = SampleSet(
                state["features"], state["indices"], state["shown"].float(), state["shown_indices"]
            )

    def forget(self) -> None:
        """Let the next `fit` find everything anew."""
        self._features.forget()
        self._reference, self._changed, self._value_range = NO_SAMPLES, [], None
        self._distances, self._changes = None, PromptChanges(highest=False)

    def _choose_for_width(
        self, real: ReferenceImages, shape: tuple[int, ...]
    ) -> tuple[RealSubset | None, tuple[str, ...]]:
        """Choose any real images, where a kernel takes its width from them."""
        if self.kernel.gamma is not None or not self.kernel.takes_gamma:
            return None, ()
        try:
            return RealSubset.at_random(real, self.n_samples, self.seed, shape), ()
        except ValueError as error:
            if real.given is not None:
                raise
            return None, (f"there are no real images to take the kernel's width from. {error}".removesuffix("."),)

    def _check_features(self) -> None:
        saved, encoded = self._reference.features.shape[-1], self._features.dims[0]
        if not self.needs_first_samples and saved != encoded:
            raise ValueError(
                f"Expected `output_encoder` to return {saved} values like the features of the reference in the "
                f"checkpoint, but got {encoded}. Resume with the encoder that the run began with."
            )

    def _sample_set(self, images: Tensor, indices: Tensor) -> SampleSet:
        """Encode this process's part of a side."""
        some = self._first_of_prompts(indices)
        return SampleSet(self._features.encode(images), indices, thumbnail(images[some]), indices[some])

    def _gathered(self, images: Tensor, indices: Tensor, comm: Collective) -> SampleSet:
        return self._trimmed(self._sample_set(images, indices).gathered(comm))

    def _trimmed(self, found: SampleSet) -> SampleSet:
        """Return a set with no more samples to show than one process would have kept."""
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

    def _figures(self, evaluation: DisagreementEvaluation) -> DisagreementFigures:
        sides = (evaluation.current, evaluation.reference)
        lows, highs = ([float(f(side.shown)) for side in sides] for f in (torch.min, torch.max))
        value_range = self._value_range or (min(lows), max(highs))
        return DisagreementFigures(evaluation.found, *sides, self.prompts, value_range, text.AGAINST[self.reference])


def _kernels(
    kernel: Kernel | None, prompt_kernel: Kernel | None, prompt_encoder: Encoder | str | None
) -> tuple[Kernel, Kernel]:
    """Return the kernels of outputs and prompts, those not given by what is sensible with the other."""
    for name, given in (("kernel", kernel), ("prompt_kernel", prompt_kernel)):
        check_kernel(name, given)
    kernel = kernel or GaussianKernel()
    if prompt_kernel is None:
        by_prompts = ONE_HOT_KERNEL if prompt_encoder is None else GaussianKernel()
        prompt_kernel = by_prompts if kernel.takes_gamma else kernel
    return kernel, prompt_kernel
