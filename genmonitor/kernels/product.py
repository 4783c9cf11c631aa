# SPDX-License-Identifier: Apache-2.0
"""The product kernel of output-prompt pairs, exactly and by random features."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genmonitor.kernels import CosineKernel, GaussianKernel, Kernel, LaplacianKernel
from genmonitor.kernels.covariance import FeatureMap
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.distances import holds_distances
from genmonitor.linalg.feature_maps import fourier_frequencies, unit_sphere
from genmonitor.linalg.precision import full_precision

WAVES = 16
"""Random functions in a probe: so many that it is nearly normal, and its squares vary little more."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ProjectedPairs(FeatureMap):
    """Random features of the product of two cosine kernels: (P x) ⊙ (Q t) / sqrt(R), P and Q standard normal.

    Attributes:
        output_projection: P [R, D].
        prompt_projection: Q [R, E].
    """

    output_projection: Tensor
    prompt_projection: Tensor

    def to(self, device: torch.device) -> ProjectedPairs:
        """Return the map on a device."""
        projections = self.output_projection.to(device), self.prompt_projection.to(device)
        return replace(self, output_projection=projections[0], prompt_projection=projections[1])

    def __call__(self, x: Tensor) -> Tensor:
        """Map rows [N, D + E] of unit outputs and unit prompts to [N, R]."""
        p, q = self.output_projection.to(x), self.prompt_projection.to(x)
        d = p.shape[1]
        with full_precision():
            return (x[:, :d] @ p.T) * (x[:, d:] @ q.T) / math.sqrt(self.size)


