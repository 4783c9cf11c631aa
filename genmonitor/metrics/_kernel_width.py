# SPDX-License-Identifier: Apache-2.0
"""Kernels of a metric: a width that is not given is taken from data once and is part of the state from then on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from genmonitor.kernels import Kernel
from genmonitor.metrics._base import GenerativeMetric


class KernelMetric(GenerativeMetric):
    """A metric with kernels, each of whose gammas is a buffer: it is saved, moves with the module and survives `reset`.

    NaN stands for a gamma that is still open, or that the kernel does not have.

    Args:
        kwargs: those of torchmetrics.Metric.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._kernels: dict[str, Kernel] = {}

    def _add_kernel(self, gamma: str, kernel: Kernel) -> None:
        """Register a kernel under the name of the buffer that holds its gamma."""
        self._kernels[gamma] = kernel
        value = math.nan if kernel.gamma is None else kernel.gamma
        self.register_buffer(gamma, torch.tensor(value, dtype=torch.float64))

    def _kernel(self, gamma: str) -> Kernel:
        """Return a kernel, with its gamma once that is known."""
        kernel, value = self._kernels[gamma], float(getattr(self, gamma))
        return kernel if math.isnan(value) else replace(kernel, gamma=value)

    def _resolved(self, gamma: str, x: Tensor) -> Kernel:
        """Return a kernel; an open gamma is taken from samples [N, D] and kept."""
        kernel = self._kernel(gamma).resolved(x)
        self._keep_gamma(gamma, kernel)
        return kernel

    def _keep_gamma(self, gamma: str, kernel: Kernel) -> None:
        """Make the gamma of a resolved kernel part of the state."""
        if kernel.takes_width:
            getattr(self, gamma).fill_(kernel.width)

    @contextmanager
    def _gammas_preserved(self) -> Iterator[None]:
        """Restore the gammas on exit, also after an exception: one that is open stays open."""
        before = {gamma: getattr(self, gamma).clone() for gamma in self._kernels}
        try:
            yield
        finally:
            for gamma, value in before.items():
                getattr(self, gamma).copy_(value)
