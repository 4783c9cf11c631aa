# SPDX-License-Identifier: Apache-2.0
"""Full precision for the arithmetic of a metric, independently of the user's settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

FUNCTIONS = ("exp", "expm1", "log", "sqrt", "sin", "cos")
"""Functions used by the package that PyTorch takes from Intel's MKL on the CPU."""


def _call_each_once() -> None:
    """Call each function of one number once, before threads do.

    MKL chooses its code at the first call. If several threads make it at once, one of them may use code of low
    precision once (https://github.com/pytorch/pytorch/issues/188792). Three of 375 fresh processes gave an MMD² with an
    error of 8e-6.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype, device="cpu")
        for name in FUNCTIONS:
            getattr(torch, name)(one)


_call_each_once()


@contextmanager
def full_precision() -> Iterator[None]:
    """Turn off autocast and reduced-precision float32 products (TF32, bfloat16) for the arithmetic of a metric.

    Example:
        >>> with torch.autocast("cpu", dtype=torch.bfloat16), full_precision():
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.float32
    """
    backends = _backends()
    before = [backend.fp32_precision for backend in backends] or [torch.get_float32_matmul_precision()]
    full = ["ieee"] * len(backends) or ["highest"]
    if before == full and not any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):  # in another such block
        yield
        return
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        try:
            _set_float32_precision(full)
            yield
        finally:
            _set_float32_precision(before)


def _backends() -> list[Any]:
    """Return the objects in which torch 2.9 and later keep the precision of each backend; none before."""
    # the older getter raises once a user has set one of these
    found = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    return [backend for backend in found if hasattr(backend, "fp32_precision")]


def _set_float32_precision(precision: list[str]) -> None:
    for backend, value in zip(_backends(), precision, strict=False):
        backend.fp32_precision = "none"  # the value of torch.backends.fp32_precision, also after later changes
        if backend.fp32_precision != value:
            backend.fp32_precision = value
    if not _backends():
        torch.set_float32_matmul_precision(precision[0])
