# SPDX-License-Identifier: Apache-2.0
"""The precision of a metric's arithmetic: full, or for float32 matrix products fast where the factors allow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

FUNCTIONS = ("exp", "expm1", "log", "sqrt", "sin", "cos")
"""What the package calls of the functions that PyTorch takes from Intel's MKL on the CPU."""


def _call_each_once() -> None:
    """Call each function of one number, here and now.

    MKL chooses its code at the first call. If several threads make that at once, one of them may take code of low
    precision, that one time (https://github.com/pytorch/pytorch/issues/188792): three
    of 375 fresh processes gave an MMD² that was off by 8e-6.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype, device="cpu")
        for name in FUNCTIONS:
            getattr(torch, name)(one)


_call_each_once()


@contextmanager
def full_precision() -> Iterator[None]:
    """Turn off autocast and the reduced-precision float32 products (TF32, bfloat16) for a metric's arithmetic.

    Example:
        >>> with torch.autocast("cpu", dtype=torch.bfloat16), full_precision():
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.float32
    """
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False), _precision("ieee", "ieee"):
        yield


@contextmanager
def fast_products() -> Iterator[None]:
    """Let float32 products round their factors to TF32 or bfloat16 where the hardware is faster with these.

    For factors that bfloat16 holds exactly (`rounded_at_random`) nothing but the speed changes: sums stay float32.
    """
    with _precision("tf32", "bf16"):
        yield


def rounded_at_random(x: Tensor, seed: int) -> Tensor:
    """Round to values that bfloat16 holds, up or down with the probability that makes the mean exact.

    Rounding to nearest would be off the same way for all equal numbers, so that the errors of a product would add up.

    Args:
        x: [..., N] float32.
        seed: of the N random numbers, which all rows share.

    Returns:
        [..., N] float32, each entry off by less than 2⁻⁷ of its size.

    Example:
        >>> rounded_at_random(torch.full((8,), 1 + 2**-9), seed=1).unique()
        tensor([1.0000, 1.0078])
    """
    generator = torch.Generator().manual_seed(seed)
    dropped = torch.randint(0, 2**16, x.shape[-1:], dtype=torch.int32, generator=generator).to(x.device)
    return (x.view(torch.int32) + dropped).bitwise_and_(-(2**16)).view(torch.float32)


@contextmanager
def _precision(cuda: str, cpu: str) -> Iterator[None]:
    backends = _backends()
    before = [backend.fp32_precision for backend in backends] or [torch.get_float32_matmul_precision()]
    try:
        _set_float32_precision([cuda, cpu] if backends else ["highest" if cpu == "ieee" else "medium"])
        yield
    finally:
        _set_float32_precision(before)


def _backends() -> list[Any]:
    """Return where torch 2.9 and later keep the precision of each backend; none before."""
    # the getter of before raises once a user has set one of these
    found = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    return [backend for backend in found if hasattr(backend, "fp32_precision")]


def _set_float32_precision(precision: list[str]) -> None:
    for backend, value in zip(_backends(), precision, strict=False):
        backend.fp32_precision = "none"  # what torch.backends.fp32_precision says, now and after a change of it
        if backend.fp32_precision != value:
            backend.fp32_precision = value
    if not _backends():
        torch.set_float32_matmul_precision(precision[0])
