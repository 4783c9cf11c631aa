# SPDX-License-Identifier: Apache-2.0
"""Metrics of a kernel's spectrum: they stream moments of explicit features if there are any, else keep samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torchmetrics import Metric

from genmonitor._processes import from_rank_zero
from genmonitor._validation import check_at_least, check_count, check_min_samples, check_same_length, check_vectors
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import FeatureMap, add_moments, feature_map, has_features
from genmonitor.metrics._base import KernelMetric, is_left_out, joined


class MomentMetric(KernelMetric):
    """A metric that can stream: it sums 1, φ and φ φᵀ of its samples in float64, where φ are explicit features.

    Each set of samples has the states `count`, `feature_sum` and `products`, behind a prefix.

    Args:
        kwargs: Keyword arguments of `torchmetrics.Metric`.
    """

    num_features: int | None
    seed: int
    group_key: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._moment_prefixes: list[str] = []
        self._maps: dict[str, tuple[Hashable, FeatureMap]] = {}

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the state of another metric of this kind, and its gamma if this metric has none.

        Raises:
            ValueError: If it sums other features.
        """
        if isinstance(incoming_state, MomentMetric) and incoming_state._has_moments():
            theirs = incoming_state._summed_features()
            if not self._has_moments():
                for gamma, kernel in self._kernels.items():
                    if kernel.gamma is None:
                        getattr(self, gamma).copy_(getattr(incoming_state, gamma))
            if self._summed_features() != theirs:
                raise ValueError(
                    f"Expected a {type(self).__name__} with the features of {self._summed_features()}, but got "
                    f"{theirs}. Give both the same kernels with their gamma, `num_features` and `seed`."
                )
        if isinstance(incoming_state, dict) and self._moment_prefixes:
            self._check_own(float(incoming_state["group_key"]) == float(self.group_key))
        super().merge_state(incoming_state)

    def _has_moments(self) -> bool:
        return any(int(getattr(self, f"{prefix}count")) for prefix in self._moment_prefixes)

    def _summed_features(self) -> tuple[Hashable, ...]:
        """Return kernels, number of features and seed, which must agree for sums to be added."""
        return (*(self._kernel(gamma) for gamma in self._kernels), self.num_features, self.seed)

    def _share_sums_of(self, kernels: Sequence[Kernel]) -> None:
        """Let metrics of one compute group share their sums if they sum the same features."""
        is_open = any(kernel.takes_gamma and kernel.gamma is None for kernel in kernels)
        self._share_states_if(None if is_open else (kernels, self.num_features, self.seed))

    def _add_moment_states(self, prefix: str) -> None:
        self._moment_prefixes.append(prefix)
        for name in ("count", "feature_sum", "products"):  # scalars until the first batch gives them a shape
            default = torch.zeros((), dtype=torch.float64)
            self.add_state(f"{prefix}{name}", default=default, dist_reduce_fx="sum")

    def _add_moments(self, samples: Sequence[Tensor], maps: Sequence[FeatureMap], prefix: str = "") -> None:
        """Add samples [N, D] of all sides, whose features stand one after the other."""
        products = getattr(self, f"{prefix}products")
        if products.ndim == 0:
            size = sum(side.size for side in maps)
            products = products.new_zeros(size, size)
        elif products.is_inference():  # Lightning validates in inference mode, whose tensors take no update outside
            products = products.clone()
        setattr(self, f"{prefix}products", products)
        total = add_moments(products, samples, maps)
        setattr(self, f"{prefix}feature_sum", getattr(self, f"{prefix}feature_sum") + total)
        setattr(self, f"{prefix}count", getattr(self, f"{prefix}count") + len(samples[0]))

    def _mean_moments(self, prefix: str = "") -> tuple[Tensor, Tensor]:
        """Return the means of φ φᵀ [P, P] and of φ [P], float64; there must be samples."""
        own, shared = (float(x) for x in (self._defaults["group_key"], self.group_key))  # type: ignore[arg-type]
        self._check_own(math.isnan(own) or shared == own)
        count, total = getattr(self, f"{prefix}count"), getattr(self, f"{prefix}feature_sum")
        return getattr(self, f"{prefix}products") / count, total / count

    def _check_own(self, own: bool) -> None:
        """Refuse the sums of another metric, whose features are unknown here."""
        if not own:
            raise ValueError(
                f"Expected sums of this {type(self).__name__}'s own features, but got those of another one: the first "
                "metric of its compute group, a state, or another process. Leave `compute_groups` out of the "
                "collection, merge metrics rather than states, and call the first `update` on every process."
            )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value, as `GenerativeMetric.forward` does."""
        for prefix in self._moment_prefixes:  # the metrics of a compute group share what `update` adds to in place
            setattr(self, f"{prefix}products", getattr(self, f"{prefix}products").clone())
        return super().forward(*args, **kwargs)

    def _feature_map(self, name: str, key: Hashable, draw: Callable[[], FeatureMap]) -> FeatureMap:
        """Return a feature map on the metric's device, drawn again only if `key` or the device has changed."""
        key = (key, self.device)
        if name not in self._maps or self._maps[name][0] != key:
            self._maps[name] = (key, draw().to(self.device))
        return self._maps[name][1]


