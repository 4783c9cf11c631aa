# SPDX-License-Identifier: Apache-2.0
"""PixelClusterMonitor: which region of the image a generator gets wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torchmetrics import Metric, MetricCollection

from genmonitor import PixelPartition
from genmonitor._formatting import format_cms
from genmonitor._validation import check_at_least, check_callable, check_whole_blocks
from genmonitor.callbacks import loggers, report
from genmonitor.callbacks.drops import DropWatch
from genmonitor.callbacks.encoders import check_not_meta
from genmonitor.callbacks.extra import ExtraMetrics
from genmonitor.callbacks.framework import tell
from genmonitor.callbacks.guard import left_alone
from genmonitor.callbacks.in_step import in_step, on_rank_zero
from genmonitor.callbacks.manifest import fingerprint, write_json
from genmonitor.callbacks.monitor import PROBE, GenerativeMonitor
from genmonitor.callbacks.ranges import check_ranges
from genmonitor.callbacks.regions import Found, RegionMetric, find_regions
from genmonitor.callbacks.roles import RealImages, assign_roles
from genmonitor.callbacks.yardstick import Band
from genmonitor.functional.cka import check_arguments, check_patches
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.means import check_estimator
from genmonitor.plotting import pixel_clusters as figures
from genmonitor.plotting.extra_metrics import beside_cms


class PixelClusterMonitor(GenerativeMonitor):
    """Finds groups of pixels that belong together and logs, at every check, how well each group's distribution is met.

    At the start it takes the kernel's width, the clusters (centered kernel alignment, average linkage) and a yardstick
    from the training images: what n real images in place of the generated ones would get. At each check it logs, in [0,
    1] and higher is better unless said otherwise: `cms/image`; `cms/product` of all regions, equal to it where the
    clusters are independent; `cms/cluster_1` …, `cms/constant` for pixels that never vary; `cms/share_1` …, which
    region is to blame, summing to 1; `cms/violations`, a count, 0 where the clusters are independent; `cms/mmd`, lower
    is better; `cms/yardstick_…`, the yardstick's median of each; `cms/sampling_seconds`, `cms/metric_seconds`,
    `cms/images_seen`.

    Values at different `n_samples` or `block_size` must not be compared: the estimator's bias is about 1/n.

    Args:
        n_clusters: None to choose 2..12 by Dunn's index.
        partition: your own clusters, for example `PixelPartition.from_mask(segmentation)`, instead of found ones.
        n_cluster_images: training images for the kernel's width and the clusters, at least 10 and 2 per cluster.
        n_samples: images generated at each check, and real images compared with.
        patch_size: side of a site in pixels; use patches beyond 64×64.
        kernel: Gaussian or Laplacian; None for a Gaussian.
        block_size: None for all samples at once; b for the paper's estimator over pairs of blocks (150 there).
        extra_metrics: a MetricCollection, or a dictionary of metrics, that take `update(images, real=...)`, or
            `update(images)` for the generated side alone; fed from the same samples.
        site_encoder: from images to maps [n, c, h, w], such as a VAE's latents: the sites are then the map's.
        on_drop: called with a line of text when a region that was inside its band is below it at two checks in a row.
        settings: those of `GenerativeMonitor`.

    Source:
        Gruber et al. 2024.

    Example:
        >>> PixelClusterMonitor(n_clusters=5, n_samples=500).n_samples
        500
    """

    prefix = "cms"
    about = report.ABOUT

    def __init__(
        self,
        n_clusters: int | None = None,
        partition: PixelPartition | None = None,
        n_cluster_images: int = 1000,
        n_samples: int = 1200,
        patch_size: int = 1,
        kernel: Kernel | None = None,
        block_size: int | None = None,
        *,
        extra_metrics: MetricCollection | Mapping[str, Metric] | None = None,
        site_encoder: nn.Module | Callable[[Tensor], Tensor] | None = None,
        on_drop: Callable[[str], Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(n_samples, **settings)
        if n_clusters is not None:
            check_at_least("n_clusters", n_clusters, 1)
        check_at_least("n_cluster_images", n_cluster_images, 2)
        check_arguments(kernel, patch_size, 1e-6, None)
        check_estimator(kernel, partition, block_size)
        check_whole_blocks("generated", n_samples, block_size)
        if partition is None:
            _enough_for_clusters("n_cluster_images", n_cluster_images, n_clusters)
        if partition is not None and n_clusters is not None:
            raise ValueError(f"Expected `n_clusters` or `partition`, but got both, {n_clusters} and {partition}.")
        check_callable("site_encoder", site_encoder, "from images to maps [n, c, h, w]")
        check_callable("on_drop", on_drop, "that takes a line of text")
        self.n_clusters = n_clusters
        self.partition = partition
        self.n_cluster_images = n_cluster_images
        self.patch_size = patch_size
        self.kernel = kernel or GaussianKernel()
        self.block_size = block_size
        self._given: dict[str, Any] = {  # kernel and partition are filled in later
            "kernel": type(self.kernel).__name__,
            "gamma": self.kernel.gamma,
            "partition": None if partition is None else partition.labels.tolist(),
            "site_size": None if partition is None else partition.patch_size,
        }
        self.extra_metrics = extra_metrics
        self._extra = ExtraMetrics({} if extra_metrics is None else extra_metrics)
        self.site_encoder = site_encoder
        self.on_drop = on_drop
        self.yardstick: dict[str, Band] = {}
        self._drops = DropWatch()
        self._extra_names: list[str] = []
        self._data: list[float] = []
        self._cka: Tensor | None = None
        self._average: Tensor | None = None
        self._metric: RegionMetric | None = None
        self._range = (0.0, 1.0)

    def prepare(self, trainer: Any, pl_module: Any) -> None:
        """Fix kernel width, clusters, yardstick and the real side, or take them over from a checkpoint."""
        roles = assign_roles(
            trainer, self.real_images, self.image_key, self.n_cluster_images, self.n_samples, self.block_size, self.seed
        )
        for note in roles.notes:
            self.note(f"{type(self).__name__}: {note}.")
        if isinstance(self.site_encoder, nn.Module):
            check_not_meta("site_encoder", self.site_encoder)
            self.site_encoder.to(pl_module.device)
        probe = self.draw(trainer, pl_module, range(min(PROBE, self.n_samples)))
        compared = roles.compared.read(roles.for_comparison[:PROBE])
        self._same_data_or_anew(
            [float(len(roles.training)), float(len(roles.compared)), float(compared.double().sum())]
        )
        self._check_probe(probe, compared)
        self._extra.prepare(probe, compared.to(probe.device))
        if self._given["partition"] is None:
            _enough_for_clusters("n_cluster_images", len(roles.for_clusters), self.n_clusters)
        if not self.yardstick:
            found = on_rank_zero(trainer, lambda: self._find(trainer, roles, probe.device))
            self.partition, self.kernel, self.yardstick = found.partition, found.kernel, found.yardstick
            self._range, self._cka, self._average = found.value_range, found.cka, found.average
        share = self.share(trainer, len(roles.for_comparison))
        real = roles.compared.read([roles.for_comparison[i] for i in share]) if len(share) else probe[:0].cpu()
        self._real = real.to(probe.device)
        self._real_side = {  # of rank zero's share, the first of them
            "from": roles.compared.name,
            "indices": roles.for_comparison,
            "count": len(real),
            "sha256": fingerprint(real),
        }
        self._metric = RegionMetric(self.partition, self.kernel, self.block_size, reset_real_features=False)
        self._metric.to(probe.device)
        self._metric.update(self._sites(self._real), real=True)

    def collect(self, samples: Tensor) -> None:
        """Give this process's samples to the metrics."""
        if len(samples) > 1 and bool((samples.amax(0) == samples.amin(0)).all()):
            self.note(f"{type(self).__name__}: all generated images are the same, so the values say little.")
        assert self._metric is not None
        self._metric.reset()
        self._metric.update(self._sites(samples), real=False)
        self._extra.feed(samples, self._real)

    def measure(self, trainer: Any, samples: Tensor) -> dict[str, float]:
        """Return CMS of image and regions, shares, violations, MMD, the extra metrics and the yardstick's medians."""
        assert self._metric is not None
        computed_now: Any = in_step(trainer, self._metric.compute)
        values = {name: float(value) for name, value in computed_now.items()}
        extra = self._extra.compute(lambda fine: trainer.strategy.reduce_boolean_decision(fine, all=True))
        self._extra_names = list(extra)
        values |= extra
        return values | {f"yardstick_{name}": band[1] for name, band in self.yardstick.items()}

    def charts(self) -> dict[str, list[str]]:
        """Return which values share a chart, by its title."""
        assert self.partition is not None
        return report.charts(list(self.partition.regions()))

    def first_figures(self) -> dict[str, Figure]:
        """Draw the cluster map, the map over the average image, and the CKA matrix ordered by cluster."""
        labels = self._image_labels()
        out = {"clusters": figures.cluster_map(labels)}
        if self._average is not None:
            out["clusters_over_average"] = figures.cluster_overlay(labels, self._average)
        if self._cka is not None and self.partition is not None:
            out["cka"] = figures.cka_matrix(self._cka, self.partition.labels)
            self._cka = None
        return out

    def figures(self, samples: Tensor) -> dict[str, Figure]:
        """Draw the curves of the clusters, of image and product, and samples with the region to blame outlined."""
        assert self.partition is not None
        epochs = [check["epoch"] for check in self.history]
        curves = {
            name: [check[name] for check in self.history] for name in ("image", "product", *self.partition.regions())
        }
        image, product = curves.pop("image"), curves.pop("product")
        worst, share = report.most_to_blame(self.history[-1], self.partition)
        outlined = self.partition.regions()[worst] if share else None
        labels = self._image_labels()
        out = {
            "curves": figures.cluster_curves(epochs, curves, self.yardstick, labels),
            "image_and_product": figures.image_and_product(epochs, image, product, self.yardstick),
            "samples": figures.sample_grid(samples[:64], labels, outlined, self._range, share or None),
        }
        if self._extra_names:
            # a check of before a resumed run may lack a metric that was added since
            extra = {name: [check.get(name, math.nan) for check in self.history] for name in self._extra_names}
            out["extra_metrics"] = beside_cms(epochs, image, self.yardstick.get("image"), extra)
        return out

    def after_check(self, trainer: Any) -> None:
        """Say a line about the check, raise the alert for regions that dropped, and send W&B its chart."""
        assert self.partition is not None
        check, step = self.history[-1], int(self.history[-1]["step"])
        tell(report.line(check, self.partition, self.yardstick))
        bands = {name: self.yardstick[name] for name in self.partition.regions()}
        for name in self._drops.update(check, bands):
            text = (
                f"{name} fell out of its yardstick: CMS {format_cms(check[name])} at epoch {check['epoch']:g}, "
                f"a perfect generator gets {format_cms(bands[name][0])} or more."
            )
            self.note(text)
            loggers.log_alert(trainer.loggers, f"{self.prefix}: {name} dropped", text, step)
            if self.on_drop is not None:
                self.on_drop(text)
        curves = {name: [past[name] for past in self.history] for name in bands}
        epochs = [past["epoch"] for past in self.history]
        loggers.log_series(trainer.loggers, f"{self.prefix}/clusters_chart", "CMS per cluster", epochs, curves, step)

    def write_once(self) -> None:
        """Write down the partition and which real images are compared with."""
        assert self.partition is not None
        self.partition.save(self._folder / "partition.npz")
        write_json(self._folder / f"{self.prefix}_real_images.json", self._real_side)

    def summary(self) -> str:
        """Return a table of the regions, the most to blame at the last check first."""
        assert self.partition is not None
        return report.table(self.history, self.partition, self.yardstick)

    def facts(self) -> dict[str, Any]:
        """Return what is needed to measure the same again."""
        return {
            "kernel": type(self.kernel).__name__,
            "gamma": self.kernel.gamma,
            "block_size": self.block_size,
            "range": list(self._range),
            "partition": "partition.npz",
            "real": f"{self.prefix}_real_images.json",
            "yardstick": self.yardstick,
        }

    def only_in_code(self) -> list[str]:
        """Name the arguments given that no manifest can hold."""
        given = {"extra_metrics": self.extra_metrics, "site_encoder": self.site_encoder}
        return super().only_in_code() + [name for name, value in given.items() if value is not None]

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python and tensors only."""
        if self.partition is None or not self.yardstick:  # saved before training started
            return super().state_dict()
        return super().state_dict() | {
            "settings": self._settings(),
            "data": list(self._data),
            "labels": self.partition.labels,
            "site_size": self.partition.patch_size,
            "gamma": self.kernel.gamma,
            "yardstick": {name: list(band) for name, band in self.yardstick.items()},
            "range": list(self._range),
            "drops": {"reached": dict(self._drops.reached), "below": dict(self._drops.below)},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; what is fixed for a run stays fixed when it is resumed."""
        super().load_state_dict(state_dict)
        if "settings" not in state_dict:
            return
        other = [name for name, value in self._settings().items() if value != state_dict["settings"].get(name)]
        if other:
            self.note(
                f"{type(self).__name__} was resumed with another {', '.join(other)}: clusters and yardstick are made "
                "anew and the curves start anew, since values before and after cannot be compared."
            )
            self.start_anew()
            return
        self.partition = PixelPartition(state_dict["labels"], state_dict["site_size"])
        self.kernel = replace(self.kernel, gamma=state_dict["gamma"])
        self.yardstick = {name: (band[0], band[1], band[2]) for name, band in state_dict["yardstick"].items()}
        self._range = (float(state_dict["range"][0]), float(state_dict["range"][1]))
        self._data = list(state_dict["data"])
        self._drops.reached = dict(state_dict["drops"]["reached"])
        self._drops.below = dict(state_dict["drops"]["below"])

    def _settings(self) -> dict[str, Any]:
        names = ("n_samples", "n_cluster_images", "n_clusters", "patch_size", "block_size", "seed")
        prompts = None if self.prompts is None else self.prompts.values
        return {name: getattr(self, name) for name in names} | self._given | {"prompts": prompts}

    def _same_data_or_anew(self, data: list[float]) -> None:
        """Forget what was found in other data: what is fixed for a run holds for its images only."""
        if self._data and self._data != data:
            self.note(
                f"{type(self).__name__} was used with other images before: clusters, yardstick and curves start anew, "
                "since values before and after cannot be compared."
            )
            self._forget()
        self._data = data

    def _forget(self) -> None:
        labels = self._given["partition"]
        self.partition = None if labels is None else PixelPartition(torch.tensor(labels), self._given["site_size"])
        self.kernel = replace(self.kernel, gamma=self._given["gamma"])
        self.yardstick, self._drops = {}, DropWatch()
        self.start_anew()

    def _check_probe(self, probe: Tensor, real: Tensor) -> None:
        if probe.shape[1:] != real.shape[1:]:
            raise ValueError(
                f"Expected generated images of shape {list(real.shape[1:])} like the real ones, but got "
                f"{list(probe.shape[1:])}. Resize or convert one of them, in `sample_fn` or in the dataset's transform."
            )
        try:
            check_ranges(real, probe)
        except ValueError as error:
            if not self.yardstick:
                raise
            # a run that goes on was configured well: the generator has broken
            self.note(f"{type(self).__name__}: {error}")
        sites = self._sites(probe)
        check_patches("images", sites, self.patch_size)
        if self.partition is not None:
            self.partition.check_images("images", tuple(sites.shape))

    def _find(self, trainer: Any, roles: RealImages, device: torch.device) -> Found:
        return find_regions(
            roles,
            lambda images: self._sites(images.to(device)),
            self.kernel,
            self.partition,
            self.n_clusters,
            self.patch_size,
            self.block_size,
            self.n_samples,
            self.seed,
            lambda over, doing: self.progress(trainer, over, doing),
        )

    def _sites(self, images: Tensor) -> Tensor:
        """Return the maps whose sites are clustered: the images themselves, or what the encoder makes of them."""
        if self.site_encoder is None or not len(images):
            return images
        encoder = self.site_encoder
        with left_alone(encoder) if isinstance(encoder, nn.Module) else nullcontext():
            return torch.cat([encoder(batch).float() for batch in images.split(self.sample_batch_size)])

    def _image_labels(self) -> Tensor:
        """Return the labels at the resolution of the images."""
        assert self.partition is not None
        labels = self.partition.pixel_labels()
        size = self._real.shape[2:]
        return interpolate(labels[None, None].double(), size=size, mode="nearest-exact")[0, 0].long()


def _enough_for_clusters(name: str, n: int, n_clusters: int | None) -> None:
    least = max(10, 2 * (n_clusters or 1))
    if n < least:
        raise ValueError(
            f"Expected `{name}` of at least {least} images, 10 and 2 per cluster, but got {n}: with fewer all pixels "
            "seem to vary together. Give more, fewer clusters, or your own `partition`."
        )
