# SPDX-License-Identifier: Apache-2.0
"""Where an evaluation computes: on the device that trains, or on another."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from genmonitor.evaluation.distributed import Collective
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.results import Samples


def check_evaluate_on(given: str | torch.device | None) -> torch.device | None:
    """Return a device that evaluations can compute on; None for that which trains.

    Raises:
        ValueError: if it is the name of no device, or of one without float64.

    Example:
        >>> check_evaluate_on("cuda:1")
        device(type='cuda', index=1)
    """
    if given is None:
        return None
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"Expected `evaluate_on` to be a device such as 'cpu' or 'cuda:1', or None, but got {given!r}."
        ) from error
    if device.type == "mps":
        raise ValueError(
            "Expected `evaluate_on` to be a device with float64, which the metrics need, but MPS has none. Leave it "
            "out: samples that are drawn on MPS are evaluated on the CPU."
        )
    return device


def evaluation_device(asked: torch.device | None, training: torch.device, comm: Collective) -> torch.device:
    """Return where to evaluate samples that are drawn on a device.

    Args:
        asked: what the user asked for; None for that which trains, or the CPU if that is MPS, which lacks float64.
        training: where samples are drawn.
        comm: the processes that evaluate together.

    Raises:
        ValueError: if there is no such device, or the processes cannot talk to each other from there.
    """
    if asked is None:
        return torch.device("cpu") if training.type == "mps" else training
    if asked == torch.device(training.type):  # of several GPUs that which trains
        return training
    try:
        torch.empty(0, device=asked)
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        raise ValueError(f"Expected `evaluate_on` to be an available device, but got {asked}: {said}") from error
    if comm.world_size > 1 and asked != training:
        _check_reached(asked)
    return asked


def _check_reached(device: torch.device) -> None:
    """Refuse a device from which processes cannot gather, or which all of them would share."""
    reached = [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
    if device.type != "cpu":
        raise ValueError(
            f"Expected `evaluate_on`='cpu' or None with several processes, but got {device}, which all would share."
        )
    if device.type not in reached:
        raise ValueError(
            f"Expected processes that can communicate from the CPU for `evaluate_on`='cpu', but theirs are set "
            f"up for {', '.join(reached)} alone. Give the process group, in Lightning by "
            "DDPStrategy(process_group_backend=...), the backend 'cpu:gloo,cuda:nccl'."
        )


def check_apart(evaluator: Evaluator[Any], module: nn.Module, device: torch.device, training: torch.device) -> None:
    """Refuse to move a network to another device that is a part of the one that trains."""
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
