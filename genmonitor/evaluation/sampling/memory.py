# SPDX-License-Identifier: Apache-2.0
"""Which errors mean that memory ran out, and what can be done about it."""

from __future__ import annotations

import gc

import torch

SIGNS = ("out of memory", "can't allocate memory", "CUDNN_STATUS_NOT_SUPPORTED")
"""What CUDA and MPS, the CPU's allocator, and cuDNN say."""


def is_out_of_memory(error: Exception) -> bool:
    """Say whether an error means that there was not enough memory.

    Example:
        >>> is_out_of_memory(RuntimeError("MPS backend out of memory"))
        True
    """
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def free_memory() -> None:
    """Give back what nobody holds any more."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
