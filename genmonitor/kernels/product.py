# SPDX-License-Identifier: Apache-2.0
"""The product kernel of output-prompt pairs, exactly and by random features."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.kernels.base import Kernel, check_kernel
from genmonitor.kernels.builtin import GaussianKernel
from genmonitor.kernels.covariance import FeatureMap, exact_features
from genmonitor.linalg.precision import full_precision


@dataclass(frozen=True, eq=False, kw_only=True)
class ProjectedPairs(FeatureMap):
    """Random features of the product of two kernels with exact features x and t: (P x) ⊙ (Q t) / sqrt(R).

    P and Q are standard normal.

    Attributes:
        output_projection: Projection P [R, D].
        prompt_projection: Projection Q [R, E].
    """

    output_projection: Tensor
    prompt_projection: Tensor

    def to(self, device: torch.device) -> ProjectedPairs:
        """Return the map on a device."""
        projections = self.output_projection.to(device), self.prompt_projection.to(device)
        return replace(self, output_projection=projections[0], prompt_projection=projections[1])

    def __call__(self, x: Tensor) -> Tensor:
        """Map rows [N, D + E] of features of outputs and of prompts to [N, R]."""
        p, q = self.output_projection.to(x), self.prompt_projection.to(x)
        d = p.shape[1]
        with full_precision():
            return (x[:, :d] @ p.T) * (x[:, d:] @ q.T) / math.sqrt(self.size)


@dataclass(frozen=True)
class PairKernel:
    """The kernel k((x, t), (y, u)) = k_X(x, y) k_T(t, u) of outputs x, y and their prompts t, u.

    A pair is one row: the values of the output, then those of the prompt. They are shifted near zero for a
    shift-invariant kernel, and replaced by the exact features of a kernel that has them.

    Args:
        output_kernel: Kernel of the outputs, its gamma set.
        prompt_kernel: Kernel of the prompts, its gamma set.
        output_shift: Vector to subtract from outputs [D].
        prompt_shift: Vector to subtract from prompts [E].
    """

    output_kernel: Kernel
    prompt_kernel: Kernel
    output_shift: Tensor
    prompt_shift: Tensor

    @classmethod
    def of(
        cls, outputs: Tensor, prompts: Tensor, output_kernel: Kernel | None, prompt_kernel: Kernel | None
    ) -> PairKernel:
        """Make the kernel from data, with gammas by the median heuristic if not given, and means as shifts.

        Args:
            outputs: Outputs [N, D].
            prompts: Prompts [N, E].
            output_kernel: Kernel of outputs; None for a Gaussian.
            prompt_kernel: Kernel of prompts; None for a Gaussian.
        """
        kernels = (resolved("output_kernel", output_kernel, outputs), resolved("prompt_kernel", prompt_kernel, prompts))
        return cls(*kernels, _shift(kernels[0], outputs), _shift(kernels[1], prompts))

    def rows(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        """Return pairs [N, D + E] of outputs [N, D] and prompts [N, E], on the device of the outputs.

        They have the dtype of the outputs, or float64 if that loses distances.
        """
        rows = self._rows(outputs, prompts)
        return rows if self._holds(rows) else self._rows(outputs.double(), prompts.double())

    def _rows(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        parts = []
        sides = ((outputs, self.output_shift, self.output_kernel), (prompts, self.prompt_shift, self.prompt_kernel))
        for values, shift, kernel in sides:
            exact = kernel.explicit_features == "exact"
            part = kernel.features(values) if exact else values - shift.to(values)
            parts.append(part.to(outputs))
        return torch.cat(parts, 1)

    def _parts(self, rows: Tensor) -> list[tuple[Kernel, Tensor]]:
        """Return both kernels, each with its columns of the rows."""
        return list(zip((self.output_kernel, self.prompt_kernel), rows.split(self._sizes, dim=1), strict=True))

    @property
    def _sizes(self) -> list[int]:
        """Numbers of columns of an output and of a prompt in a row."""
        sides = ((self.output_kernel, len(self.output_shift)), (self.prompt_kernel, len(self.prompt_shift)))
        return [exact_features(k, dim).size if k.explicit_features == "exact" else dim for k, dim in sides]

    def _holds(self, rows: Tensor) -> bool:
        """Return True if the dtype of rows is precise enough for the kernels, which float64 always is."""
        parts = self._parts(rows)
        return rows.dtype == torch.float64 or all(k.holds(part) for k, part in parts if k.explicit_features != "exact")

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of rows a [N, D + E] and b [M, D + E], in the current precision."""
        of_outputs, of_prompts = (
            x @ y.T if kernel.explicit_features == "exact" else kernel.gram(x, y)
            for (kernel, x), (_, y) in zip(self._parts(a), self._parts(b), strict=True)
        )
        return of_outputs * of_prompts

    def features(self, num_features: int, seed: int) -> FeatureMap:
        """Draw random features: a map from rows [N, D + E] to [N, R] whose products are the kernel in expectation.

        Two kernels with random features use `num_features` frequencies of the whole row, so that R = 2 · `num_features`
        and every feature vector has norm 1. Two kernels with exact features use products of a normal projection of the
        output's features and one of the prompt's, so that R = `num_features`. The same arguments give the same
        features.

        References:
            Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models", arXiv
                2602.04009, Eq. 4.
        """
        of_outputs, of_prompts = (self._normal(side, num_features, seed) for side in (0, 1))
        if self.output_kernel.explicit_features == "exact":
            projections = {"output_projection": of_outputs(), "prompt_projection": of_prompts()}
            return ProjectedPairs(size=num_features, kernel=self.output_kernel, **projections)
        frequencies = [self.output_kernel.frequencies(of_outputs), self.prompt_kernel.frequencies(of_prompts)]
        return FeatureMap(2 * num_features, self.output_kernel, torch.cat(frequencies, 1))

    def _normal(self, side: int, count: int, seed: int) -> Callable[[], Tensor]:
        """Return a function that draws normal numbers of one side, as its columns of a joint draw."""
        sizes, generator = self._sizes, torch.Generator().manual_seed(seed)

        def draw() -> Tensor:
            both = torch.randn(count, sum(sizes), generator=generator, dtype=torch.float32)
            return both.split(sizes, dim=1)[side]

        return draw