class SpectralMetric(MomentMetric):
    """Streams second moments if every kernel has explicit features, and keeps the samples otherwise.

    Args:
        kernels: Kernels, one for each of `gammas`.
        num_features: Number of random Fourier features of each Gaussian kernel; None for no explicit features.
        seed: Seed of the random Fourier features.
        kwargs: Keyword arguments of `torchmetrics.Metric`.
    """

    gammas: ClassVar[dict[str, str]]
    """Buffers of gammas, by the name of a side, the set of samples that `update` takes under this name."""
    may_stream: ClassVar[bool] = True
    """True if second moments of the sides' features suffice."""

    count: Tensor
    products: Tensor
    feature_sum: Tensor
    dims: Tensor
    gamma: Tensor

    def __init__(self, kernels: list[Kernel], num_features: int | None, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_features = num_features
        self.seed = check_at_least("seed", seed, 0)
        # of the samples of each side; they give the random Fourier features, together with gamma and seed
        self.add_state("dims", default=torch.zeros(len(kernels), dtype=torch.int64), dist_reduce_fx="max")
        self.streams = self.may_stream and all(has_features(kernel, num_features) for kernel in kernels)
        if self.streams:
            self._add_moment_states("")
            self._share_sums_of(kernels)
        else:
            for side in self.gammas:
                self.add_state(side, default=[], dist_reduce_fx="cat")
        for gamma, kernel in zip(self.gammas.values(), kernels, strict=True):
            self._add_kernel(gamma, kernel)

    @property
    def _call(self) -> str:
        """The call that adds samples, for errors."""
        return f"update({', '.join(self.gammas)})"

    @property
    def kernel(self) -> Kernel:
        """The kernel of the samples, or of outputs, with its gamma once that is known."""
        return self._kernel("gamma")

    def reset(self) -> None:
        """Forget the samples, but neither gamma nor the number of values of a sample."""
        dims = self.dims
        super().reset()
        self.dims = dims

    def _checked(self, side: str, value: Tensor) -> Tensor:
        """Check samples of one side, images as vectors."""
        x = check_vectors(side, value, self._dim(side) or None)
        self._kernel(self.gammas[side]).check_samples(side, x)
        return x

    def _dim(self, side: str) -> int:
        """Return the number of values of a sample of a side, 0 before the first."""
        return int(self.dims[list(self.gammas).index(side)])

    def _add(self, samples: dict[str, Tensor], given: Sequence[Tensor]) -> None:
        """Add checked samples of all sides, made from what `update` was given."""
        dims = torch.tensor([x.shape[1] for x in samples.values()], device=self.device)
        if not self.streams:
            self.dims = dims
            for (side, x), own in zip(samples.items(), given, strict=True):
                self._keep(side, x, own)
            return
        for side, x in samples.items():
            kernel = self._kernel(self.gammas[side])
            if kernel.takes_gamma and kernel.gamma is None:
                self._keep_gamma(self.gammas[side], from_rank_zero(partial(kernel.resolved, x)))
        self.dims = dims
        sides, maps = list(samples.values()), [self._features_of(side) for side in samples]
        self._add_moments(sides, maps)

    def _features_of(self, side: str) -> FeatureMap:
        """Return the explicit features of a side."""
        kernel, dim = self._kernel(self.gammas[side]), self._dim(side)

        self._check_own(kernel.gamma is not None or not kernel.takes_gamma)

        def draw() -> FeatureMap:
            drawn = feature_map(kernel, dim, self.num_features, self.seed)
            return cast(FeatureMap, drawn)  # not None, since the metric streams

        return self._feature_map(side, (kernel, dim), draw)

    def _need_features(self) -> None:
        """Refuse to go without explicit features, or without samples."""
        if not self.streams:
            kernels = " and ".join(repr(self._kernel(gamma)) for gamma in self.gammas.values())
            raise ValueError(
                f"Expected kernels with explicit features, but got {kernels} with `num_features`=None, which give "
                "scores alone. Set `num_features`, or use the cosine kernel."
            )
        if not self.dims.all():
            raise ValueError(f"Expected samples before this, but got none. Call `{self._call}`.")

    def _covariance(self) -> Tensor:
        """Return the covariance of the features of all sides, float64."""
        check_count("samples", int(self.count), self._call)
        return self._mean_moments()[0]

    def _kept(self) -> list[tuple[Tensor, Kernel]]:
        """Return the samples and the kernel of each side; a gamma that was open is taken from the samples."""
        out = []
        for side, gamma in self.gammas.items():
            x = joined(side, getattr(self, side), self._call)
            check_min_samples(side, x)
            out.append((x, self._resolved(gamma, x)))
        return out


class PromptedMetric(SpectralMetric):
    """A spectral metric of outputs and their prompts, row by row."""

    is_differentiable: bool = False
    higher_is_better: bool = True
    gammas: ClassVar[dict[str, str]] = {"outputs": "gamma", "prompts": "prompt_gamma"}

    outputs: list[Tensor]
    prompts: list[Tensor]
    prompt_gamma: Tensor

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once that is known."""
        return self._kernel("prompt_gamma")

    def update(self, outputs: Tensor, prompts: Tensor, real: bool = False, reference: bool = False) -> None:
        """Add outputs and their prompts, row by row.

        Args:
            outputs: Features [N, D] or images [N, C, H, W].
            prompts: Features [N, E].
            real: True to ignore the batch, so that one MetricCollection feeds metrics of one and of two sides.
            reference: True to ignore the batch, likewise, next to PromptSplit.

        Raises:
            TypeError: If they are not tensors of real numbers.
            ValueError: If they differ in length, or as `VendiScore.update` does.
        """
        if not is_left_out(real, reference):
            self._add(self._checked_pairs(outputs, prompts), (outputs, prompts))

    def _checked_pairs(self, outputs: Tensor, prompts: Tensor) -> dict[str, Tensor]:
        samples = {"outputs": self._checked("outputs", outputs), "prompts": self._checked("prompts", prompts)}
        check_same_length("outputs", samples["outputs"], "prompts", samples["prompts"])
        return samples
