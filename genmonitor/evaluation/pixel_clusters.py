# SPDX-License-Identifier: Apache-2.0
"""RegionEvaluator: which region of the image a generator gets wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from genmonitor._formatting import error_ratio
from genmonitor._io import write_json
from genmonitor._validation.arguments import check_patches
from genmonitor.evaluation.baseline import Band
from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.reference import RealSplit, ReferenceImages
from genmonitor.evaluation.data.value_range import check_value_range
from genmonitor.evaluation.encoders.frozen import SiteEncoder
from genmonitor.evaluation.evaluator import Evaluator, require_fitted
from genmonitor.evaluation.extra_metrics import ExtraMetrics
from genmonitor.evaluation.progress import Progress, no_progress
from genmonitor.evaluation.regions import figures as region_figures
from genmonitor.evaluation.regions.best import BestSoFar
from genmonitor.evaluation.regions.finder import RegionFinder, Regions
from genmonitor.evaluation.regions.fitted import Fitted
from genmonitor.evaluation.regions.saved import save_regions, saved_regions
from genmonitor.evaluation.results import Alert, Evaluation, FitReport, History, Samples, ShownImages
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.evaluation.text import pixel_clusters as text
from genmonitor.evaluation.text.notebook import regions_html
from genmonitor.evaluation.verdicts import ALERT_FACTOR, RegressionDetector, p_values_of_change
from genmonitor.functional.mmd_influence import MMDInfluence
from genmonitor.functional.two_sample_test import MIN_SAMPLES
from genmonitor.kernels import Kernel
from genmonitor.partition import PixelPartition
from genmonitor.plotting.style import Drawing


@dataclass(frozen=True, eq=False, repr=False)
class RegionEvaluation(Evaluation):
    """Values, and what a later evaluation is compared by.

    Attributes:
        influence: of the samples of all processes; None where there are too few to compare.
    """

    influence: MMDInfluence | None


class RegionEvaluator(Evaluator[RegionEvaluation]):
    """Finds groups of pixels that belong together and evaluates how well each group's distribution is met.

    `genmonitor.callbacks.PixelClusterMonitor` says what the values are.

    Args:
        settings: what the values depend on; None for the defaults of `RegionSettings`.
        extra_metrics: further torchmetrics fed from the same samples.
        site_encoder: from images to maps [n, c, h, w]: the sites are then the map's.
        batch_size: images per call of `site_encoder`.
        prefix: what its log keys and files begin with.
        prompts: sample i was drawn for prompt i modulo their number, which it is shown with; None for no prompts.

    References:
        Disentangling Mean Embeddings for Better Diagnostics of Image Generators (arXiv 2409.01314).
    """

    settings: RegionSettings
    about = text.ABOUT
    details = text.DETAILS
    figures_to_keep = ("samples",)

    def __init__(
        self,
        settings: RegionSettings | None = None,
        *,
        extra_metrics: MetricCollection | Mapping[str, Metric] | None = None,
        site_encoder: nn.Module | Callable[[Tensor], Tensor] | None = None,
        batch_size: int = 100,
        prefix: str = "cms",
        prompts: Prompts | None = None,
    ) -> None:
        settings = settings or RegionSettings()
        super().__init__(settings.n_samples, prefix, settings, extra_metrics=extra_metrics, site_encoder=site_encoder)
        self.prompts = prompts
        self.to_sites = SiteEncoder(site_encoder, batch_size)
        self._finder = RegionFinder(settings, self.to_sites)
        self.extra_metrics = extra_metrics
        self._extra = ExtraMetrics({} if extra_metrics is None else extra_metrics)
        self._best = BestSoFar()
        self._regressions = RegressionDetector()
        self._constant = False
        self._regions: Regions | None = None  # fixed for the run
        self._fitted: Fitted | None = None  # with this process's real images
        self._cka: Tensor | None = None  # until it is drawn, on rank zero
        self._data: list[float] = []
        self._earlier: Path | None = None

    @property
    def fitted(self) -> Fitted:
        """What `fit` made: the regions, the real images of this process and their metrics."""
        return require_fitted(self._fitted, type(self).__name__)

    @property
    def partition(self) -> PixelPartition | None:
        """The regions: found ones, or those given; None before they are known."""
        return self.settings.given_partition if self._regions is None else self._regions.partition

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once it is known."""
        return self.settings.given_kernel if self._regions is None else self._regions.kernel

    @property
    def baseline(self) -> dict[str, Band]:
        """What real images get in place of generated ones, by value; empty before it is known."""
        return {} if self._regions is None else self._regions.baseline

    def fit(
        self, real: ReferenceImages, probe: Tensor, comm: Collective, progress: Progress = no_progress
    ) -> FitReport:
        """Find kernel width, regions and baseline, or keep what a saved state fixed for the same images."""
        messages: tuple[str, ...] = ()
        split = self._finder.split(real)
        self.to_sites.to(probe.device)
        # rank zero's, since a dataset may differ between processes: they must agree on whether to begin anew
        notes, signature = list(split.notes), comm.broadcast(split.signature())
        comparable = not self._data or self._data == signature
        if not comparable:
            self.forget()
            notes.append(
                "used with other images before: clusters, baseline and curves start anew, since values before and "
                "after cannot be compared"
            )
        first = split.compared.read(split.for_comparison[: len(probe)])
        notes += self._check_images(probe, first)
        self._extra.check(probe, first.to(probe.device))
        if self._regions is None:
            self._regions = comm.from_rank_zero(lambda: self._find(split, probe.device, progress))
            notes += self._regions.notes()
            messages = (text.regions_found(self._regions),)
        self._data = signature
        self._fitted = Fitted.of(self._regions, self._finder, split, probe, comm)
        if not self._fitted.metrics.testable:
            notes.append(f"p-values need {MIN_SAMPLES} images on each side; there are fewer")
        return FitReport(tuple(notes), comparable, messages)

    def update(self, samples: Samples) -> None:
        """Give this process's samples to the metrics."""
        fitted = self.fitted
        fitted.metrics.update(self.to_sites(samples.images))
        self._extra.update(samples.images, fitted.real)
        images = samples.images
        self._constant = len(images) > 1 and bool((images.amax(0) == images.amin(0)).all())

    def compute(self, comm: Collective) -> RegionEvaluation:
        """Return what is measured of image and regions, error ratios, the extra metrics and the baseline's medians."""
        values, influence = self.fitted.metrics.compute(comm)
        of_image = self.baseline["image"][1]
        values |= {
            text.suffixed("error_ratio", name): error_ratio(values[name], self.baseline[name][1], of_image)
            for name in ("image", *self.fitted.regions.partition.regions())
        }
        if influence is not None:
            values |= {f"vs_best_{name}": score for name, score in self._best.scores(influence).items()}
        values |= self._extra.compute(comm)
        values |= {f"baseline_{name}": band[1] for name, band in self.baseline.items()}
        notes = ("all generated images are the same, so the values say little",) if self._constant else ()
        return RegionEvaluation(values, influence, notes=notes)

    def commit(self, evaluation: RegionEvaluation, history: History) -> list[Alert]:
        """Keep what was best; return an alert for each region that regressed."""
        if evaluation.influence is None:
            return []
        record, partition = history[-1], self.fitted.regions.partition
        scores = {name: evaluation.values.get(f"vs_best_{name}", math.nan) for name in partition.regions()}
        p, best = p_values_of_change(scores, worse=True), dict(self._best.epochs)
        far = self._best.farther_by(evaluation.influence, ALERT_FACTOR)
        # where real images never vary, a trace of noise is sure to be found, and not worth a word
        if evaluation.values.get("error_ratio_constant", math.inf) < 1:
            far.discard("constant")
        regressed = self._regressions.update(scores, far)
        self._best.update(evaluation.influence, record["epoch"])
        return [text.regressed(self.prefix, name, history, p[name], best[name], partition) for name in regressed]

    def charts(self) -> dict[str, list[str]]:
        """Return which values share a chart, by its title."""
        return text.charts(list(self.fitted.regions.partition.regions()))

    def higher_is_better(self) -> dict[str, bool]:
        """Return which values are better when they are higher, and which when lower."""
        return text.HIGHER_IS_BETTER | self._extra.higher_is_better()

    def fit_figures(self) -> dict[str, Figure]:
        """Draw the cluster map, the map over the average image, and the CKA matrix ordered by cluster, once."""
        height, width = self.fitted.real.shape[2:]
        regions, self._cka = replace(self.fitted.regions, cka=self._cka), None
        return region_figures.fit_figures(regions, (height, width))

    def figures(self, evaluation: RegionEvaluation, history: History, samples: Samples) -> dict[str, Drawing]:
        """Return what draws the curves, and samples with the region that differs most."""
        captions = region_figures.captions_of(samples, self.prompts)
        return region_figures.evaluation_figures(
            self.fitted.regions, history, samples.images, list(self._extra.names), captions
        )

    def shown_real(self) -> ShownImages | None:
        """Return real images that generated ones are compared with; None where this process has none."""
        return region_figures.shown_real(self.fitted) if len(self.fitted.real) else None

    def shown_samples(self, samples: Samples) -> ShownImages | None:
        """Return generated images, and for each the most similar real one; None where this process has none."""
        return region_figures.shown_samples(self.fitted, samples, self.prompts) if len(samples.images) else None

    def message(self, evaluation: RegionEvaluation, history: History) -> str:
        """Return one line about the last evaluation."""
        return text.message(history[-1], self.fitted.regions.partition)

    def summary(self, history: History) -> str:
        """Return a table of the regions, those that differ most at the last evaluation first."""
        return text.table(history, self.fitted.regions.partition)

    def summary_html(self, history: History) -> str:
        """Return the same on the map of the regions."""
        return regions_html(history, self.fitted.regions.partition)

    def write_artifacts(self, folder: Path) -> None:
        """Write the partition, and which real images are compared with."""
        names = self._files()
        save_regions(self.fitted.regions, self.settings.of_clusters(), folder / names["partition"])
        write_json(folder / names["real"], self.fitted.real_origin)

    def manifest(self) -> dict[str, Any]:
        """Return what is fixed for the run and the names of the files that `write_artifacts` writes."""
        return {**self.fitted.regions.to_manifest(), **self._files()}

    def fit_state(self) -> dict[str, Any]:
        """Return what is fixed for the run: tensors and plain Python."""
        if self._regions is None:
            return {}
        return {
            "regions": self._regions.state_dict(),
            "data": list(self._data),
            "best": self._best.state_dict(),
            "regressions": self._regressions.state_dict(),
        }

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `fit_state` returned."""
        if state:
            self.use_regions(Regions.from_state(state["regions"], self.settings.given_kernel))
            self._data = list(state["data"])
            self._best.load_state_dict(state["best"])
            self._regressions.load_state_dict(state["regressions"])

    def moved_networks(self) -> dict[str, nn.Module]:
        """Return the encoder of sites if it is a Module: it may be a part of the trained one."""
        encoder = self.to_sites.encoder
        return {"site_encoder": encoder} if isinstance(encoder, nn.Module) else {}

    def reuse(self, folder: Path) -> None:
        """Let `fit` take the partition that a run with the same settings left in a folder."""
        self._earlier = folder / self._files()["partition"]

    def use_regions(self, regions: Regions) -> None:
        """Take regions found before instead of finding them in `fit`."""
        self._regions = regions

    def forget(self) -> None:
        """Let the next `fit` find everything anew."""
        self._regions, self._fitted, self._cka, self._data = None, None, None, []
        self._best, self._regressions = BestSoFar(), RegressionDetector()

    def _find(self, split: RealSplit, device: torch.device, progress: Progress) -> Regions:
        """Find the regions; the CKA matrix, which may be large, stays on this process until it is drawn."""
        earlier = None if self._earlier is None else saved_regions(self._earlier, self.settings.of_clusters())
        found = self._finder.find(split, device, progress, earlier)
        self._cka = found.cka
        return replace(found, cka=None)

    def _check_images(self, probe: Tensor, real: Tensor) -> tuple[str, ...]:
        """Refuse generated images that cannot be compared with the real ones; return what to say of others."""
        if probe.shape[1:] != real.shape[1:]:
            raise ValueError(
                f"Expected generated images of shape {list(real.shape[1:])} like the real ones, but got "
                f"{list(probe.shape[1:])}. Resize or convert one of them, in `sample_fn` or in the dataset's transform."
            )
        notes = check_value_range(real, probe, resumed=self._regions is not None)
        sites = self.to_sites(probe)
        check_patches("images", sites, self.settings.patch_size)
        if self.partition is not None:
            self.partition.check_images("images", tuple(sites.shape))
        return notes

    def _files(self) -> dict[str, str]:
        return {"partition": f"{self.prefix}_partition.npz", "real": f"{self.prefix}_real_images.json"}
