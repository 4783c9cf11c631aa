# SPDX-License-Identifier: Apache-2.0
"""SampledModel: a generator as a sampler sees it, in a Trainer or a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class SampledModel:
    """A generator as a sampler sees it.

    Attributes:
        module: Module whose method draws, or the argument of a `sample_fn` of (module, n).
        device: Device of its samples.
        sample_fn: Function of a number or of prompts that draws instead of the module's method.
        precision: Function that returns the context of the precision in which it computes.
        shared_by: Owner of monitors that share samples, such as their Trainer; None without sharing.
        in_loop: True if it comes from `LoopMonitor.evaluate` instead of a Trainer.
    """

    module: Any
    device: torch.device
    sample_fn: Callable[[Any], Tensor] | None = None
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext
    shared_by: Any = None
    in_loop: bool = False

    @classmethod
    def of(cls, sample: Any, module: nn.Module | Sequence[nn.Module] | None = None) -> SampledModel:
        """Make it from the objects of a training loop.

        Args:
            sample: A Module with a method that draws, such a method, or a function of a number or of prompts.
            module: Networks that a function draws with, one or several.

        Raises:
            TypeError: If `sample` cannot draw.
            ValueError: If it is a function and `module` is missing.

        Example:
            >>> network = nn.Linear(2, 2)
            >>> SampledModel.of(lambda n: network(torch.randn(n, 2)), network).device
            device(type='cpu')
        """
        if isinstance(sample, nn.Module):
            inside = _inside(sample)
            return cls(inside, _device(inside), in_loop=True)
        if not callable(sample):
            raise TypeError(
                "Expected `sample` to be a function from n to n images, or a Module with a method `sample(n)`, but got "
                f"{type(sample).__name__}."
            )
        networks = getattr(sample, "__self__", None) if module is None else module
        if isinstance(networks, Sequence) and all(isinstance(part, nn.Module) for part in networks):
            networks = nn.ModuleList(networks)
        if not isinstance(networks, nn.Module):
            raise ValueError(
                f"Expected `module`, the network or networks that `sample` draws with, but got {networks!r}. Their "
                "modes, BatchNorm statistics and gradients are restored after each evaluation: give all of them."
            )
        return cls(networks, _device(networks), sample, in_loop=True)


def _inside(module: nn.Module) -> nn.Module:
    """Return the module wrapped by Fabric or DistributedDataParallel, whose forward passes may wait for others."""
    while type(module).__name__ in ("DistributedDataParallel", "_FabricModule"):
        module = module.module  # type: ignore[assignment]
    return module


def _device(module: nn.Module) -> torch.device:
    return next((x.device for x in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def suggested_call(module: nn.Module, called: str) -> str:
    """Return an expression of n that draws n images from a module without a method for it, or an empty text.

    Its network has one of the names that public training scripts give it, and its first layer with weights gives the
    shape of the noise.

    Example:
        >>> module = nn.Module()
        >>> module.decoder = nn.Sequential(nn.Linear(16, 64), nn.Unflatten(1, (1, 8, 8)))
        >>> suggested_call(module, called="m")
        'm.decoder(torch.randn(n, 16))'
    """
    usual = ("generator", "netG", "G", "gen", "decoder")
    name = next((name for name in usual if isinstance(getattr(module, name, None), nn.Module)), "")
    network = getattr(module, name) if name else module
    first = next((layer for layer in network.modules() if list(layer.parameters(recurse=False))), None)
    if isinstance(first, nn.Linear):
        shape = f"n, {first.in_features}"
    elif isinstance(first, nn.ConvTranspose2d):
        shape = f"n, {first.in_channels}, 1, 1"
    else:
        return ""
    call = f"{called}.{name}" if name else called
    device = f", device={called}.device" if hasattr(module, "device") else ""
    return f"{call}(torch.randn({shape}{device}))"
