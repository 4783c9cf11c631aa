# SPDX-License-Identifier: Apache-2.0
"""PromptSplit as a stateful metric."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from genmonitor._processes import from_rank_zero
from genmonitor._validation import check_at_least, check_bool, check_count, check_pairs
from genmonitor.functional.joint_spectrum import by_covariances
from genmonitor.functional.promptsplit import (
    PromptSplitModes,
    check_prompt_split_arguments,
    constant_prompts,
    prompt_split,
    split_modes,
)
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.covariance import FeatureMap
from genmonitor.kernels.product import PairKernel, resolved
from genmonitor.linalg.precision import full_precision
from genmonitor.metrics._spectral import MomentMetric

SIDES = ("test", "reference")


class PromptSplit(MomentMetric):
    """Joint modes of outputs and prompts that a model has and a reference lacks, and the reverse.

    The exact form keeps every sample. With `num_features` the metric streams: its state is the covariance of the random
    features of each side, which does not grow with the number of samples. The first `update` then fixes the gammas and
    a shift. Under torch.distributed every process must call it, and all use those of rank zero.

    Args:
        output_kernel: Kernel of outputs; None for a Gaussian. A gamma that is not given is resolved at the first
            `compute`, from the first 1000 reference samples of all processes. A streaming metric resolves it from the
            samples of the first `update`. It stays across `reset`.
        prompt_kernel: Kernel of prompts, likewise.
        eta: Weight of the reference side, positive.
        num_modes: Number of modes of each side.
        num_features: Number of random features of the kernels; None for the exact form.
        seed: Seed of the random features.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range or the random features would not fit in memory; by `update` and
            `compute` as `functional.prompt_split` does, which also documents the values.

    References:
        Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models",
            arXiv 2602.04009, Eq. 2-4, Proposition 1, Algorithm 2.
        Zhang, Li and Farnia, "An Interpretable Evaluation of Entropy-based Novelty of Generative Models",
            arXiv 2402.17287, for KEN.

    Example:
        >>> import torch
        >>> from genmonitor import PromptSplit
        >>> prompts = torch.eye(3).repeat(4, 1)
        >>> outputs = torch.linspace(0, 1, 12)[:, None]
        >>> metric = PromptSplit(num_modes=1)
        >>> metric.update(outputs, prompts, reference=False)
        >>> metric.update(outputs + 5 * prompts[:, :1], prompts, reference=True)  # another answer to the first prompt
        >>> metric.compute()["eigenvalues"]
        tensor([ 0.2711, -0.2711], dtype=torch.float64)
    """

    is_differentiable: bool = False
    higher_is_better: None = None
    batches_have_values = False

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
        self.eta = float(eta)
        self.num_modes = num_modes
        self.num_features = num_features
        self.seed = check_at_least("seed", seed, 0)
        # of outputs and prompts; they give the random features, together with gammas and seed
        self.add_state("dims", default=torch.zeros(2, dtype=torch.int64), dist_reduce_fx="max")
        self._add_kernel("output_gamma", output_kernel or GaussianKernel())
        self._add_kernel("prompt_gamma", prompt_kernel or GaussianKernel())
        for side in SIDES:
            if num_features is None:
                self.add_state(f"{side}_outputs", default=[], dist_reduce_fx="cat")
                self.add_state(f"{side}_prompts", default=[], dist_reduce_fx="cat")
            else:
                self._add_moment_states(f"{side}_")
        if num_features is not None:
            self._share_sums_of([self.output_kernel, self.prompt_kernel])

    @property
    def output_kernel(self) -> Kernel:
        """The kernel of outputs, with its gamma once that is known."""
        return self._kernel("output_gamma")

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once that is known."""
        return self._kernel("prompt_gamma")

    def update(self, outputs: Tensor, prompts: Tensor | None = None, *, reference: bool) -> None:
        """Add outputs and their prompts to one side.

        Args:
            outputs: Embedded outputs [N, D].
            prompts: Embedded prompts [N, E], row i of output i; None in every call for KEN, which has no prompts.
            reference: True for the reference, False for the test side.

        Raises:
            TypeError: If an input is not a tensor of real numbers.
            ValueError: If they differ in length, or in dimension from those before, or are not finite.
        """
        if prompts is None:
            prompts, kernel = constant_prompts("outputs", outputs, self.prompt_kernel)
            self._keep_gamma("prompt_gamma", kernel)
        x, t = check_pairs("outputs", outputs, "prompts", prompts, self._dims())
        side = SIDES[check_bool("reference", reference)]
        self.dims = torch.tensor([x.shape[1], t.shape[1]], device=self.device)
        if self.num_features is None:
            self._keep(f"{side}_outputs", x, outputs)
            self._keep(f"{side}_prompts", t, prompts)
            return
        if any(kernel.takes_gamma and kernel.gamma is None for kernel in (self.output_kernel, self.prompt_kernel)):
            self._keep_gammas(*from_rank_zero(lambda: self._resolved_by(x, t)))
        rows = self._pair_kernel().rows(x.double(), t.double())
        self._add_moments([rows], [self._features(self.num_features)], f"{side}_")

    def compute(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Return `eigenvalues` [2 `num_modes`] and `total`, both float64.

        The eigenvalues are in falling order. The largest positive ones come first: modes that the test side has and the
        reference lacks. The lowest negative ones are the reverse. Missing ones are 0. `total` is Σ λ log(S / λ) over
        all positive ones with sum S, see `functional.prompt_split`.
        """
        modes = self._modes()
        return {"eigenvalues": modes.eigenvalues, "total": modes.total}

    def modes(self) -> PromptSplitModes:
        """Return the modes of all processes' samples with their residuals and the samples' scores.

        If samples are not kept, `modes.score(outputs, prompts)` scores any samples.
        """
        with self._synced():
            return self._modes()

    def _modes(self) -> PromptSplitModes:
        for side in SIDES:
            check_count(f"{side} samples", self._count(side), "update(outputs, prompts, reference=...)")
        return self._modes_of_samples() if self.num_features is None else self._modes_of_moments(self.num_features)

    def _modes_of_samples(self) -> PromptSplitModes:
        x, t, y, u = (
            dim_zero_cat(getattr(self, f"{side}_{name}")) for side in SIDES for name in ("outputs", "prompts")
        )
        output_kernel, prompt_kernel = self._resolved_by(y, u)
        self._keep_gammas(output_kernel, prompt_kernel)
        return prompt_split(
            x, t, y, u, output_kernel=output_kernel, prompt_kernel=prompt_kernel, eta=self.eta, num_modes=self.num_modes
        )

    def _modes_of_moments(self, num_features: int) -> PromptSplitModes:
        (test, test_mean), (reference, reference_mean) = (self._mean_moments(f"{side}_") for side in SIDES)
        means = torch.stack([test_mean, reference_mean])
        features = self._features(num_features)
        with full_precision():
            spectrum = by_covariances(test, reference, self.eta, features, self.num_modes, means)
            return split_modes(spectrum, 0, self.eta, self.num_modes, self._pair_kernel().rows)

    def _count(self, side: str) -> int:
        if self.num_features is None:
            return sum(len(x) for x in getattr(self, f"{side}_outputs"))
        return int(getattr(self, f"{side}_count"))

    def _resolved_by(self, outputs: Tensor, prompts: Tensor) -> tuple[Kernel, Kernel]:
        """Return both kernels; a gamma that is not given is taken from the samples."""
        output_kernel = resolved("output_kernel", self.output_kernel, outputs)
        return output_kernel, resolved("prompt_kernel", self.prompt_kernel, prompts)

    def _keep_gammas(self, output_kernel: Kernel, prompt_kernel: Kernel) -> None:
        self._keep_gamma("output_gamma", output_kernel)
        self._keep_gamma("prompt_gamma", prompt_kernel)

    def _pair_kernel(self) -> PairKernel:
        """Return the kernel of pairs."""
        kernels = self.output_kernel, self.prompt_kernel
        self._check_own(not any(kernel.takes_gamma and kernel.gamma is None for kernel in kernels))
        outputs, prompts = self.dims.tolist()
        return PairKernel(*kernels, (outputs, prompts))

    def _features(self, num_features: int) -> FeatureMap:
        """Return the random features of pairs, which are drawn once."""
        pairs = self._pair_kernel()
        return self._feature_map("pairs", self._dims(), lambda: pairs.features(num_features, self.seed))

    def _dims(self) -> tuple[int, int] | None:
        """Return the dimensions of outputs and prompts, once they are known."""
        outputs, prompts = self.dims.tolist()
        return (outputs, prompts) if outputs else None
