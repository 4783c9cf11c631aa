# SPDX-License-Identifier: Apache-2.0
"""How spread samples are: one minus the mean of a kernel over their pairs, with each sample's part in it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_features, check_min_samples
from genmonitor.kernels import Kernel
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.sums import float64_sum


class Dispersion(NamedTuple):
    """How spread samples are.

    Attributes:
        value: one minus the mean kernel of two different samples: 0 where all are the same, float64.
        influence: of each sample on it [N], of mean 0: by how much a unit of its weight changes the value.
    """

    value: Tensor
    influence: Tensor

    @property
    def standard_error(self) -> Tensor:
        """The jackknife's standard error of the value."""
        return (self.influence.var() / len(self.influence)).sqrt()


def kernel_dispersion(x: Tensor, kernel: Kernel) -> Dispersion:
    """Measure how spread samples are, without bias, with the influence of each sample.

    The value is that of the kernel of two samples, 1 - E k(X, X'), a U-statistic: it does not grow with their number.
    With the cosine kernel it is half the mean squared distance of samples of length one. Influences are the
    jackknife's, (N - 1) times what the value loses without a sample, as in `mmd_influence`.

    Args:
        x: samples [N, D]; N at least 3.
        kernel: with its gamma set.

    Returns:
        The value, in [0, 1] for a kernel in [0, 1] and up to 1 + 1 / (N - 1) for the cosine, and the influences.

    Raises:
        TypeError: if x is no tensor of real numbers.
        ValueError: if the samples are fewer than 3, not finite, or the kernel has no gamma.

    References:
        Efron and Stein, "The Jackknife Estimate of Variance", Annals of Statistics 1981.

    Example:
        >>> from genmonitor.kernels import CosineKernel
        >>> found = kernel_dispersion(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), CosineKernel())
        >>> round(float(found.value), 4), [round(x, 4) for x in found.influence.tolist()]
        (0.6667, [-0.6667, -0.6667, 1.3333])
    """
    check_min_samples("x", check_features("x", x), 3)
    n = len(x)
    with torch.no_grad(), full_precision():
        left, right = kernel.prepared(x, x)
        rows = torch.cat([_sums(kernel, left[a:b], right, a) for a, b in row_blocks(n, 3 * 8, columns=n)])
    return Dispersion(rows.mean() / (n - 1), 2 * (rows - rows.mean()) / (n - 2))


def _sums(kernel: Kernel, x: Tensor, y: Tensor, start: int) -> Tensor:
    """Sum one minus the kernel over the other samples: those of x are rows `start` and on of y."""
    apart = 1 - kernel.gram(x, y)
    apart[:, start : start + len(x)].fill_diagonal_(0)  # rounding gives a sample a distance from itself
    return float64_sum(apart, 1)
