# SPDX-License-Identifier: Apache-2.0
"""The product kernel of output-prompt pairs, exactly and by random features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.kernels.base import Kernel, check_kernel
from genmonitor.kernels.builtin import GaussianKernel
from genmonitor.kernels.covariance import FeatureMap, exact_features


@dataclass(frozen=True)
class PairKernel:
    """The kernel k((x, t), (y, u)) = k_X(x, y) k_T(t, u) of outputs x, y and their prompts t, u.

    A pair is one row: the values of the output, then those of the prompt. Those of a kernel with exact features are
    replaced by these.

    Args:
        output_kernel: Kernel of the outputs, its gamma set.
        prompt_kernel: Kernel of the prompts, its gamma set.
        dims: Numbers of values of an output and of a prompt.
    """

    output_kernel: Kernel
    prompt_kernel: Kernel
    dims: tuple[int, int]

    @classmethod
    def of(
        cls, outputs: Tensor, prompts: Tensor, output_kernel: Kernel | None, prompt_kernel: Kernel | None
    ) -> PairKernel:
        """Make the kernel from data, with gammas by the median heuristic if not given.

        Args:
            outputs: Outputs [N, D].
            prompts: Prompts [N, E].
            output_kernel: Kernel of outputs; None for a Gaussian.
            prompt_kernel: Kernel of prompts; None for a Gaussian.
        """
        kernels = (resolved("output_kernel", output_kernel, outputs), resolved("prompt_kernel", prompt_kernel, prompts))
        return cls(*kernels, (outputs.shape[1], prompts.shape[1]))

    def rows(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        """Return pairs [N, D + E] of outputs [N, D] and prompts [N, E], on the device of the outputs."""
        sides = (self.output_kernel, outputs), (self.prompt_kernel, prompts)
        parts = [kernel.features(x) if kernel.explicit_features == "exact" else x for kernel, x in sides]
        return torch.cat([part.to(outputs.device) for part in parts], 1)

    def _parts(self, rows: Tensor) -> list[tuple[Kernel, Tensor]]:
        """Return both kernels, each with its columns of the rows."""
        return list(zip((self.output_kernel, self.prompt_kernel), rows.split(self._sizes, dim=1), strict=True))

    @property
    def _sizes(self) -> list[int]:
        """Numbers of columns of an output and of a prompt in a row."""
        sides = zip((self.output_kernel, self.prompt_kernel), self.dims, strict=True)
        return [exact_features(k, dim).size if k.explicit_features == "exact" else dim for k, dim in sides]

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of rows a [N, D + E] and b [M, D + E], in the current precision."""
        of_outputs, of_prompts = (
            x @ y.T if kernel.explicit_features == "exact" else kernel.gram(*kernel.prepared(x, y))
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
            projection = torch.cat([of_outputs(), of_prompts()], 1)
            return FeatureMap(num_features, self.output_kernel, projection, factor=self._sizes[0])
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
