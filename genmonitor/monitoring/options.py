# SPDX-License-Identifier: Apache-2.0
"""Options of all monitors that affect no value, the device of an evaluation, and the handling of failed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

import torch
import torch.distributed as dist
from torch import nn

from genmonitor._validation import check_one_of
from genmonitor.distributed import Collective
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.images.batches import ImageKey
from genmonitor.images.sampler import Samples

OnError = Literal["warn", "raise"]
Log = Literal["main", "all"]

MAX_FAILURES = 3


class EvaluationOptions(TypedDict, total=False):
    """Options that every monitor takes by keyword, in a Trainer or in your own loop.

    Args:
        image_key: Position of the images in a batch: a key, an index or a callable; None, the default, to detect it.
        evaluate_on: "cpu" to move samples to the CPU and run metrics and encoders there, if training leaves no memory
            on its device. None, the default, for the device that trains, or the CPU if that is MPS, which has no
            float64.
        on_alert: Function called on rank zero with the text of each alert.
        on_error: "warn", the default, skips an evaluation that fails, and switches the monitor off after 3 in a row;
            "raise" lets it stop the run. A wrong configuration always raises: before the first training step of a
            Trainer, and at the first evaluation or in `fit` of a `LoopMonitor`.
        verbose: True, the default, to print the regions at the start, a line per evaluation and, with a Trainer, a
            table and the path of the report at the end. Warnings and alerts appear in any case.
        log: "main", the default, gives loggers the main values, at most 20; "all" gives them every value. The page,
            history.csv and `trainer.callback_metrics` have every value in any case.
    """

    image_key: ImageKey
    evaluate_on: str | torch.device | None
    on_alert: Callable[[str], Any] | None
    on_error: OnError
    verbose: bool
    log: Log


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an unknown keyword argument, naming the most similar one.

    Raises:
        TypeError: If there is an unknown argument.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1)
            advice = f"Did you mean {near[0]}=?" if near else f"It takes {', '.join(names)}."
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}. {advice}")


class FailurePolicy:
    """Counts failures in a row and switches the monitor off after too many.

    Args:
        on_error: "warn" skips an evaluation that fails, and switches the monitor off after 3 in a row; "raise" lets it
            stop the run.
    """

    def __init__(self, on_error: OnError = "warn") -> None:
        self.raises = check_one_of("on_error", on_error, ("warn", "raise")) == "raise"
        self.count = 0
        self.not_finite = False

    @property
    def switched_off(self) -> bool:
        """True if too many evaluations failed in a row to try another."""
        return self.count >= MAX_FAILURES

    def failed(self) -> bool:
        """Count a failure; return True if it switches the monitor off."""
        self.count += 1
        return self.count == MAX_FAILURES

    def found_not_finite(self) -> bool:
        """Record NaN or infinite samples; return True if the samples before had none.

        This is a finding about the generator, which may recover, so evaluations go on.
        """
        first, self.not_finite = not self.not_finite, True
        return first

    def try_again(self) -> None:
        """Begin another fit, in which a switched-off monitor tries again."""
        if self.switched_off:
            self.count = 0

    def reset(self) -> None:
        """Forget failures, after a success and in a new run."""
        self.count, self.not_finite = 0, False

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain Python."""
        return {"failures": self.count, "not_finite": self.not_finite}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.count, self.not_finite = state["failures"], state["not_finite"]


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
