# SPDX-License-Identifier: Apache-2.0
"""PixelClusterMonitor: which region of the image a generator gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Unpack

import lightning.pytorch as pl
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from genmonitor._formatting import Band
from genmonitor._validation import check_one_of
from genmonitor.callbacks.base import GenerativeMonitor, MonitorOptions, split_options
from genmonitor.callbacks.integration.compat import ends_here
from genmonitor.callbacks.validation_samples import ValidationSamples
from genmonitor.evaluation.pixel_clusters import RegionEvaluator
from genmonitor.evaluation.results import Record
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional.diagnosis.kinds import FaultModel
from genmonitor.functional.diagnosis.readings import Reading
from genmonitor.images.sampler import DrawFn, Sampler
from genmonitor.kernels import Kernel
from genmonitor.linalg.clustering import Linkage
from genmonitor.partition import PixelPartition


class PixelClusterMonitor(GenerativeMonitor):
    """Finds groups of pixels that belong together and logs, each epoch, how well each group's distribution is met.

    At the start it takes three things from the training images. These are the kernel's gamma; the clusters, with the
    linkage and number on which halves of the images agree best; and a baseline, what n real images in place of the
    generated ones get. The main values of each evaluation, all of which docs/keys.md explains:

    - `cms/image`, `cms/cluster_1` … and `cms/constant` in [0, 1], higher is better: the similarity of the image, of
      each region and of the pixels that never vary. `cms/product` is that of all regions, equal to `cms/image` where
      they are independent.
    - `cms/error_ratio_image`, `cms/error_ratio_1` …, lower is better: distance from real images, as a multiple of what
      other real images have. Order of regions, alerts and the best evaluation go by it.
    - `cms/p_image`, `cms/p_1` …: p-values of `TwoSampleTest`, at one level for all regions. At 0.05 or less generated
      images differ from real ones there.

    What was found in words is in `findings`.

    The level of the p-values is promised where the real images compared with are validation images. A region raises an
    alert where three things hold at two evaluations in a row. It is farther from real images than at its best
    evaluation by more than chance (p <= 0.002 for all regions together). Its error ratio is at least 1.25 times as
    large, and at least 1.25. So a lasting fault is reported at the second evaluation that has it. What is far from real
    images already may hide a small one: `benchmarks/detection.md` says which, and counts false alerts too. Pixels that
    never vary are measured by what chance does to whole images. Copies of training images raise an alert at the second
    diagnosis in a row that finds them.

    Values at different `n_samples` or `block_size` must not be compared: the estimator's bias is about 1/n.

    Args:
        n_clusters: None to choose 2..8: the number on which halves of the training images agree best.
        partition: Your own clusters instead of found ones, for example `PixelPartition.from_mask(segmentation)`. Or the
            path of a saved one, or of the folder of a run that has one, to compare with that run.
        n_cluster_images: At most so many training images for the kernel's gamma and the clusters, at least 10 and 2 per
            cluster; None for as many as half a minute on one core allows, 1000 to 5000. Which ones depends on the data
            alone, not on `seed`.
        n_samples: Images generated at each evaluation, and real images compared with.
        patch_size: Side of a site in pixels; None for 1, or in images with more than 64×64 pixels the smallest that
            leaves at most so many sites.
        kernel: Gaussian or Laplacian; None for a Gaussian.
        block_size: None for all samples at once; b for the paper's estimator over pairs of blocks (150 there).
        extra_metrics: A MetricCollection, or a dictionary of metrics, that take `update(images, real=...)`, or
            `update(images)` for the generated side alone; fed from the same samples.
        fault_models: The kinds of faults that the diagnosis tries, see `genmonitor.diagnose`; None for the usual ones.
        readings: The statistics of single images that the diagnosis compares, likewise.
        site_encoder: From images to maps [n, c, h, w], such as a VAE's latents: the sites are then the map's.
        linkage: "average" (the paper's), "ward" or "smoothed", see `PixelPartition.from_cka`; None to choose
            "average" or "smoothed" by how well halves of the training images agree.
        batch_estimator: None for the CKA of all images at once; m for the paper's mean over mini-batches of m (100
            there). It sees more dependence than there is, by up to about 3/m, and may find other clusters. With m = 100
            62 % of the sites of digits are in the same of five clusters (adjusted Rand index 0.35).
        region_names: Names of clusters, such as {"cluster_3": "eyes"} once you have seen the map: values, tables and
            pictures go by them, as `cms/eyes` and `cms/p_eyes` do.
        diagnose_every: Evaluations from one diagnosis to the next. The first has one, and the last as far as
            `max_epochs` and `max_steps` tell. So does each in which the error ratio of the image or a region is 1.25
            times that of the last diagnosis, or as much less. It takes a few seconds on 500 images of 32×32×3: where an
            evaluation comes after minutes of training, take 1.
        aligned: Whether the diagnosis may compare the same places of images, as of faces or scans. If not, as of
            photographs of anything, it compares patches from random places: it names kinds of faults, no places.
        prompts: Strings, or class labels as integers, for a conditional module: sample i has prompt i modulo their
            number. None for samples without prompts. Where real images have labels or captions like them, each prompt
            is tested and diagnosed on its own, with one level for all; `cms/p_class` is the smallest p-value.
        reuse: "validation" for the first n_samples images that `validation_step` generates, in place of ones drawn for
            the evaluation. That saves the sampling and costs comparability, since these have no seeds of their own.
            Curves move with their noise too, changes are found less surely, and no checkpoint gives the values again.
        reuse_key: Of those images [n, C, H, W] in the dictionary that `validation_step` returns, or the name of the
            module's attribute in which it leaves them.
        seed: Of the samples and of the choice of real images.
        prefix: What log keys and files begin with; two monitors of a Trainer need different ones.
        **options: Those that all monitors share, by keyword: see `MonitorOptions`. Of the Trainer's `real_images` it
            takes training data for what is fixed at the start, validation data to compare with.

    References:
        Disentangling Mean Embeddings for Better Diagnostics of Image Generators (arXiv 2409.01314).

    Example:
        >>> PixelClusterMonitor(n_clusters=5, n_samples=500).prefix
        'cms'
    """

    evaluator: RegionEvaluator

    def __init__(
        self,
        n_clusters: int | None = None,
        partition: PixelPartition | str | Path | None = None,
        n_cluster_images: int | None = None,
        n_samples: int = RegionSettings.n_samples,
        patch_size: int | None = None,
        kernel: Kernel | None = None,
        block_size: int | None = None,
        *,
        linkage: Linkage | None = None,
        batch_estimator: int | None = None,
        region_names: Mapping[str, str] | None = None,
        diagnose_every: int = RegionSettings.diagnose_every,
        aligned: bool = RegionSettings.aligned,
        seed: int = RegionSettings.seed,
        extra_metrics: MetricCollection | Mapping[str, Metric] | None = None,
        fault_models: Sequence[FaultModel] | None = None,
        readings: Sequence[Reading] | None = None,
        site_encoder: nn.Module | Callable[[Tensor], Tensor] | None = None,
        prompts: Sequence[str] | Sequence[int] | Tensor | None = None,
        reuse: Literal["validation"] | None = None,
        reuse_key: str = "samples",
        prefix: str = "cms",
        **options: Unpack[MonitorOptions],
    ) -> None:
        settings = RegionSettings.of(
            n_clusters=n_clusters,
            partition=partition,
            n_cluster_images=n_cluster_images,
            n_samples=n_samples,
            patch_size=patch_size,
            kernel=kernel,
            block_size=block_size,
            linkage=linkage,
            batch_estimator=batch_estimator,
            region_names=region_names,
            diagnose_every=diagnose_every,
            aligned=aligned,
            seed=seed,
        )
        sampling, schedule, rest = split_options(type(self), options)
        sampler = Sampler(n_samples, prompts, seed=seed, **sampling)
        if reuse is not None:
            check_one_of("reuse", reuse, ("validation",))
            if sampler.sample_fn is not None or prompts is not None:
                raise ValueError("Expected `reuse`, or `sample_fn` and `prompts` to draw samples by, but got both.")
            sampler = ValidationSamples(n_samples, reuse_key)
        evaluator = RegionEvaluator(
            settings,
            extra_metrics=extra_metrics,
            fault_models=fault_models,
            readings=readings,
            site_encoder=site_encoder,
            batch_size=sampler.batch_size,
            prefix=prefix,
            prompts=sampler.prompts,
        )
        super().__init__(evaluator, sampler, schedule, **rest)

    def evaluate(self, trainer: pl.Trainer, pl_module: pl.LightningModule, draw: DrawFn | None = None) -> Record | None:
        """Evaluate as every monitor does; the last evaluation of a fit, and one outside of it, have a diagnosis."""
        self.evaluator.diagnoses.is_last = trainer.state.fn != "fit" or ends_here(trainer)
        return super().evaluate(trainer, pl_module, draw)

    @property
    def partition(self) -> PixelPartition | None:
        """The regions: found ones, or those given; None before they are known."""
        return self.evaluator.partition

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once it is known."""
        return self.evaluator.kernel

    @property
    def baseline(self) -> dict[str, Band]:
        """What real images get in place of generated ones, by value; empty before it is known."""
        return self.evaluator.baseline
