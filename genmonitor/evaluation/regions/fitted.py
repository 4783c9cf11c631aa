# SPDX-License-Identifier: Apache-2.0
"""What a fitted RegionEvaluator evaluates with: the regions, and the real images to compare generated ones with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.images import fingerprint
from genmonitor.evaluation.data.nearest import NearestImages
from genmonitor.evaluation.data.reference import RealSplit
from genmonitor.evaluation.regions.finder import RegionFinder, Regions
from genmonitor.evaluation.regions.metrics import RegionMetrics
from genmonitor.functional.two_sample_test import MIN_SAMPLES


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fitted RegionEvaluator evaluates with: the regions, and the real side of the comparison.

    Attributes:
        regions: what is fixed for the run.
        real: this process's real images [m, C, H, W].
        real_origin: which images those of all processes are, for the manifest.
        metrics: hold the real side.
        nearest: where to look for copies of real images; None but on rank zero, which shows them.
    """

    regions: Regions
    real: Tensor
    real_origin: dict[str, Any]
    metrics: RegionMetrics
    nearest: NearestImages | None

    @classmethod
    def of(cls, regions: Regions, finder: RegionFinder, split: RealSplit, probe: Tensor, comm: Collective) -> Fitted:
        """Read this process's part of the real images to compare with.

        Args:
            regions: what was found.
            finder: with the settings of the metrics.
            split: which images serve for what.
            probe: some generated images, on the device to evaluate on.
            comm: the processes that evaluate together.
        """
        mine = comm.rank_indices(len(split.for_comparison))
        real = split.compared.read([split.for_comparison[i] for i in mine]) if len(mine) else probe[:0].cpu()
        origin = {  # of rank zero's images, the first of all
            "from": split.compared.name,
            "indices": split.for_comparison,
            "count": len(real),
            "sha256": fingerprint(real),
        }
        with comm.all_ranks_or_none():  # the first process may have no images where there are fewer than processes
            nearest = NearestImages.of(split, real) if comm.rank == 0 and len(real) else None
        real = real.to(probe.device)
        metrics = RegionMetrics(
            regions.partition,
            regions.kernel,
            finder.settings.block_size,
            regions.widths,
            finder.to_sites(real),
            finder.settings.seed,
            testable=min(len(split.for_comparison), finder.settings.n_samples) >= MIN_SAMPLES,
        )
        return cls(regions, real, origin, metrics, nearest)
