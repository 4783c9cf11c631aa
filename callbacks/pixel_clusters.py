# SPDX-License-Identifier: Apache-2.0
"""PixelClusterMonitor: finds the regions of the image that a generator gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Unpack

from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from genmonitor._formatting import Band
from genmonitor._validation import check_one_of
from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.options import MonitorOptions, split_options
from genmonitor.callbacks.validation_samples import ValidationSamples
from genmonitor.evaluation.pixel_clusters import RegionEvaluator
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional.diagnosis.kinds import FaultModel
from genmonitor.functional.diagnosis.readings import Reading
from genmonitor.images.sampler import Sampler
from genmonitor.kernels import Kernel
from genmonitor.linalg.clustering import Linkage
from genmonitor.partition import PixelPartition


class PixelClusterMonitor(GenerativeMonitor):
    """Finds regions of pixels that vary together and logs, each epoch, how close each region is to real images.

    At the start it fixes three things from the training images: the kernel's gamma, the clusters, and a baseline. The
    linkage and the number of clusters are those on which halves of the images agree best. The baseline holds the values
    of n real images in place of the generated ones. The main values of each evaluation (docs/keys.md explains all of
    them):

    - `cms/image`, `cms/cluster_1` … and `cms/constant` in [0, 1], higher is better: the similarity of the image, of
      each region and of the pixels that never vary. `cms/product` is the product over all regions, equal to `cms/image`
      if they are independent.
    - `cms/error_ratio_image`, `cms/error_ratio_1` …, lower is better: distance from real images, as a multiple of the
      distance of other real images. The order of regions, alerts and the best evaluation depend on it.
    - `cms/p_image`, `cms/p_1` …: p-values of `TwoSampleTest`, at one level for all regions. At 0.05 or less, generated
      images differ from real ones there.

    `findings` holds the results in words.

    The p-values hold their level if the samples are compared with validation images. A region raises an alert if three
    conditions hold at two evaluations in a row. It is farther from real images than at its best evaluation by more than
    chance (p <= 0.002 for all regions together). Its error ratio is at least 1.25 times that of its best evaluation,
    and at least 1.25. A lasting fault is therefore reported at the second evaluation that has it. A region that is
    already far from real images may hide a small fault; `benchmarks/detection.md` reports which ones, and the rate of
    false alerts. Pixels that never vary are judged by the noise of whole images. Copies of training images raise an
    alert at the second diagnosis in a row that finds them.

    Values at different `n_samples` or `block_size` are not comparable: the estimator's bias is about 1/n.

    Args:
        n_clusters: Number of clusters; None for the one from 2 to 8 on which halves of the training images agree best.
        partition: Your own clusters, for example `PixelPartition.from_mask(segmentation)`. Or the path of a saved
            partition, or of the folder of a run that has one, to compare with that run. None to find clusters.
        n_cluster_images: Largest number of training images for the kernel's gamma and the clusters, at least 10 and 2
            per cluster. None for as many as take half a minute on one core, 1000 to 5000. The choice of images depends
            on the data alone, not on `seed`.
        n_samples: Number of images generated at each evaluation, and of real images to compare with.
        patch_size: Side of a site in pixels. None for 1 or, for images with more than 32×32 pixels, the smallest that
            leaves at most 32×32 sites, or 64×64 if no square of pixels tiles them so.
        kernel: Gaussian or Laplacian kernel; None for a Gaussian.
        block_size: Block size b of the paper's estimator over pairs of blocks (150 there); None for all samples at
            once.
        extra_metrics: MetricCollection, or dictionary of metrics, with `update(images, real=...)`, or with
            `update(images)` for the generated side alone. They see the same samples.
        fault_models: Kinds of faults that the diagnosis tries, see `genmonitor.diagnose`; None for the default ones.
        readings: Statistics of single images that the diagnosis compares; None for the default ones.
        site_encoder: Callable or Module from images to maps [n, c, h, w], such as a VAE's latents, whose sites are
            clustered instead.
        linkage: "average" (the paper's), "ward" or "smoothed", see `PixelPartition.from_cka`. None for "average" or
            "smoothed", the one on which halves of the training images agree better.
        batch_estimator: Mini-batch size m of the paper's CKA estimator (100 there); None for the CKA of all images at
            once. The paper's overestimates dependence by up to about 3/m and may find other clusters. With m = 100, of
            the sites of digits, 62 % stay in the same of five clusters (adjusted Rand index 0.35).
        region_names: Names of clusters, such as {"cluster_3": "eyes"} once you have seen the map. Values, tables and
            pictures use them, such as `cms/eyes` and `cms/p_eyes`.
        aligned: True if the same place shows the same thing in all images, as in faces or scans. If False, as for
            arbitrary photographs, the diagnosis compares patches from random places and names kinds of faults, but no
            places.
        prompts: Strings, or class labels as integers, for a conditional module. Sample i has prompt i modulo their
            number. None for samples without prompts. If real images have such labels or captions, each prompt is tested
            and diagnosed on its own, at one level for all. `cms/p_class` is the smallest p-value.
        reuse: "validation" to evaluate the first n_samples images that `validation_step` generates, instead of drawing
            samples. That saves sampling but costs comparability, since these images have no fixed seeds. Curves are
            noisier, changes are found less reliably, and no checkpoint reproduces the values.
        reuse_key: Key of these images [n, C, H, W] in the dictionary that `validation_step` returns, or the name of the
            module's attribute that holds them.
        seed: Seed of the samples and of the choice of real images.
        prefix: Prefix of log keys and files; two monitors of a Trainer need different ones.
        **options: Those that all monitors share, by keyword: see `MonitorOptions`. By default the real images are the
            Trainer's training data for what is fixed at the start, and its validation data to compare with.

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
            aligned=aligned,
            seed=seed,
        )
        sampling, schedule, rest = split_options(type(self), options)
        sampler = Sampler(n_samples, prompts, seed=seed, **sampling)
        if reuse is not None:
            check_one_of("reuse", reuse, ("validation",))
            if sampler.sample_fn is not None or prompts is not None:
                raise ValueError("Expected `reuse`, or `sample_fn` and `prompts` to draw samples with, but got both.")
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

    @property
    def partition(self) -> PixelPartition | None:
        """The regions, found or given; None before they are known."""
        return self.evaluator.partition

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once it is known."""
        return self.evaluator.kernel

    @property
    def baseline(self) -> dict[str, Band]:
        """Values of real images in place of generated ones, by value; empty before they are known."""
        return self.evaluator.baseline
