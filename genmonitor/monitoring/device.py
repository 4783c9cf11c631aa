# SPDX-License-Identifier: Apache-2.0
"""Device of an evaluation: the device that trains, or the CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from genmonitor.distributed import Collective
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.images.sampler import Samples


def check_evaluate_on(given: str | torch.device | None) -> torch.device | None:
    """Return the CPU if evaluations are to compute there; None for the device that trains.

    Raises:
        ValueError: If it is another device.

    Example:
        >>> check_evaluate_on("cpu")
        device(type='cpu')
    """
    if given is None:
        return None
    if str(given) != "cpu":
        raise ValueError(
            f"Expected `evaluate_on` to be 'cpu', where training leaves no memory, or None, but got {str(given)!r}. "
            "Leave it out to evaluate where samples are drawn; those of MPS, which has no float64, go to the CPU."
        )
    return torch.device("cpu")


def evaluation_device(asked: torch.device | None, training: torch.device, comm: Collective) -> torch.device:
    """Return the device to evaluate samples on that are drawn on another.

    Args:
        asked: CPU; None for the device that trains, or the CPU if that is MPS, which lacks float64.
        training: Device on which samples are drawn.
        comm: Processes that evaluate together.

    Raises:
        ValueError: If the processes cannot communicate from there.
    """
    if asked is None:
        return torch.device("cpu") if training.type == "mps" else training
    if comm.world_size > 1 and training.type != "cpu":
        reached = [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
        if "cpu" not in reached:
            raise ValueError(
                "Expected processes that can communicate from the CPU for `evaluate_on`='cpu', but theirs are set up "
                f"for {', '.join(reached)} alone. Give the process group, in Lightning by "
                "DDPStrategy(process_group_backend=...), the backend 'cpu:gloo,cuda:nccl'."
            )
    return asked


def check_apart(evaluator: Evaluator[Any], module: nn.Module, device: torch.device, training: torch.device) -> None:
    """Refuse to move a network that is part of the trained one to another device."""
    trained = {id(parameter) for parameter in module.parameters()}
    for name, network in evaluator.moved_networks().items() if device != training else ():
        if any(id(parameter) in trained for parameter in network.parameters()):
            raise ValueError(
                f"Expected `{name}` to be apart from the trained module, to be moved to {device}, but they share "
                "parameters. Give copy.deepcopy of it, or leave out `evaluate_on`."
            )


def moved(samples: Samples, device: torch.device) -> Samples:
    """Return samples on a device."""
    return Samples(samples.images.to(device), samples.indices.to(device))
