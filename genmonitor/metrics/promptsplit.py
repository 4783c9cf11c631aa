# SPDX-License-Identifier: Apache-2.0
"""PromptSplit as a stateful metric."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from genmonitor._validation import check_at_least, check_bool, check_count, check_pairs
from genmonitor._validation.arguments import check_prompt_split_arguments
from genmonitor.functional._joint_spectrum import by_covariances
from genmonitor.functional.promptsplit import PromptSplitModes, prompt_split, split_modes
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.covariance import FeatureMap, add_moments, packed_size, unpack
from genmonitor.kernels.product import PairKernel, resolved
from genmonitor.linalg.precision import full_precision
from genmonitor.metrics._base import GenerativeMetric, from_rank_zero

SIDES = ("test", "reference")

_CALL = "update(outputs, prompts, reference=...)"


class PromptSplit(GenerativeMetric):
    """The modes of outputs and prompts together that one model has and a reference lacks.

    The exact form keeps every sample. With `num_features` it streams: the state is the covariance of the random
    features of each side, of a size that does not grow with the samples. When it streams, the first `update` fixes the
    widths and a shift; under torch.distributed rank zero's hold for all, so the first `update` must be made by every
    process.

    Args:
        output_kernel: None for a Gaussian. A kernel without gamma takes it from the first 1000 reference samples of all
            processes at the first `compute`, or from those of the first `update` when it streams, and keeps it.
        prompt_kernel: the same of prompts.
        eta: weight of the reference side, positive.
        num_modes: M, how many eigenpairs are wanted, those furthest from zero.
        num_features: None for the exact form; R random features, for two Gaussian or two cosine kernels.
        seed: of the random features.
        kwargs: those of torchmetrics.Metric.

    Raises:
        ValueError: if an argument is out of its range or the random features would not fit in memory; by `update` and
            `compute` as `functional.prompt_split` does, which also says what is computed.

    Source:
        Lotfian et al. 2026, Eq. 2-4, Proposition 1, Algorithm 2.

    Example:
        >>> import torch
        >>> from genmonitor import PromptSplit
        >>> prompts = torch.eye(3).repeat(4, 1)
        >>> outputs = torch.linspace(0, 1, 12)[:, None]
        >>> metric = PromptSplit(num_modes=2)
        >>> metric.update(outputs, prompts, reference=False)
        >>> metric.update(outputs + 5 * prompts[:, :1], prompts, reference=True)  # another answer to the first prompt
        >>> metric.compute()["eigenvalues"]
        tensor([ 0.2711, -0.2711], dtype=torch.float64)
    """

    is_differentiable: ClassVar[bool] = False  # type: ignore[misc]
    higher_is_better: ClassVar[None] = None  # type: ignore[misc]
    full_state_update: ClassVar[bool] = False  # type: ignore[misc]

    output_gamma: Tensor
    prompt_gamma: Tensor

    def __init__(
        self,
        output_kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        eta: float = 1.0,
        num_modes: int = 10,
        num_features: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_prompt_split_arguments(output_kernel, prompt_kernel, eta, num_modes, num_features)
        self._kernels = (output_kernel or GaussianKernel(), prompt_kernel or GaussianKernel())
        self.eta = float(eta)
        self.num_modes = num_modes
        self.num_features = num_features
        self.seed = check_at_least("seed", seed, 0)
        self._shifts: dict[str, Tensor] | None = None
        self._map: tuple[torch.device, FeatureMap] | None = None
        for side in SIDES:
            if num_features is None:
                self.add_state(f"{side}_outputs", default=[], dist_reduce_fx="cat")
                self.add_state(f"{side}_prompts", default=[], dist_reduce_fx="cat")
                continue
            # scalars until the first batch gives them a shape; `products` is a packed triangle
            for name in ("count", "products", "feature_sum"):
                self.add_state(f"{side}_{name}", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        for name, kernel in zip(("output_gamma", "prompt_gamma"), self._kernels, strict=True):
            gamma = math.nan if kernel.gamma is None else kernel.gamma
            self.register_buffer(name, torch.tensor(gamma, dtype=torch.float64))

    @property
    def output_kernel(self) -> Kernel:
        """The outputs' kernel, with its gamma once that is known."""
        return _with_gamma(self._kernels[0], self.output_gamma)

    @property
    def prompt_kernel(self) -> Kernel:
        """The prompts' kernel, with its gamma once that is known."""
        return _with_gamma(self._kernels[1], self.prompt_gamma)

    def update(self, outputs: Tensor, prompts: Tensor, reference: bool) -> None:
        """Add outputs and their prompts to one side.

        Args:
            outputs: [N, D].
            prompts: embedded, row i belonging to output i [N, E].
            reference: which side.

        Raises:
            TypeError: if an input is no tensor of real numbers.
            ValueError: if they differ in length, or in dimension from those before, or are not finite.
        """
        x, t = check_pairs("outputs", outputs, "prompts", prompts, self._dims())
        x, t = x.detach(), t.detach()
        side = SIDES[check_bool("reference", reference)]
        if self.num_features is None:
            # new lists, since a compute group shares the old ones
            setattr(self, f"{side}_outputs", [*getattr(self, f"{side}_outputs"), x])
            setattr(self, f"{side}_prompts", [*getattr(self, f"{side}_prompts"), t])
            return
        if self._shifts is None:
            chosen = from_rank_zero(lambda: self._choose(x, t))
            self._keep_gammas(*chosen.pop("kernels"))
            self._shifts = chosen
        features = self._features()
        if getattr(self, f"{side}_products").ndim == 0:
            empty = torch.zeros(packed_size(features.size), dtype=torch.float64, device=x.device)
            setattr(self, f"{side}_products", empty)
        total = add_moments(getattr(self, f"{side}_products"), [self._pair_kernel().rows(x, t)], [features])
        setattr(self, f"{side}_feature_sum", getattr(self, f"{side}_feature_sum") + total)
        setattr(self, f"{side}_count", getattr(self, f"{side}_count") + len(x))

    def compute(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Return `eigenvalues`, the num_modes furthest from zero by falling value, and `total`: all float64.

        Positive eigenvalues are modes that the test side has and the reference lacks, negative ones the reverse;
        `total` is Σ λ log(S / λ) over all positive ones, S their sum.
        """
        modes = self._modes()
        return {"eigenvalues": modes.eigenvalues, "total": modes.total}

    def modes(self) -> PromptSplitModes:
        """Return the modes of all processes' samples with their residuals and the samples' scores.

        Where samples were not kept, `modes.score(outputs, prompts)` gives those of any samples.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            return self._modes()

    def forward(self, outputs: Tensor, prompts: Tensor, reference: bool) -> None:  # type: ignore[override]
        """Add a batch as `update` does. It has no value by itself, being of one side."""
        for side in SIDES if self.num_features is not None else ():
            # a compute group shares it, and `update` adds in place
            setattr(self, f"{side}_products", getattr(self, f"{side}_products").clone())
        self.update(outputs, prompts, reference=reference)

    def get_extra_state(self) -> dict[str, Tensor]:
        """Return the shifts that the first `update` fixed."""
        return self._fixed()

    def _fixed(self) -> dict[str, Any]:
        return self._shifts or {}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Take over the shifts that the first `update` of a saved metric fixed."""
        self._shifts = dict(state) or None

    def _modes(self) -> PromptSplitModes:
        if self.num_features is None:
            return self._modes_of_samples()
        covariances, means = [], []
        for side in SIDES:
            count = getattr(self, f"{side}_count")
            check_count(f"{side} samples", int(count), _CALL)
            features = self._features()
            covariances.append(unpack(getattr(self, f"{side}_products"), features.size) / count)
            means.append(getattr(self, f"{side}_feature_sum") / count)
        test, reference = covariances
        with full_precision():
            spectrum = by_covariances(test, reference, self.eta, torch.stack(means), features, self.num_modes)
            return split_modes(spectrum, 0, self.eta, self.num_modes, self._pair_kernel().rows)

    def _modes_of_samples(self) -> PromptSplitModes:
        kept = [getattr(self, f"{side}_{name}") for side in SIDES for name in ("outputs", "prompts")]
        for side, states in zip(SIDES, (kept[:2], kept[2:]), strict=True):
            check_count(f"{side} samples", sum(len(x) for x in states[0]), _CALL)
        samples = [dim_zero_cat(state) for state in kept]
        kernels = (
            resolved("output_kernel", self.output_kernel, samples[2]),
            resolved("prompt_kernel", self.prompt_kernel, samples[3]),
        )
        self._keep_gammas(*kernels)
        return prompt_split(
            *samples, output_kernel=kernels[0], prompt_kernel=kernels[1], eta=self.eta, num_modes=self.num_modes
        )

    def _choose(self, outputs: Tensor, prompts: Tensor) -> dict[str, Any]:
        """Fix what is open from the first samples."""
        kernel = PairKernel.of(outputs, prompts, self.output_kernel, self.prompt_kernel)
        kernels = {"kernels": (kernel.output_kernel, kernel.prompt_kernel)}
        return kernels | {"outputs": kernel.output_shift.cpu(), "prompts": kernel.prompt_shift.cpu()}

    def _pair_kernel(self) -> PairKernel:
        assert self._shifts is not None
        return PairKernel(self.output_kernel, self.prompt_kernel, self._shifts["outputs"], self._shifts["prompts"])

    def _features(self) -> FeatureMap:
        """Return the random features, drawn once."""
        assert self.num_features is not None
        if self._map is None or self._map[0] != self.device:
            drawn = self._pair_kernel().features(self.num_features, self.seed)
            self._map = (self.device, drawn.to(self.device))
        return self._map[1]

    def _dims(self) -> tuple[int, int] | None:
        """Return the dimensions of outputs and prompts, once they are known."""
        if self._shifts is not None:
            return len(self._shifts["outputs"]), len(self._shifts["prompts"])
        for side in SIDES if self.num_features is None else ():
            outputs, prompts = getattr(self, f"{side}_outputs"), getattr(self, f"{side}_prompts")
            if len(outputs):
                return outputs[0].shape[1], prompts[0].shape[1]
        return None

    def _keep_gammas(self, *kernels: Kernel) -> None:
        for gamma, kernel in zip((self.output_gamma, self.prompt_gamma), kernels, strict=True):
            if kernel.takes_width:
                gamma.fill_(kernel.width)


def _with_gamma(kernel: Kernel, gamma: Tensor) -> Kernel:
    return kernel if gamma.isnan() else type(kernel)(gamma=float(gamma))
