# SPDX-License-Identifier: Apache-2.0
"""Averaged weights of other libraries, which replace those of a network for one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def averaged_weights(ema: Any, module: nn.Module, warn: Callable[[str], Any] = print) -> Iterator[None]:
    """Put averaged weights into the matching part of a module inside the block, and restore it also after errors.

    An average that has seen no weights yet equals the untrained network; the module then keeps its own weights.

    Args:
        ema: `EMAModel` of diffusers, `EMA` of ema_pytorch, `ModelEmaV3` of timm, `AveragedModel` of torch or an object
            with the same methods or attributes; None for the module's own weights.
        module: Module that draws.
        warn: Function that gets a line if the module keeps its own weights.

    Raises:
        TypeError: If it is none of these, or it is unknown if it has seen any weights.
        ValueError: If no part of the module has weights of these shapes, or several have.

    Example:
        >>> import torch
        >>> network = nn.Linear(2, 1)
        >>> average = torch.optim.swa_utils.AveragedModel(network)
        >>> average.update_parameters(network)
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
    average: Any = getattr(ema, "ema_model", getattr(ema, "module", None))  # ema_pytorch; timm and torch
    is_network = isinstance(average, nn.Module)
    if not is_network and not hasattr(ema, "shadow_params"):  # diffusers
        raise TypeError(
            "Expected `ema` to be diffusers' EMAModel, ema_pytorch's EMA, timm's ModelEmaV3 or torch's AveragedModel, "
            f"but got {type(ema).__name__}. Give the averaged module in place of the network instead."
        )
    weights = list(average.parameters() if is_network else ema.shadow_params)
    part = _part_like(weights, module)
    if not has_begun(ema):
        warn(f"{type(ema).__name__} has averaged no weights yet, so the network's own are evaluated until it has")
        yield
        return
    pairs: list[tuple[Tensor, Tensor]] = list(zip(weights, part.parameters(), strict=True))
    if is_network:
        pairs += zip(average.buffers(), part.buffers(), strict=True)
    with values_exchanged(pairs):
        yield


@contextmanager
def values_exchanged(pairs: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Put the first tensor of each pair into the second inside the block, and restore both afterwards.

    Tensors of one dtype and device are swapped, which needs no memory for a second set. Others are copied, since
    swapping would round them, for example a float32 average of a bfloat16 network.

    Args:
        pairs: Pairs of tensors of one shape.
    """
    alike = [(x, y) for x, y in pairs if (x.dtype, x.device) == (y.dtype, y.device)]
    copied = [(x, y, y.detach().clone()) for x, y in pairs if (x.dtype, x.device) != (y.dtype, y.device)]
    _swap(alike)
    for x, y, _ in copied:
        y.data.copy_(x.data)
    try:
        yield
    finally:
        _swap(alike)
        for _, y, own in copied:
            y.data.copy_(own)


def _swap(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for x, y in pairs:
        value = x.detach().clone()
        x.data.copy_(y.data)
        y.data.copy_(value)


def has_begun(ema: Any) -> bool:
    """Return True if an average has seen weights of a training; before, it is a copy of the untrained network.

    Raises:
        TypeError: If it is unknown.
    """
    counts = {name: getattr(ema, name, None) for name in ("n_averaged", "optimization_step", "step")}
    known = {name: int(count) for name, count in counts.items() if isinstance(count, (int, Tensor))}
    if known:  # torch; diffusers; ema_pytorch, which copies the weights at every `update_every`-th step until it begins
        name, count = next(iter(known.items()))
        return count >= (int(getattr(ema, "update_every", 1)) if name == "step" else 1)
    if any(base.__name__.startswith("ModelEma") for base in type(ema).__mro__):
        return True  # timm, which takes the weights at every update from the first on
    raise TypeError(
        f"Expected `ema` to count its updates, as `n_averaged` or `step`, but {type(ema).__name__} has no such number, "
        "so it is unknown if it holds trained weights. Give the averaged module in place of the network instead."
    )


def _part_like(weights: Sequence[Tensor], module: nn.Module) -> nn.Module:
    """Return the part of a module whose parameters have the shapes of some weights.

    Raises:
        ValueError: If there is none, or several with other parameters, of which any could be the averaged one.
    """
    shapes = [weight.shape for weight in weights]
    found: dict[tuple[int, ...], nn.Module] = {}
    for part in module.modules():
        parameters = list(part.parameters())
        if [parameter.shape for parameter in parameters] == shapes:
            found.setdefault(tuple(map(id, parameters)), part)
    found.pop(tuple(map(id, weights)), None)  # the average itself, where the module holds it
    if len(found) == 1:
        return next(iter(found.values()))
    several = f"{len(found)} have" if found else "none has"
    raise ValueError(
        f"Expected `ema` to average a network inside those that draw, but {several} its {len(shapes)} parameters. "
        "Give the averaged network alone as `module`."
    )
