# SPDX-License-Identifier: Apache-2.0
"""All metrics with what they are fed in the tests that go through all of them: a new one adds a line to `CITIZENS`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from genmonitor import (
    PRDC,
    Authenticity,
    ConditionalVendiScore,
    CosineKernel,
    CosineMeanSimilarity,
    DiscrepancyMap,
    GaussianKernel,
    LaplacianKernel,
    MaximumMeanDiscrepancy,
    PixelCKA,
    PixelPartition,
    PromptSplit,
    RKEScore,
    ScendiScore,
    TwoSampleTest,
    VendiScore,
    W1KPScore,
)
from genmonitor.functional import calibrate

HALVES = PixelPartition.grid((3, 4), 1, 2)

Call = tuple[tuple[Tensor, ...], dict[str, Any]]
"""What `update` is called with: tensors by position, the rest by name."""


def images(n: int, seed: int) -> Tensor:
    x = torch.rand(n, 1, 3, 4, generator=torch.Generator().manual_seed(seed))
    return (x + x.roll(1, dims=-1)) / 2


def features(n: int, seed: int, dim: int = 5) -> Tensor:
    return torch.rand(n, dim, generator=torch.Generator().manual_seed(seed))


REAL_AND_FAKE = [((images(30, 1),), {"real": True}), ((images(24, 2) ** 2,), {"real": False})]
FEATURES_OF_BOTH = [((features(30, 1),), {"real": True}), ((features(24, 2) ** 2,), {"real": False})]
ALIKE = [((images(30, 1),), {"real": True}), ((images(24, 2),), {"real": False})]
FEATURES_ALIKE = [((features(30, 1),), {"real": True}), ((features(24, 2),), {"real": False})]
IMAGES = [((images(40, 1),), {})]
FEATURES = [((features(40, 1),), {})]
PAIRS = [((features(40, 1), features(40, 2, 3)), {})]
OUTPUTS_OF_PROMPTS = [((features(40, 1), torch.arange(40) % 7), {})]
PAIRS_OF_BOTH = [
    ((features(30, 1), features(30, 2, 3)), {"reference": True}),
    ((features(24, 3) ** 2, features(24, 4, 3)), {"reference": False}),
]


@dataclass
class Citizen:
    """A metric with what it is fed."""

    make: Callable[..., Metric]
    data: list[Call]
    arguments: dict[str, Any] = field(default_factory=dict)
    ordered: bool = False
    """Whether the order of the samples matters."""

    @property
    def one_sided(self) -> bool:
        """Whether `update` leaves real batches out."""
        real = signature(self.make.update).parameters.get("real")
        return real is not None and real.default is False

    def calls(self, batch: int = 1000, dtype: torch.dtype = torch.float32) -> list[Call]:
        """Cut the data into batches, those of both sides in turn."""
        by_side = []
        for tensors, how in self.data:
            cut = zip(*(cast(x, dtype).split(batch) for x in tensors), strict=True)
            by_side.append([(some, how) for some in cut])
        return [call for turn in zip_longest(*by_side) for call in turn if call]

    def fed(self, calls: list[Call] | None = None, **kwargs: Any) -> Metric:
        return feed(self.make(**self.arguments, **kwargs), calls or self.calls())


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    if not x.is_floating_point():  # an index
        return x
    return x.to(dtype) if dtype.is_floating_point else (x * (255 if x.ndim == 4 else 9)).round().to(dtype)


def feed(metric: Metric, calls: list[Call]) -> Metric:
    for tensors, how in calls:
        metric.update(*tensors, **how)
    return metric


CITIZENS = {
    "cms": Citizen(CosineMeanSimilarity, REAL_AND_FAKE),
    "cms regions": Citizen(CosineMeanSimilarity, REAL_AND_FAKE, {"partition": HALVES}),
    "cms blocks": Citizen(CosineMeanSimilarity, REAL_AND_FAKE, {"block_size": 6}, ordered=True),
    "cms cosine": Citizen(CosineMeanSimilarity, REAL_AND_FAKE, {"kernel": CosineKernel()}),
    "mmd": Citizen(MaximumMeanDiscrepancy, REAL_AND_FAKE),
    "mmd laplacian": Citizen(MaximumMeanDiscrepancy, FEATURES_OF_BOTH, {"kernel": LaplacianKernel()}),
    "cka": Citizen(PixelCKA, IMAGES),
    "cka product": Citizen(PixelCKA, IMAGES, {"kernel": LaplacianKernel()}),
    "cka batches": Citizen(PixelCKA, IMAGES, {"batch_estimator": 10}, ordered=True),
    "prdc": Citizen(PRDC, FEATURES_OF_BOTH, {"k": 3}),
    "authenticity": Citizen(Authenticity, FEATURES_OF_BOTH),
    "vendi": Citizen(VendiScore, FEATURES),
    "vendi gaussian": Citizen(VendiScore, FEATURES, {"kernel": GaussianKernel()}),
    "vendi fourier": Citizen(VendiScore, FEATURES, {"kernel": GaussianKernel(0.7), "num_features": 16}),
    "rke": Citizen(RKEScore, FEATURES),
    "rke gaussian": Citizen(RKEScore, FEATURES, {"kernel": GaussianKernel()}),
    "scendi": Citizen(ScendiScore, PAIRS),
    "scendi gaussian": Citizen(ScendiScore, PAIRS, {"kernel": GaussianKernel()}),
    "scendi fourier": Citizen(ScendiScore, PAIRS, {"kernel": GaussianKernel(0.7), "num_features": 6, "rcond": 1e-4}),
    "conditional vendi": Citizen(ConditionalVendiScore, PAIRS),
    "conditional vendi gaussian": Citizen(
        ConditionalVendiScore, PAIRS, {"kernel": GaussianKernel(), "order": 2, "truncation": 20}
    ),
    "promptsplit": Citizen(PromptSplit, PAIRS_OF_BOTH, {"num_modes": 3}),
    "promptsplit cosine": Citizen(
        PromptSplit,
        PAIRS_OF_BOTH,
        {"output_kernel": CosineKernel(), "prompt_kernel": CosineKernel(), "num_features": 32, "num_modes": 3},
    ),
    "discrepancy map": Citizen(DiscrepancyMap, REAL_AND_FAKE),
    "two-sample test": Citizen(TwoSampleTest, FEATURES_ALIKE),
    "two-sample test regions": Citizen(TwoSampleTest, ALIKE, {"partition": HALVES}),
    "w1kp": Citizen(W1KPScore, OUTPUTS_OF_PROMPTS, {"calibration": calibrate(features(40, 5))}),
}

PER_BASE = (
    "cms regions",
    "prdc",
    "vendi fourier",
    "vendi gaussian",
    "scendi fourier",
    "scendi gaussian",
    "promptsplit",
    "promptsplit cosine",
    "cka",
    "w1kp",
)
"""One citizen for each base class and way to keep a state: enough for what a base alone decides."""
