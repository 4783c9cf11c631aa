# SPDX-License-Identifier: Apache-2.0
"""Precision, recall, density and coverage of generated features against real ones, and what real images score."""

from __future__ import annotations

from torch import Tensor

from genmonitor.kernels import Kernel
from genmonitor.metrics.prdc import PRDC
from genmonitor.metrics.vendi import RKEScore, VendiScore

NEIGHBORS = 5


def check_neighbors(real: int, generated: int) -> None:
    """Refuse fewer images than have the neighbors that `FidelityMetrics` looks at."""
    if min(real, generated) <= NEIGHBORS:
        raise ValueError(
            f"Expected more than {NEIGHBORS} real and generated images, the neighbors that precision and recall "
            f"look at, but got {real} and {generated}. Give more."
        )


class FidelityMetrics:
    """Generated features against the real ones of all processes.

    Args:
        features: of this process's part of the real images [m, d].
        kernel: of the Vendi score.
        num_features: random Fourier features of a Gaussian kernel.

    Attributes:
        of_real: `real_vendi` and `real_rke`, what the real images get.
    """

    def __init__(self, features: Tensor, kernel: Kernel, num_features: int | None) -> None:
        self._metric = PRDC(k=NEIGHBORS, reset_real_features=False).to(features.device)
        self._metric.update(features, real=True)
        self.of_real: dict[str, float] = {}
        if not kernel.takes_gamma:  # it may be the prompts' kernel that needs them
            num_features = None
        for name, score in (("real_vendi", VendiScore), ("real_rke", RKEScore)):
            metric = score(kernel=kernel, num_features=num_features).to(features.device)
            metric.update(features)
            self.of_real[name] = float(metric.compute())

    def update(self, features: Tensor) -> None:
        """Take this process's generated features in place of those of the last evaluation."""
        self._metric.reset()
        self._metric.update(features, real=False)

    def compute(self) -> dict[str, float]:
        """Return precision, recall, density and coverage, and `of_real`; every process must call it."""
        return {name: float(value) for name, value in self._metric.compute().items()} | self.of_real
