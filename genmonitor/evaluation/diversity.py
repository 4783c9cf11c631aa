# SPDX-License-Identifier: Apache-2.0
"""DiversityEvaluator: measures the variety of a generator and the part of it that its prompts explain."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from genmonitor._io import Progress, no_progress
from genmonitor.distributed import Collective, SingleProcess
from genmonitor.encoders.feature_metrics import FidelityMetrics, check_neighbors
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation import diversity_findings as text
from genmonitor.evaluation.diversity_findings import DiversityEvaluation
from genmonitor.evaluation.evaluator import require_fitted
from genmonitor.evaluation.extra_metrics import ExtraMetrics
from genmonitor.evaluation.modes import COVARIANCES, DiversityMetric, mode_ends
from genmonitor.evaluation.prompt_groups import PromptGroups
from genmonitor.evaluation.prompted import PromptedEvaluator
from genmonitor.evaluation.results import FitReport, History
from genmonitor.evaluation.settings import DiversitySettings, check_has_no
from genmonitor.findings.finding import Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.functional.kernel_means import kernel_dispersion
from genmonitor.functional.prompt_fidelity import PromptFidelity, prompt_fidelity
from genmonitor.functional.vendi import conditional_vendi_of, vendi_from_covariance
from genmonitor.functional.w1kp import w1kp_score
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import prompts_of
from genmonitor.images.sampler import Samples
from genmonitor.kernels import Kernel

MAX_FEATURES = 3072
"""Largest number of features; with more, an evaluation would spend minutes on eigenvalues."""
GROUPS, MAX_REPEATED = 20, 1024
"""Number of groups of a jackknife, and largest number of features of a covariance to decompose for each."""

MAX_PAIRS = 2000
"""Largest number of samples; with more, the spectrum of their [n, n] kernel of pairs would take many seconds."""
NO_SAMPLES = Samples(torch.empty(0, 0), torch.empty(0, dtype=torch.long))


class DiversityEvaluator(PromptedEvaluator[DiversityEvaluation]):
    """Evaluates the variety of generated images and, for a conditional generator, the part that prompts explain.

    `genmonitor.callbacks.DiversityMonitor` explains the values.

    Args:
        settings: Settings on which the values depend; None for the defaults of `DiversitySettings`.
        output_encoder: Callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: Callable or Module from a list of n strings, or labels int64 [n], to features [n, e]; or a name
            for `text_encoder`; None for one-hot labels.
        extra_metrics: Further torchmetrics, which get the features.
        batch_size: Number of samples per call of an encoder.
        prefix: Prefix of log keys and files.

    References:
        The Vendi Score (arXiv 2210.02410). Scendi Score (arXiv 2412.18645). Conditional Vendi Score (arXiv 2411.02817).
    """

    settings: DiversitySettings
    tracker: text.SpreadTracker
    tracks = text.SpreadTracker

    def __init__(
        self,
        settings: DiversitySettings | None = None,
        *,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | str | None = None,
        extra_metrics: MetricCollection | Mapping[str, Metric] | None = None,
        batch_size: int = 100,
        prefix: str = "diversity",
    ) -> None:
        of = settings or DiversitySettings()
        if of.prompts is None:
            check_has_no(prompt_encoder=prompt_encoder)
        groups, objects = PromptGroups(of.prompts, of.n_samples), {"extra_metrics": extra_metrics}
        super().__init__(of, of.kernels, groups, output_encoder, prompt_encoder, batch_size, prefix, **objects)
        self.calibration, self.rcond, self.extra_metrics = of.calibration, of.rcond, extra_metrics
        self._extra = ExtraMetrics({} if extra_metrics is None else extra_metrics, of="features")
        self._metric: DiversityMetric | None = None
        self._fidelity: FidelityMetrics | None = None
        self._real_features: Tensor | None = None  # this process's
        self._real_clip_score: float | None = None
        self._samples, self._outputs = NO_SAMPLES, NO_SAMPLES.images

    @property
    def metric(self) -> DiversityMetric:
        """Scendi, Vendi and RKE, once fitted."""
        return require_fitted(self._metric, type(self).__name__)

    def fit(self, real: ImageSet, probe: Tensor, comm: Collective, progress: Progress = no_progress) -> FitReport:
        """Encode the prompts, fix the kernels' gammas, and encode real images if there are any."""
        with comm.all_ranks_or_none():
            self._encode_prompts(probe)
            subset, notes = self._choose_real(real, tuple(probe.shape[1:]))
        self._value_range = None
        report = self._fit_gammas(subset, notes, probe, comm)
        self._check_size()
        if self.calibration is not None:
            self.calibration.check("features of the output encoder", self._encode(probe[:0]))
        self._fidelity, self._real_features, self._real_clip_score, self.tracker.limit = None, None, None, math.inf
        if subset is not None:
            with comm.all_ranks_or_none():
                real_features = self._encode(subset.read(comm.rank_indices(len(subset))).to(probe.device))
            self._fidelity = FidelityMetrics(real_features, self.kernel, self.num_features)
            self.tracker.limit = float(kernel_dispersion(comm.gather_rows(real_features), self.kernel).value)
            self._real_features = real_features
            if self._share_a_space:
                self._real_clip_score = self._clip_score_of(subset, real_features, comm)
        if self.extra_metrics is not None:
            own = (*text.SCORES, *text.REAL, *text.FIDELITY, *self.tracker.specs().values())
            with comm.all_ranks_or_none():
                self._extra.check(self._encode(probe), self._real_features, own=own)
        self._metric = self._new_metric().to(probe.device)
        return replace(report, messages=self.tracker.groups.messages())

    def update(self, samples: Samples) -> None:
        """Encode this process's samples, each once, and add them to every metric."""
        metric = self.metric
        self._samples, self._outputs = samples, self._encode(samples.images)
        self._range.look(self._real_probe, samples.images)
        metric.reset()
        metric.update(self._outputs, self._prompts_of(samples.indices))
        self._extra.update(self._outputs, self._real_features)
        if self._fidelity is not None:
            self._fidelity.update(self._outputs)

    def compute(self, comm: Collective) -> DiversityEvaluation:
        """Return the scores and the samples that show the modes of the model."""
        try:
            return self._compute(comm)
        finally:  # samples may take more memory than the model
            self._samples, self._outputs = NO_SAMPLES, NO_SAMPLES.images

    def _compute(self, comm: Collective) -> DiversityEvaluation:
        with comm.all_ranks_or_none():
            computed = self.metric.compute()
        # torchmetrics turns matrices with one number into scalars
        computed |= {name: torch.atleast_2d(computed[name]) for name in COVARIANCES}
        values = {name: float(computed[name]) for name in self._scores(computed)}
        if self._fidelity is not None:
            with comm.all_ranks_or_none():
                values |= self._fidelity.compute()
        values |= self._extra.compute(comm)
        outputs, indices = comm.gather_rows(self._outputs), comm.gather_rows(self._samples.indices)
        followed: PromptFidelity | None = None
        with comm.all_ranks_or_none():
            ordered = outputs[indices.argsort()]
            if self.calibration is not None:
                numbers = self._by_prompt.numbers(torch.arange(len(ordered), device=ordered.device))
                values["w1kp"] = float(w1kp_score(ordered, numbers, calibration=self.calibration)["w1kp"])
            spread = self.tracker.measure(ordered, self.kernel)
            values |= self.tracker.by_key(spread)
            if self._share_a_space:
                followed = self._compare_with_prompts(outputs, indices)
                values |= {"clip_score": float(followed.score), "clip_score_shuffled": float(followed.shuffled)}
            if self._real_clip_score is not None:
                values["real_clip_score"] = self._real_clip_score
            if self._measures_pairs:
                pairs = self.metric.vendi_of_pairs(outputs, self._prompts_of(indices))
                given = conditional_vendi_of(pairs, computed["vendi"], vendi_from_covariance(computed["prompts"]))
                values |= {name: float(value) for name, value in given.items()}
        with comm.all_ranks_or_none():
            # five modes to draw, with five samples at either end of each
            modes = self.metric.modes(min(5, len(computed["outputs"])))
            scores = self.metric.mode_scores(self._outputs, self._prompts_of(self._samples.indices), modes)
        ends = mode_ends(scores, self._samples, 5, comm)
        own = (1 - computed["prompt_share"]).clamp_min(1e-12)  # the outputs' covariance has trace 1
        shares = (modes.eigenvalues / own).tolist()
        return DiversityEvaluation(values, shares, ends, spread, followed, notes=self._range.items)

    def standard_errors(
        self, samples: Samples, comm: Collective | None = None, progress: Progress = no_progress
    ) -> dict[str, float]:
        """Return the standard errors of the scores over draws of the samples, by a jackknife that leaves out groups.

        Bootstrap draws would repeat samples, which lowers the number of modes. The result is empty for kernels whose
        covariance takes too long to decompose repeatedly.

        Args:
            samples: All samples, in every process.
            comm: Processes that share the groups; None for this process alone.
            progress: Progress bar over the groups.
        """
        comm = comm or SingleProcess()
        outputs, prompts = self._encode(samples.images), self._prompts_of(samples.indices)
        groups = min(GROUPS, len(outputs) // 2)
        if self._size(self.kernel, outputs.shape[1]) > MAX_REPEATED or groups < 2:
            return {}
        group = torch.randperm(len(outputs), generator=torch.Generator().manual_seed(self.seed)) % groups
        metric = self._new_metric(sync_on_compute=False).to(outputs.device)
        found = []
        with comm.all_ranks_or_none():
            for left_out in progress(comm.rank_indices(groups), "standard errors"):
                kept = group.to(outputs.device) != left_out
                metric.reset()
                metric.update(outputs[kept], prompts[kept])
                with warnings.catch_warnings(action="ignore"):  # whose advice the evaluation has given
                    scores = metric.compute()
                found.append({name: float(scores[name]) for name in self._scores(scores)})
        of_groups = [scores for part in comm.gather(found) for scores in part]
        by_name = {name: torch.tensor([scores[name] for scores in of_groups]) for name in of_groups[0]}
        return {f"{name}_error": float(x.std(correction=0)) * (groups - 1) ** 0.5 for name, x in by_name.items()}

    def commit(self, evaluation: DiversityEvaluation, history: History) -> list[Finding]:
        """Return a finding if prompts lost their variety."""
        self._range.commit()
        return self.tracker.alerts(evaluation.spread, history[-1])

    def forget(self) -> None:
        """Let the next `fit` find everything from scratch."""
        super().forget()
        self._metric = None

    def values(self) -> list[ValueSpec]:
        """Return the declarations of the scores, the spread of each prompt and the extra metrics."""
        given = self.prompts is not None, self._measures_pairs, self.calibration is not None
        fidelity, spread = text.FIDELITY if self._share_a_space else (), self.tracker.specs()
        scores = text.diversity_values(self.n_samples, *given)
        return [*scores, *fidelity, *spread.values(), *self._extra.specs]

    def findings(self, evaluation: DiversityEvaluation, history: History) -> tuple[Finding, ...]:
        """Return findings of prompts that lost variety or may be ignored, of all samples, and of narrow prompts."""
        ignored = text.ignored_prompts(evaluation.followed, self._by_prompt.distinct)
        lost, narrow = self.tracker.findings(history[-1]), self.tracker.narrow(evaluation.spread)
        return (*lost, *ignored, text.state(history[-1], self.n_samples), *narrow)

    def presenter(self) -> text.DiversityPresenter:
        """Return the presenter of the samples and their modes."""
        return text.DiversityPresenter(self.prompts, self._value_range)

    @property
    def _measures_pairs(self) -> bool:
        return self.prompts is not None and self.n_samples <= MAX_PAIRS

    @property
    def _share_a_space(self) -> bool:
        """True if both encoders declare a common space of images and prompts, as those of one CLIP or SigLIP do."""
        spaces = {getattr(encoder.encoder, "space", None) for encoder in (self._output_encoder, self._prompt_encoder)}
        return len(spaces) == 1 and None not in spaces and len(self._by_prompt.distinct) > 1

    def _compare_with_prompts(self, outputs: Tensor, indices: Tensor) -> PromptFidelity:
        first = [self._by_prompt.values.index(prompt) for prompt in self._by_prompt.distinct]
        return prompt_fidelity(outputs, self._prompt_rows[first].to(outputs), self._by_prompt.numbers(indices))

    def _clip_score_of(self, subset: ImageSet, features: Tensor, comm: Collective) -> float | None:
        """Return CLIPScore of all real images with their captions; None without captions.

        Args:
            subset: Real images.
            features: Features of the samples of this process.
            comm: Processes that evaluate together.
        """
        cosines = torch.empty(0, dtype=torch.float64, device=features.device)
        with comm.all_ranks_or_none():
            if captions := prompts_of(subset, comm.rank_indices(len(subset)), labels=False):
                texts = self._prompt_encoder(captions).to(features)
                cosines = torch.nn.functional.cosine_similarity(features.double(), texts.double())
        cosines = comm.gather_rows(cosines)
        return 100 * float(cosines.mean()) if len(cosines) else None

    def _scores(self, computed: Mapping[str, Tensor]) -> Sequence[str]:
        """Name the scores that the metric computes; without prompts only those of outputs."""
        if self.prompts is None:
            return text.OF_OUTPUTS
        return [name for name, value in computed.items() if value.ndim == 0 and name not in COVARIANCES]

    def _size(self, kernel: Kernel, dim: int) -> int:
        """Return the number of explicit features of a kernel."""
        return 2 * (self.num_features or 0) if kernel.takes_gamma else dim

    def _new_metric(self, **options: Any) -> DiversityMetric:
        return DiversityMetric(self.kernel, self.prompt_kernel, self.num_features, self.rcond, **options)

    def _choose_real(self, real: ImageSet, shape: tuple[int, ...]) -> tuple[ImageSet | None, tuple[str, ...]]:
        """Choose real images; images that the user did not give only if they fit."""
        try:
            subset = real.to_compare(self.n_samples, self.seed, shape)
            check_neighbors(len(subset), self.n_samples)
        except ValueError as error:
            if real.required:
                raise
            return None, (f"precision, recall, density and coverage are not measured. {error}".removesuffix("."),)
        return subset, subset.notes() + subset.few_notes(self.n_samples) + subset.reading_notes()

    def _check_size(self) -> None:
        """Refuse features whose covariance would take minutes to decompose."""
        for name, kernel, dim in zip(("output", "prompt"), (self.kernel, self.prompt_kernel), self.dims, strict=True):
            size = self._size(kernel, dim)
            if size > MAX_FEATURES:
                raise ValueError(
                    f"Expected at most {MAX_FEATURES} features of each {name}, but got {size}, which would take minutes"
                    f" at each evaluation. Give `{name}_encoder=` one with fewer, such as CLIP or, for pixels, an "
                    "average over patches; or a GaussianKernel with `num_features`."
                )