@dataclass(frozen=True)
class PairKernel:
    """The kernel k((x, t), (y, u)) = k_X(x, y) k_T(t, u) of outputs x, y and their prompts t, u.

    A pair is one row: the output's values, then the prompt's, shifted near zero. Where both kernels decay with the same
    distance, the rows are scaled by the widths, so that one distance between whole rows is enough.

    Args:
        output_kernel: of the outputs, its width set.
        prompt_kernel: of the prompts, its width set.
        output_shift: subtracted from outputs [D].
        prompt_shift: subtracted from prompts [E].
    """

    output_kernel: Kernel
    prompt_kernel: Kernel
    output_shift: Tensor
    prompt_shift: Tensor

    @classmethod
    def of(
        cls, outputs: Tensor, prompts: Tensor, output_kernel: Kernel | None, prompt_kernel: Kernel | None
    ) -> PairKernel:
        """Make the kernel from data: open widths by the median heuristic, shifts as means.

        Args:
            outputs: [N, D].
            prompts: [N, E].
            output_kernel: None for a Gaussian.
            prompt_kernel: None for a Gaussian.
        """
        kernels = (
            resolved("output_kernel", output_kernel, outputs),
            resolved("prompt_kernel", prompt_kernel, prompts),
        )
        return cls(*kernels, _shift(kernels[0], outputs), _shift(kernels[1], prompts))

    def rows(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        """Return pairs [N, D + E] of outputs [N, D] and prompts [N, E], on the device of the outputs.

        They have the outputs' dtype, or float64 where that loses distances.
        """
        rows = self._rows(outputs, prompts)
        return rows if self._holds(rows) else self._rows(outputs.double(), prompts.double())

    def _rows(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        parts = []
        sides = ((outputs, self.output_shift, self.output_kernel), (prompts, self.prompt_shift, self.prompt_kernel))
        for values, shift, kernel in sides:
            part = unit_sphere(values) if isinstance(kernel, CosineKernel) else values - shift.to(values)
            if self._whole is not None:
                part = part.mul_(math.sqrt(kernel.width) if isinstance(kernel, GaussianKernel) else kernel.width)
            parts.append(part.to(outputs))
        return torch.cat(parts, 1)

    def _holds(self, rows: Tensor) -> bool:
        """Tell whether the kernels lose nothing of rows in their dtype; there is nothing beyond float64."""
        d = len(self.output_shift)
        whole, parts = self._whole, ((self.output_kernel, rows[:, :d]), (self.prompt_kernel, rows[:, d:]))
        gaussian = [(k, part) for k, part in ([(whole, rows)] if whole else parts) if isinstance(k, GaussianKernel)]
        return rows.dtype == torch.float64 or all(holds_distances(part, kernel.gamma) for kernel, part in gaussian)

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of rows a [N, D + E] and b [M, D + E], at the precision in force."""
        if self._whole is not None:
            return self._whole.gram(a, b)
        d = len(self.output_shift)
        return _gram(self.output_kernel, a[:, :d], b[:, :d]) * _gram(self.prompt_kernel, a[:, d:], b[:, d:])

    def features(self, num_features: int, seed: int) -> FeatureMap:
        """Draw random features: a map from rows [N, D + E] to [N, R] whose products are the kernel in expectation.

        Two Gaussian kernels take `num_features` frequencies of the whole row, R = 2 · num_features, and every feature
        vector has norm 1. Two cosine kernels take the product of a normal projection of the output and one of the
        prompt, R = num_features. The same arguments give the same features.

        References:
            Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models", arXiv
                2602.04009, Eq. 4.
        """
        d, e = len(self.output_shift), len(self.prompt_shift)
        if self._whole is not None:
            return FeatureMap(2 * num_features, fourier_frequencies(d + e, num_features, gamma=1.0, seed=seed))
        # gamma = 1/2 makes the frequencies standard normal; one draw for both, so that they are independent
        normal = fourier_frequencies(d + e, num_features, gamma=0.5, seed=seed)
        return ProjectedPairs(size=num_features, output_projection=normal[:, :d], prompt_projection=normal[:, d:])

    def probes(self, rows: Tensor, count: int) -> Tensor | None:
        """Evaluate random functions, always the same, at rows [N, D + E]: [N, count], their covariance the Gram matrix.

        Each is a sum of `WAVES` products of a wave of the output and one of the prompt; None where a kernel has none.
        """
        generator, d = torch.Generator().manual_seed(0), len(self.output_shift)
        parts = [(self._whole, rows)] if self._whole else []
        parts = parts or [(self.output_kernel, rows[:, :d]), (self.prompt_kernel, rows[:, d:])]
        drawn = [_waves(kernel, part.shape[1], WAVES * count, generator) for kernel, part in parts]
        waves = [wave for wave in drawn if wave is not None]
        if len(waves) < len(parts):
            return None
        values = []
        for a, b in row_blocks(len(rows), 4 * rows.element_size(), columns=WAVES * count):
            product = rows.new_ones(())
            for wave, (_, part) in zip(waves, parts, strict=True):
                product = product * wave(part[a:b])
            values.append(product.unflatten(1, (count, WAVES)).sum(2, dtype=torch.float64) / math.sqrt(WAVES))
        return torch.cat(values)

    @property
    def _whole(self) -> Kernel | None:
        """The kernel of whole rows, where there is one."""
        for kind in (GaussianKernel, LaplacianKernel):
            if isinstance(self.output_kernel, kind) and isinstance(self.prompt_kernel, kind):
                return kind(gamma=1.0)
        return None


def resolved(name: str, kernel: Kernel | None, x: Tensor) -> Kernel:
    """Return a kernel, Gaussian for None, with its width resolved from samples; an error names the kernel."""
    try:
        return (kernel or GaussianKernel()).resolved(x)
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from None


def feature_size(output_kernel: Kernel | None, num_features: int) -> int:
    """Return the length of a pair's feature vector: Gaussian kernels take a cosine and a sine of each frequency.

    Example:
        >>> feature_size(None, 100), feature_size(CosineKernel(), 100)
        (200, 100)
    """
    return num_features if isinstance(output_kernel, CosineKernel) else 2 * num_features


def _gram(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    return a @ b.T if isinstance(kernel, CosineKernel) else kernel.gram(a, b)  # rows are on the sphere already


def _waves(kernel: Kernel, dim: int, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor] | None:
    """Draw random functions r, [N, dim] to [N, count], with E[r(x) r(y)] = k(x, y); None for an unknown kernel."""
    normal = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    if type(kernel) is CosineKernel:
        return lambda x: x @ normal.to(x).T  # rows are on the sphere already
    if type(kernel) is GaussianKernel:
        frequencies = math.sqrt(2 * kernel.width) * normal
    elif type(kernel) is LaplacianKernel:  # a quotient of two normal numbers has the Cauchy distribution
        others = torch.randn(count, dim, generator=generator, dtype=torch.float64)
        frequencies = kernel.width * normal / others
    else:
        return None
    phases = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    return lambda x: math.sqrt(2) * torch.cos(x @ frequencies.to(x).T + phases.to(x))


def _shift(kernel: Kernel, values: Tensor) -> Tensor:
    """Return the mean of samples [N, D], or zeros where some lie so far out that it would lose the others."""
    mean = values.detach().mean(0)
    gamma = kernel.gamma if isinstance(kernel, GaussianKernel) else None
    return mean if holds_distances(values.detach().double() - mean, gamma) else torch.zeros_like(mean)
