# SPDX-License-Identifier: Apache-2.0
"""DiversityEvaluator: how varied a generator is, and how much of that its prompts explain where it has any."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from genmonitor._io import Progress, no_progress
from genmonitor.encoders.feature_metrics import FidelityMetrics, check_neighbors
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation.collective import Collective, SingleProcess
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.real_subset import RealSubset
from genmonitor.evaluation.data.reference import ReferenceImages
from genmonitor.evaluation.evaluator import require_fitted
from genmonitor.evaluation.extra_metrics import ExtraMetrics
from genmonitor.evaluation.findings import Finding
from genmonitor.evaluation.prompts.estimates import PromptGroups, spread_by_prompt
from genmonitor.evaluation.prompts.figures import DiversityEvaluation
from genmonitor.evaluation.prompts.modes import COVARIANCES, DiversityMetric, ScoredSamples
from genmonitor.evaluation.prompts.prompted import PromptedEvaluator, PromptedFeatures
from genmonitor.evaluation.prompts.variability import LeastVaried, PromptDiversity
from genmonitor.evaluation.results import FitReport, History, Samples
from genmonitor.evaluation.settings import DiversitySettings, check_has_no
from genmonitor.evaluation.text import diversity as text
from genmonitor.evaluation.values import ValueSpec
from genmonitor.functional.conditional_vendi import conditional_vendi_of
from genmonitor.functional.vendi import vendi_from_covariance
from genmonitor.functional.w1kp import PromptVariability
from genmonitor.kernels import Kernel
from genmonitor.kernels.means import kernel_dispersion

MAX_FEATURES = 3072
"""With more features than these, an evaluation would spend minutes on eigenvalues."""
GROUPS, MAX_REPEATED = 20, 1024
"""Groups of a jackknife, and features of a covariance that is decomposed so often."""

MAX_PAIRS = 2000
"""With more samples than these, the spectrum of their [n, n] kernel of pairs would take many seconds."""
NO_SAMPLES = Samples(torch.empty(0, 0), torch.empty(0, dtype=torch.long))
ONE_PROMPT = Prompts([0])
"""Of a generator without prompts: it explains the mean of the samples alone, so their modes are those of PCA."""
MODES, ENDS = 5, 5
"""Modes that are drawn, and samples at either end of each."""


@dataclass(frozen=True, eq=False)
class FittedDiversity:
    """What a fitted DiversityEvaluator evaluates with.

    Attributes:
        metric: Scendi, Vendi and RKE.
        fidelity: against real images, None without them.
        real_features: of this process's real images [m, d], None without them.
        real_spread: how spread real images are, whatever their prompt; infinite without them.
    """

    metric: DiversityMetric
    fidelity: FidelityMetrics | None
    real_features: Tensor | None
    real_spread: float


class DiversityEvaluator(PromptedEvaluator[DiversityEvaluation]):
    """Evaluates how varied generated images are and, of a conditional generator, how much of that its prompts explain.

    `genmonitor.callbacks.DiversityMonitor` says what the values are.

    Args:
        settings: what the values depend on; None for the defaults of `DiversitySettings`.
        output_encoder: from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: from a list of n strings, or labels int64 [n], to features [n, e]; or a name for `text_encoder`;
            None for one-hot labels.
        extra_metrics: further torchmetrics, fed with the features.
        batch_size: samples per call of an encoder.
        prefix: what its log keys and files begin with.

    References:
        The Vendi Score (arXiv 2210.02410). Scendi Score (arXiv 2412.18645). Conditional Vendi Score (arXiv 2411.02817).
    """

    settings: DiversitySettings
    measure = text.SPREAD

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
        objects = {"output_encoder": output_encoder, "prompt_encoder": prompt_encoder, "extra_metrics": extra_metrics}
        if of.given_prompts is None:
            check_has_no(prompt_encoder=prompt_encoder)
        by_prompt = of.given_prompts or ONE_PROMPT
        features = PromptedFeatures(by_prompt, output_encoder, prompt_encoder, *of.kernels, of.num_features, batch_size)
        super().__init__(of, features, PromptGroups(of.given_prompts, of.count), prefix, **objects)
        self.calibration, self.rcond, self.extra_metrics = of.calibration, of.rcond, extra_metrics
        self._extra = ExtraMetrics({} if extra_metrics is None else extra_metrics, of="features")
        self._prompt_diversity = None
        if of.calibration is not None:
            self._prompt_diversity = PromptDiversity(of.calibration, by_prompt, of.count)
        self._fitted: FittedDiversity | None = None
        self._least: list[PromptVariability] = []
        self._samples, self._outputs = NO_SAMPLES, NO_SAMPLES.images

    @property
    def fitted(self) -> FittedDiversity:
        """What `fit` found."""
        return require_fitted(self._fitted, type(self).__name__)

    def fit(
        self, real: ReferenceImages, probe: Tensor, comm: Collective, progress: Progress = no_progress
    ) -> FitReport:
        """Encode the prompts, fix the kernels' widths, and encode real images where there are any."""
        self._features.fit(probe)
        subset, notes = self._choose_real(real, tuple(probe.shape[1:]))
        self._value_range = None
        report = self._fit_widths(subset, notes, probe, comm)
        self._check_size()
        if self.calibration is not None:
            self.calibration.check("features of the output encoder", self._features.encode(probe[:0]))
        fidelity, features, real_spread = None, None, math.inf
        if subset is not None:
            features = self._features.encode(subset.read(comm.rank_indices(len(subset))).to(probe.device))
            fidelity = FidelityMetrics(features, self.kernel, self._features.num_features)
            real_spread = float(kernel_dispersion(comm.gather_rows(features), self.kernel).value)
        if self.extra_metrics is not None:
            prompts = self._prompts_of(torch.arange(len(probe)))
            own = (*text.SCORES, *text.REAL, *self.measure.specs(self._groups).values())
            self._extra.check(self._features.encode(probe), features, prompts, own=own)
        metric = self._new_metric().to(probe.device)
        self._fitted = FittedDiversity(metric, fidelity, features, real_spread)
        return report

    def update(self, samples: Samples) -> None:
        """Encode this process's samples, each once, and add them to every metric."""
        metric, fidelity = self.fitted.metric, self.fitted.fidelity
        self._samples, self._outputs = samples, self._features.encode(samples.images)
        metric.reset()
        metric.update(self._outputs, self._features.of_prompts(samples.indices))
        self._extra.update(self._outputs, self.fitted.real_features, self._prompts_of(samples.indices))
        if fidelity is not None:
            fidelity.update(self._outputs)

    def compute(self, comm: Collective) -> DiversityEvaluation:
        """Return the scores, the spectra, and the samples that show the model's own modes."""
        try:
            return self._compute(comm)
        finally:  # samples may take more memory than the model
            self._samples, self._outputs = NO_SAMPLES, NO_SAMPLES.images

    def _compute(self, comm: Collective) -> DiversityEvaluation:
        with comm.all_ranks_or_none():
            computed = self.fitted.metric.compute()
        # torchmetrics makes scalars of matrices of one number
        computed |= {name: torch.atleast_2d(computed[name]) for name in COVARIANCES}
        values = {name: float(computed[name]) for name in self._scores(computed)}
        if self.fitted.fidelity is not None:
            with comm.all_ranks_or_none():
                values |= self.fitted.fidelity.compute()
        values |= self._extra.compute(comm)
        least: list[LeastVaried] = []
        reusability = None
        if self._prompt_diversity is not None:
            values["w1kp"], least, reusability = self._prompt_diversity.measure(self._outputs, self._samples, comm)
        outputs, indices = comm.gather_rows(self._outputs), comm.gather_rows(self._samples.indices)
        with comm.all_ranks_or_none():
            spread = spread_by_prompt(outputs[indices.argsort()], self._groups, self.kernel)
        values |= self.measure.values(spread, self._groups)
        if self._measures_pairs:
            with comm.all_ranks_or_none():
                pairs = self.fitted.metric.vendi_of_pairs(outputs, self._features.of_prompts(indices))
            given = conditional_vendi_of(pairs, computed["vendi"], vendi_from_covariance(computed["prompts"]))
            values |= {name: float(value) for name, value in given.items()}
        with comm.all_ranks_or_none():
            near = self._scored(len(computed["outputs"])).near_ends(ENDS)
        ends = near.gathered(comm).ends(ENDS)
        parts = computed["outputs"], computed["explained"], computed["outputs"] - computed["explained"]
        total, explained, own = (torch.linalg.eigvalsh(x).flip(0) for x in parts)
        return DiversityEvaluation(values, (total, explained, own), ends, least, spread, reusability)

    def standard_errors(
        self, samples: Samples, comm: Collective | None = None, progress: Progress = no_progress
    ) -> dict[str, float]:
        """Return the standard errors of the scores over draws of the samples, by a jackknife that leaves out groups.

        Bootstrap draws would repeat samples, which lowers the number of modes. Empty for kernels whose covariance takes
        too long to decompose so often.

        Args:
            samples: all of them, in every process.
            comm: the processes that share the groups; None for this one alone.
            progress: wraps the groups.
        """
        comm = comm or SingleProcess()
        outputs, prompts = self._features.encode(samples.images), self._features.of_prompts(samples.indices)
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
        """Keep the least varied prompts for the summary; return a finding if some lost their variety."""
        self._least = [row.found for row in evaluation.least_varied]
        lost = self._changes.update(evaluation.spread, history[-1]["epoch"], self.fitted.real_spread)
        return self.measure.findings(lost, history[-1], self._groups)

    def forget(self) -> None:
        """Let the next `fit` find everything anew."""
        super().forget()
        self._fitted, self._least = None, []

    def values(self) -> list[ValueSpec]:
        """Return the declarations of the scores, of each prompt's spread and of the extra metrics."""
        given = self.prompts is not None, self._measures_pairs, self.calibration is not None
        spread = self.measure.specs(self._groups)
        return [*text.diversity_values(self.n_samples, *given), *spread.values(), *self._extra.specs]

    def findings(self, evaluation: DiversityEvaluation, history: History) -> tuple[Finding, ...]:
        """Return the prompts that have lost their variety, if any, and how varied the samples are."""
        lost = self.measure.findings(self._changes.standing, history[-1], self._groups)
        return (*lost, text.state(history[-1], self.n_samples))

    def presenter(self) -> text.DiversityPresenter:
        """Return what shows the samples and their modes."""
        lost, note = self._changes.standing, self._groups.note()
        return text.DiversityPresenter(self.prompts, self.n_samples, self._value_range, lost, self._least, note)

    def write_artifacts(self, folder: Path) -> None:
        """Write the prompts and the calibration."""
        super().write_artifacts(folder)
        if self.calibration is not None:
            self.calibration.save(folder / self._calibration_file())

    def manifest(self) -> dict[str, Any]:
        """Return what is needed to evaluate the same again."""
        calibration = None if self.calibration is None else self._calibration_file()
        return self._features.manifest(self.prefix) | {"calibration": calibration}

    @property
    def _measures_pairs(self) -> bool:
        return self.prompts is not None and self.n_samples <= MAX_PAIRS

    def _scores(self, computed: Mapping[str, Tensor]) -> Sequence[str]:
        """Name the scores among what the metric computes, without prompts those of the outputs alone."""
        if self.prompts is None:
            return text.OF_OUTPUTS
        return [name for name, value in computed.items() if value.ndim == 0 and name not in COVARIANCES]

    def _size(self, kernel: Kernel, dim: int) -> int:
        """Return the number of features that a kernel makes of so many."""
        return 2 * (self._features.num_features or 0) if kernel.takes_gamma else dim

    def _prompts_of(self, indices: Tensor) -> Tensor | None:
        return None if self.prompts is None else self._features.of_prompts(indices)

    def _new_metric(self, **options: Any) -> DiversityMetric:
        return DiversityMetric(self.kernel, self.prompt_kernel, self._features.num_features, self.rcond, **options)

    def _calibration_file(self) -> str:
        return f"{self.prefix}_w1kp_calibration.pt"

    def _choose_real(self, real: ReferenceImages, shape: tuple[int, ...]) -> tuple[RealSubset | None, tuple[str, ...]]:
        """Choose real images; those that were not given only where they would do."""
        try:
            subset = RealSubset.at_random(real, self.n_samples, self.seed, shape)
            check_neighbors(len(subset), self.n_samples)
        except ValueError as error:
            if real.given is not None:
                raise
            return None, (f"precision, recall, density and coverage are not measured. {error}".removesuffix("."),)
        return subset, real.notes() + subset.notes(self.n_samples)

    def _check_size(self) -> None:
        """Refuse features whose covariance would take minutes to decompose."""
        for name, kernel, dim in zip(
            ("output", "prompt"), (self.kernel, self.prompt_kernel), self._features.dims, strict=True
        ):
            if (size := self._size(kernel, dim)) > MAX_FEATURES:
                raise ValueError(
                    f"Expected at most {MAX_FEATURES} features of each {name}, but got {size}, which would take minutes"
                    f" at each evaluation. Give `{name}_encoder=` one with fewer, such as CLIP or, for pixels, an "
                    "average over patches; or a GaussianKernel with `num_features`."
                )

    def _scored(self, size: int) -> ScoredSamples:
        metric = self.fitted.metric
        modes = metric.modes(min(MODES, size))
        scores = metric.mode_scores(self._outputs, self._features.of_prompts(self._samples.indices), modes)
        return ScoredSamples(scores, self._samples.images, self._samples.indices)
