# SPDX-License-Identifier: Apache-2.0
"""RegionEvaluator: finds the regions of the image that a generator gets wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from genmonitor._formatting import Band
from genmonitor._io import Progress, no_progress, write_json
from genmonitor.distributed import Collective
from genmonitor.encoders.frozen import SiteEncoder
from genmonitor.evaluation.classes import (
    NO_LABELS,
    P_CLASS,
    ClassResult,
    compare_classes,
    real_labels,
    smallest_p,
    unclaimed,
    with_classes,
)
from genmonitor.evaluation.diagnosis import Diagnosis, diagnose
from genmonitor.evaluation.evaluator import Evaluator, agreed_signature, at_most_threads, require_fitted
from genmonitor.evaluation.extra_metrics import ExtraMetrics
from genmonitor.evaluation.regions.clustering import patch_notes
from genmonitor.evaluation.regions.diagnosis_schedule import Diagnoses
from genmonitor.evaluation.regions.evaluation import Diagnosed, RegionEvaluation, diagnose_for_all
from genmonitor.evaluation.regions.findings import RegionFindings
from genmonitor.evaluation.regions.fitted import Fitted, NearestImages
from genmonitor.evaluation.regions.presenter import RegionPresenter, regions_found
from genmonitor.evaluation.regions.search import RegionFinder, Regions
from genmonitor.evaluation.regions.tracker import Look, RegionTracker
from genmonitor.evaluation.regions.values import IMAGE, P_FINDING, P, RegionValues, check_distinct_keys
from genmonitor.evaluation.results import FitReport, History
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.evaluation.tracker import Change
from genmonitor.findings.finding import CLAIM, Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.functional.cka import check_patches
from genmonitor.functional.diagnosis.kinds import FaultModel
from genmonitor.functional.diagnosis.readings import Reading
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.images.compared_sets import RangeNotes, check_value_range, repeat_notes, shared_notes, signatures_of
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.images.split import RealSplit, chosen_patch_size, cka_work
from genmonitor.kernels import Kernel
from genmonitor.partition import PixelPartition, region_key

if TYPE_CHECKING:
    from torchmetrics import Metric, MetricCollection

DIAGNOSED = 100
"""Smallest number of images on each side for a diagnosis: half to fit faults on, half to judge them on."""


class RegionEvaluator(Evaluator[RegionEvaluation]):
    """Finds regions of pixels that vary together and evaluates how close each region is to real images.

    `genmonitor.callbacks.PixelClusterMonitor` explains the values.

    Args:
        settings: Settings on which the values depend; None for the defaults of `RegionSettings`.
        extra_metrics: Further torchmetrics, which get the same samples.
        fault_models: Kinds of faults that the diagnosis tries, see `genmonitor.diagnose`; None for the default ones.
        readings: Statistics of single images that the diagnosis compares; None for the default ones.
        site_encoder: Callable or Module from images to maps [n, c, h, w], whose sites are clustered instead.
        batch_size: Number of images per call of `site_encoder`.
        prefix: Prefix of log keys and files.
        prompts: Prompts, where sample i has prompt i modulo their number; None for no prompts.

    Attributes:
        diagnoses: Faults of the last diagnosis, and the schedule of the next.
        of_classes: P-value of classes tested elsewhere, by its key; may be empty.

    References:
        Disentangling Mean Embeddings for Better Diagnostics of Image Generators (arXiv 2409.01314).
    """

    settings: RegionSettings
    best_key = region_key("error_ratio", IMAGE)

    def __init__(
        self,
        settings: RegionSettings | None = None,
        *,
        extra_metrics: MetricCollection | Mapping[str, Metric] | None = None,
        fault_models: Sequence[FaultModel] | None = None,
        readings: Sequence[Reading] | None = None,
        site_encoder: nn.Module | Callable[[Tensor], Tensor] | None = None,
        batch_size: int = 100,
        prefix: str = "cms",
        prompts: Prompts | None = None,
    ) -> None:
        settings = settings or RegionSettings()
        check_distinct_keys([*(settings.region_names or {}).values()])
        objects = {"fault_models": fault_models, "readings": readings, "site_encoder": site_encoder}
        super().__init__(settings.n_samples, prefix, settings, extra_metrics=extra_metrics, **objects)
        self.fault_models, self.readings = fault_models, readings
        self.prompts = prompts
        self.to_sites = SiteEncoder(site_encoder, batch_size)
        self._finder = RegionFinder(settings, self.to_sites)
        self.extra_metrics = extra_metrics
        self._extra = ExtraMetrics({} if extra_metrics is None else extra_metrics)
        self._tracker = RegionTracker()
        self.diagnoses = Diagnoses()
        self._diagnosed: bool | None = None  # True if the next one is; None if one is due
        self.of_classes: dict[str, float] = {}
        self._constant = False
        self._range = RangeNotes()
        self._indices = torch.empty(0, dtype=torch.long)
        self._real_labels: list[Any] = []  # of the real images that are compared with, see `real_labels`
        self._regions: Regions | None = None  # fixed for the run
        self._reused: tuple[Regions, list[float]] | None = None  # of another run, and what its images are told by
        self._fitted: Fitted | None = None  # with this process's real images
        self._data: list[float] = []

    @property
    def fitted(self) -> Fitted:
        """Result of `fit`: the regions, the real images of this process and their metrics."""
        return require_fitted(self._fitted, type(self).__name__)

    @property
    def _values(self) -> RegionValues:
        assert self.partition is not None  # once fitted
        return RegionValues(self.partition.regions(), self.baseline)

    @property
    def _findings(self) -> RegionFindings:
        return RegionFindings(self.fitted.regions.partition, self._values)

    @property
    def partition(self) -> PixelPartition | None:
        """The regions, found or given; None before they are known."""
        return self.settings.partition if self._regions is None else self._regions.partition

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once it is known."""
        return self.settings.kernel if self._regions is None else self._regions.kernel

    @property
    def baseline(self) -> dict[str, Band]:
        """Values of real images in place of generated ones, by value; empty before they are known."""
        return {} if self._regions is None else self._regions.baseline

    def fit(self, real: ImageSet, probe: Tensor, comm: Collective, progress: Progress = no_progress) -> FitReport:
        """Find gamma, regions and baseline, or keep those of a saved state for the same images."""
        messages: tuple[str, ...] = ()
        with comm.all_ranks_or_none():
            split = self._finder.split(real)
            self.to_sites.to(probe.device)
            first, own = split.comparison.first(len(probe)), split.signature()
        signature, other = agreed_signature(own, comm)
        notes = [*split.notes, *other]
        comparable = not self._data or self._data == signature
        if not comparable:
            self.forget()
            notes.append("used with different images before: clusters, baseline and curves start over")
        with comm.all_ranks_or_none():
            notes += self._check_images(probe, first)
        if self._regions is None:
            # regions are found in 1000 images or more
            with self._threads(probe, cka_work(1000, tuple(probe.shape[1:]), self.settings.patch_size)):
                earlier = self._reused[0] if self._reused is not None and self._reused[1] == own else None
                self._regions = comm.from_rank_zero(lambda: self._finder.find(split, probe.device, progress, earlier))
            notes += self._regions.notes()
            notes += patch_notes(self._regions.partition, self.settings.patch_size or self.settings.partition)
            messages = (regions_found(self._regions),)
        with comm.all_ranks_or_none():
            self._extra.check(probe, first.to(probe.device), own=self._values.specs)
        self._data = signature or []
        self._real_labels = comm.from_rank_zero(lambda: self._find_labels(split))
        if self.prompts is not None and not self._real_labels:
            messages += (NO_LABELS,)
        self._fitted = Fitted.of(self._regions, self._finder, split, probe, comm)
        compared = torch.cat(comm.gather(signatures_of(self.fitted.real)))
        notes += repeat_notes("real images that are compared", compared)
        if self.fitted.nearest is not None:
            notes += shared_notes(compared, signatures_of(self.fitted.nearest.images))
        size = min(len(split.comparison), self.n_samples)
        needs = {"no p-values: they need": MIN_SAMPLES, "no diagnosis: it needs": DIAGNOSED}
        notes += [f"{what} at least {least} images on each side" for what, least in needs.items() if size < least]
        return FitReport(tuple(notes), comparable, messages)

    def update(self, samples: Samples) -> None:
        """Give this process's samples to the metrics."""
        fitted = self.fitted
        fitted.metrics.update(self.to_sites(samples.images))
        self._extra.update(samples.images, fitted.real)
        images, self._indices = samples.images, samples.indices
        self._constant = len(images) > 1 and bool((images.amax(0) == images.amin(0)).all())
        self._range.look(fitted.real, images)

    def compute(self, comm: Collective) -> RegionEvaluation:
        """Return the values of image and regions, the extra metrics and the medians of the baseline."""
        with self._threads(self.fitted.real):
            found = self.fitted.metrics.compute(comm)
        keys, values, p, fake, real = self._values, found.values, found.p, found.fake, found.real
        ratios = self.fitted.regions.error_ratios(found.error)
        values |= {keys.error_ratio[name]: ratio for name, ratio in ratios.items()}
        values |= {keys.p[name]: value for name, value in p.items()}
        for view, of_regions in found.distances.items():
            values |= {keys.distance[view][name]: distance for name, distance in of_regions.items()}
        if found.influence is not None:
            values |= {keys.vs_best[name]: z for name, z in self._tracker.scores(found.influence).items()}
        look = None
        if fake is not None and real is not None and self.to_sites.encoder is None:
            look = comm.from_rank_zero(lambda: self._look(fake, real, values))
        diagnosed, classes = Diagnosed(), tuple[ClassResult, ...]()
        # rank zero decides, since last digits on other machines may be on the other side of the threshold
        worse = look is not None and look.finding is not None
        due = comm.from_rank_zero(lambda: self.is_last or worse or self.diagnoses.due(ratios))
        between = not (due if self._diagnosed is None else self._diagnosed)
        if not between and fake is not None and real is not None and min(len(fake), len(real)) >= DIAGNOSED:
            diagnosed, classes = self._find_faults(fake, real, comm)
        values |= {**(diagnosed.values or {}), **self.of_classes, **smallest_p(classes)}
        if p:
            values.setdefault(P_FINDING, 1.0)
            values[P] = keys.p_of_all(values, searched=diagnosed.values is not None)
            if values[P] > CLAIM:
                diagnosed, classes = diagnosed.without_claims(), unclaimed(classes)
        values |= self._extra.compute(comm)
        values |= {keys.baseline[name]: band[1] for name, band in self.baseline.items()}
        same = ("all generated images are identical, so the values mean little",) if self._constant else ()
        notes = (*same, *self._range.items, *diagnosed.notes)
        return RegionEvaluation(values, found.influence, diagnosed, classes, between, look, notes=notes)

    def commit(self, evaluation: RegionEvaluation, history: History) -> list[Finding]:
        """Keep the best values and the faults; return findings of copies and of each region that got worse."""
        self._range.commit()
        record = history[-1]
        ratios, scores = self._tracked(record)
        alerts = self.diagnoses.commit(evaluation, ratios, record["epoch"])
        if evaluation.influence is None:
            return alerts
        readings = None if evaluation.look is None else evaluation.look.readings
        new = self._tracker.update(evaluation.influence, ratios, scores, record["epoch"], readings)
        return [*alerts, *self._got_worse(new, record)]

    def values(self) -> list[ValueSpec]:
        """Return the declarations of CMS, error ratios, p-values, distances and shares, and of the extra metrics."""
        return [*self._values.specs, *([P_CLASS] if self._real_labels else []), *self._extra.specs]

    def findings(self, evaluation: RegionEvaluation, history: History) -> tuple[Finding, ...]:
        """Return the findings of the last diagnosis, then those of each region."""
        says, record = self._findings, history[-1]
        verdict, *others = says.find(history)
        recovered = self._tracker.findings_of_recovered(says.area, says.values.error_ratio)
        others = [*recovered, *others, *self._got_worse(self._tracker.changes(*self._tracked(record)), record)]
        wrong = self.diagnoses.findings(evaluation, record.get("epoch"))
        holds = evaluation.diagnosed.values is not None or verdict.fine is False
        first = holds and bool(wrong) and wrong[0].fine is False
        found = (*wrong, verdict, *others) if first else (verdict, *wrong, *others)
        claims = record.get(P, 0.0) <= CLAIM
        news = None if evaluation.look is None or not claims else evaluation.look.finding
        return found if news is None else (replace(news, since=record.get("epoch")), *found)

    def presenter(self) -> RegionPresenter:
        """Return the presenter of the regions."""
        return RegionPresenter(self.fitted, self.prompts, self.settings.aligned)

    def write_artifacts(self, folder: Path) -> None:
        """Write the partition, and the indices of the real images to compare with."""
        names = self._files()
        self.fitted.regions.partition.save(folder / names["partition"])
        write_json(folder / names["real"], self.fitted.real_origin)

    def manifest(self) -> dict[str, Any]:
        """Return the fixed values of the run and the names of the files of `write_artifacts`."""
        return {**self.fitted.regions.to_manifest(), "real_signature": list(self._data), **self._files()}

    def fit_state(self) -> dict[str, Any]:
        """Return the fixed values of the run: tensors and plain Python."""
        if self._regions is None:
            return {}
        fixed = {"regions": self._regions.state_dict(), "data": list(self._data)}
        return fixed | {"tracker": self._tracker.state_dict(), "diagnoses": self.diagnoses.state_dict()}

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over the result of `fit_state`."""
        if state:
            self._regions = Regions.from_state(state["regions"], self.settings.kernel)
            self._data = list(state["data"])
            self._tracker.load_state_dict(state["tracker"])
            self.diagnoses.load_state_dict(state["diagnoses"])

    def moved_networks(self) -> dict[str, nn.Module]:
        """Return the encoder of sites if it is a Module, which may be part of the trained one."""
        encoder = self.to_sites.encoder
        return {"site_encoder": encoder} if isinstance(encoder, nn.Module) else {}

    def reuse(self, manifest: Mapping[str, Any], folder: Path) -> None:
        """Let `fit` keep the regions of a run with the same settings and images."""
        partition, stability = PixelPartition.load(folder / manifest["partition"]), dict(manifest["stability"])
        found = Regions(partition, self.settings.kernel, linkage=manifest["linkage"], stability=stability)
        self._reused = found, list(manifest["real_signature"])

    def repeat(self, values: Mapping[str, float]) -> None:
        """Diagnose the next samples if those of `values` were diagnosed, since the tests behind `p` depend on it."""
        self._diagnosed = "spread" in values

    def look_for_copies_of(self, train: Tensor) -> None:
        """Find copies of these images [n, C, H, W] instead of those that `fit` took."""
        known = NearestImages.among(train.cpu().float(), [], self.fitted.real)  # numbered by themselves
        self._fitted = replace(self.fitted, nearest=known)

    def forget(self) -> None:
        """Let the next `fit` find everything from scratch."""
        self._regions, self._fitted, self._data = None, None, []
        self._tracker, self.diagnoses = RegionTracker(), Diagnoses()

    def _threads(self, images: Tensor, work: float = 0.0) -> AbstractContextManager[None]:
        """Return the context for comparing images of this shape [n, C, H, W]; small ones use one thread."""
        work = max(work, self.n_samples**2 * images.shape[1:].numel())
        # one thread computes a matrix product of up to 1e9 multiplications in 30 ms
        return at_most_threads(1 if work < 1e9 and self.to_sites.encoder is None else None)

    def _find_faults(self, fake: Tensor, real: Tensor, comm: Collective) -> tuple[Diagnosed, tuple[ClassResult, ...]]:
        """Diagnose images, and their classes if samples have labels."""
        indices = comm.gather_rows(self._indices).tolist()
        with self._threads(fake):
            diagnosed = diagnose_for_all(lambda: self._diagnose(fake, real, indices), comm)
            if not self._real_labels:
                return diagnosed, ()
            classes = comm.from_rank_zero(lambda: self._compare_classes(fake, real, indices))
        found = with_classes(diagnosed.findings, classes)
        return replace(diagnosed, findings=tuple(x for x in found if not x.fine)), classes

    @property
    def _how(self) -> dict[str, Any]:
        """Options of a diagnosis, of all images or of a class."""
        of, encoded = self.settings, self.to_sites.encoder is not None
        tried = {"fault_models": self.fault_models, "readings": self.readings}
        return tried | {"aligned": of.aligned, "encoded": encoded, "seed": of.seed}

    def _diagnose(self, fake: Tensor, real: Tensor, indices: Sequence[int]) -> Diagnosis:
        # fewer of larger images are diagnosed, but at least 100
        known, most = self.fitted.nearest, max(DIAGNOSED, 2**28 // (4 * real[0].numel()))
        numbers: dict[str, Any] = {"fake_indices": indices[:most]}
        if known is not None:
            numbers |= {"train": self.to_sites(known.images.to(fake.device)), "train_indices": known.indices}
        return diagnose(fake=fake[:most], real=real[:most], skip_failing=True, **numbers, **self._how)

    def _look(self, fake: Tensor, real: Tensor, values: Mapping[str, float]) -> Look:
        """Compare the readings of samples with those of the best evaluation."""
        ratio, settings = values[self._values.error_ratio[IMAGE]], self.settings
        return self._tracker.look(fake, real, ratio, settings.seed, settings.aligned)

    def _tracked(self, record: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """Return the error ratios of image and regions, and the improvement of each region in standard errors."""
        keys = self._values
        ratios = {name: record[key] for name, key in keys.error_ratio.items()}
        scores = {name: record[key] for name, key in keys.vs_best.items() if name != IMAGE and key in record}
        return ratios, scores

    def _got_worse(self, changes: Sequence[Change], record: Mapping[str, float]) -> list[Finding]:
        """Return a finding of each region that is farther from real images than at its best."""
        area, keys, epoch = self._findings.area, self._values.error_ratio, record.get("epoch", math.nan)
        return [x for change in changes for x in self._tracker.findings_of([change], epoch, area, keys)]

    def _find_labels(self, split: RealSplit) -> list[Any]:
        if self.prompts is None:
            return []
        return real_labels(split.comparison, self.prompts, self.n_samples)

    def _compare_classes(self, fake: Tensor, real: Tensor, indices: Sequence[int]) -> tuple[ClassResult, ...]:
        assert self.prompts is not None  # whose labels these are
        labels = self.prompts.named(indices), self._real_labels
        # each class takes about a second
        return compare_classes(fake, real, *labels, fake.device, at_most=3, **self._how)

    def _check_images(self, probe: Tensor, real: Tensor) -> tuple[str, ...]:
        """Refuse generated images that cannot be compared with the real ones; return notes on the others."""
        if probe.shape[1:] != real.shape[1:]:
            raise ValueError(
                f"Expected generated images of shape {list(real.shape[1:])} like the real ones, but got "
                f"{list(probe.shape[1:])}. Resize or convert one of them, in `sample_fn` or in the dataset's transform."
            )
        notes = check_value_range(real, probe, resumed=self._regions is not None)
        self._range.said = bool(notes)
        sites = self.to_sites(probe)
        if self.partition is None:
            check_patches("images", sites, self.settings.patch_size or chosen_patch_size(tuple(sites.shape[1:])))
        else:
            self.partition.check_images("images", tuple(sites.shape))
        return notes

    def _files(self) -> dict[str, str]:
        return {"partition": f"{self.prefix}_partition.npz", "real": f"{self.prefix}_real_images.json"}
