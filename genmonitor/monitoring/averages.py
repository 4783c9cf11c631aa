# SPDX-License-Identifier: Apache-2.0
"""Averaged weights that another library keeps, in the place of a network's own for one evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def averaged_weights(ema: Any, module: nn.Module) -> Iterator[None]:
    """Put averaged weights into the part of a module that they are of until the block ends, also where it fails.

    Args:
        ema: `EMAModel` of diffusers, `EMA` of ema_pytorch, `ModelEmaV3` of timm, `AveragedModel` of torch or whatever
            has the same methods or attributes; None for the module's own weights.
        module: that draws.

    Raises:
        TypeError: if it is none of these.
        ValueError: if no part of the module has weights of these shapes.

    Example:
        >>> import torch
        >>> network = nn.Linear(2, 1)
        >>> average = torch.optim.swa_utils.AveragedModel(network)
        >>> _ = network.weight.data.zero_()
        >>> with averaged_weights(average, network):
        ...     bool(network.weight.any())
        True
        >>> bool(network.weight.any())
        False
    """
    if ema is None:
        yield
        return
    if all(hasattr(ema, method) for method in ("store", "copy_to", "restore", "shadow_params")):  # diffusers
        parameters = list(_part_like(list(ema.shadow_params), module).parameters())
        ema.store(parameters)
        try:
            ema.copy_to(parameters)
            yield
        finally:
            ema.restore(parameters)
        return
    average = getattr(ema, "ema_model", getattr(ema, "module", None))  # ema_pytorch; timm and torch
    if not isinstance(average, nn.Module):
        raise TypeError(
            "Expected `ema` to be diffusers' EMAModel, ema_pytorch's EMA, timm's ModelEmaV3 or torch's AveragedModel, "
            f"but got {type(ema).__name__}. Give the averaged module in place of the network instead."
        )
    part = _part_like(list(average.parameters()), module)
    own = {name: value.clone() for name, value in part.state_dict().items()}
    try:
        part.load_state_dict(average.state_dict())
        yield
    finally:
        part.load_state_dict(own)


def _part_like(weights: Sequence[Tensor], module: nn.Module) -> nn.Module:
    """Return the outermost part of a module whose parameters have the shapes of some weights."""
    shapes = [weight.shape for weight in weights]
    for part in module.modules():
        if [parameter.shape for parameter in part.parameters()] == shapes:
            return part
    raise ValueError(
        f"Expected `ema` to average a network inside the one that draws, but none has its {len(shapes)} parameters. "
        "Give the averaged network as `module`."
    )