def resolved(name: str, kernel: Kernel | None, x: Tensor) -> Kernel:
    """Return a kernel, Gaussian for None, with its gamma resolved from samples; errors name the kernel."""
    try:
        return (kernel or GaussianKernel()).resolved(x)
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from None


def feature_size(output_kernel: Kernel | None, num_features: int) -> int:
    """Return the number of features of a pair: a cosine and a sine for each frequency, or one product.

    Example:
        >>> feature_size(None, 100)
        200
    """
    return num_features * (1 if (output_kernel or GaussianKernel()).explicit_features == "exact" else 2)


def _shift(kernel: Kernel, values: Tensor) -> Tensor:
    """Return the mean of samples [N, D], or zeros if subtracting it would lose samples because of extreme ones."""
    mean = values.detach().mean(0)
    near = values.detach().double() - mean
    return mean if kernel.shift_invariant and kernel.holds(near) else torch.zeros_like(mean)


def check_pair_kernels(
    output_kernel: Kernel | None, prompt_kernel: Kernel | None, num_features: int | None = None
) -> None:
    """Refuse arguments that are not kernels, and random features of a product of kernels without them."""
    check_kernel("output_kernel", output_kernel)
    check_kernel("prompt_kernel", prompt_kernel)
    if num_features is None:
        return
    check_at_least("num_features", num_features, 1)
    kernels = output_kernel or GaussianKernel(), prompt_kernel or GaussianKernel()
    if {kernel.explicit_features for kernel in kernels} not in ({"exact"}, {"random"}):
        names = [type(kernel).__name__ for kernel in kernels]
        raise ValueError(
            "Expected kernels whose product has random features with `num_features`, such as Gaussian ones, or two "
            f"cosine kernels, but got {names[0]} for outputs and {names[1]} for prompts. Leave `num_features` out."
        )
