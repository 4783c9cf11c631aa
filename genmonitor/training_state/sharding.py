# SPDX-License-Identifier: Apache-2.0
"""Models whose parameters are split over the processes, by `fully_shard` or tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch.distributed as dist
from torch import nn

SWEEP = "leave the monitor out and evaluate the consolidated checkpoints after the run: `genmonitor sweep`."
"""Advice for a sharded model that cannot be evaluated while it is trained."""
sampling_in_step: ContextVar[bool] = ContextVar("sampling_in_step", default=False)
"""True while all processes draw samples together."""


def sharded_parts(module: nn.Module) -> list[nn.Module]:
    """Return the parts that communicate when they are called, the same on all processes; none for a whole model.

    These are the parts split by `fully_shard` and, under tensor parallelism (recognized by the module's `device_mesh`),
    every layer with a part of a parameter.
    """
    parts = _fully_sharded(module)
    if tensor_parallel_size(module) > 1:
        known = {id(part) for part in parts}
        parts += [part for part in module.modules() if id(part) not in known and _has_distributed(part)]
    return parts


def tensor_parallel_size(module: nn.Module) -> int:
    """Return the number of consecutive processes that compute the same batch together."""
    mesh: Any = getattr(module, "device_mesh", None)
    names = () if mesh is None else mesh.mesh_dim_names or ()
    return mesh["tensor_parallel"].size() if "tensor_parallel" in names else 1


def gather(parts: Sequence[nn.Module], value: Any) -> list[Any]:
    """Return the values of all processes that share these parts; only this process's if there are no such parts."""
    if not parts:
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@contextmanager
def kept_sharded(module: nn.Module) -> Iterator[None]:
    """Keep parameters sharded, and let sharded parts run only while all processes sample.

    Raises:
        ValueError: If torch is too old to continue after an error in them.
        RuntimeError: If anything else calls such a part, for example an encoder. Other processes might not make the
            same calls, and this one would wait for them forever.
    """
    parts = sharded_parts(module)
    if any(hasattr(part, "reshard") and not hasattr(part, "reset_iter_state") for part in parts):
        raise ValueError(
            "Expected torch 2.13 or newer for a model that `fully_shard` splits: older ones cannot continue after an "
            f"error in sampling. Install a newer torch, or {SWEEP}"
        )

    def refuse(part: nn.Module, _: Any) -> None:
        if not sampling_in_step.get():
            raise RuntimeError(
                f"Expected the sharded parts of {type(module).__name__} to be used only to draw samples, but "
                f"{type(part).__name__} is called by something else in the evaluation. Give encoders and metrics a "
                "separate network, whole on every process."
            )

    reshard(parts)  # otherwise parameters gathered by the last forward pass of a validation stay
    hooks = [part.register_forward_pre_hook(refuse, prepend=True) for part in parts]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def reshard(parts: Sequence[Any]) -> None:
    """Free gathered parameters."""
    for part in parts:
        if hasattr(part, "reshard"):
            part.reshard()


def reset_after_error(parts: Sequence[Any]) -> None:
    """Let `fully_shard` forget a forward pass that ended with an error."""
    for part in parts:
        try:
            if hasattr(part, "reset_iter_state"):
                part.reset_iter_state()
        except (AttributeError, RuntimeError):  # of one that never ran, and of one inside another
            pass


def _fully_sharded(module: nn.Module) -> list[nn.Module]:
    if not (dist.is_available() and dist.is_initialized()):
        return []
    from torch.distributed.fsdp import FSDPModule

    return [part for part in module.modules() if isinstance(part, FSDPModule)]


def _has_distributed(part: nn.Module) -> bool:
    return any(hasattr(parameter, "to_local") for parameter in part.parameters(recurse=False))
