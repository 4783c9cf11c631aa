# SPDX-License-Identifier: Apache-2.0
"""Drawing from a sharded model, whose parts all processes must run at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from genmonitor.distributed import FailedElsewhereError
from genmonitor.training_state.sharding import (
    gather,
    reset_after_error,
    reshard,
    sampling_in_step,
    sharded_parts,
    tensor_parallel_size,
)

FAILED = -1


class Lockstep:
    """Makes all processes draw equally many batches of equal size, and stop together; no effect on a whole model.

    Before a sharded part gathers its parameters, the processes agree that each is about to run the same part. A process
    that failed, or whose model takes a different number of steps, reports it then; otherwise the others would wait for
    it forever. This costs a small message per part and call.

    Args:
        module: Model that draws the samples.
        device: Device of the communication between the processes.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._parts = sharded_parts(module)
        self._together = tensor_parallel_size(module)
        self._device = device
        self._parted = False

    def share(self, indices: list[int]) -> list[int]:
        """Return the samples that this process must draw: its own, those drawn jointly with others, and fillers.

        Every process calls it and gets the same number.
        """
        if not self._parts:
            return indices
        wanted, size = self.gather(indices), self._together
        groups = [sorted(set(chain(*wanted[i : i + size]))) for i in range(0, len(wanted), size)]
        own = groups[dist.get_rank() // size]
        return own + [0] * (max(map(len, groups)) - len(own))

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes that must stay in step."""
        return gather(self._parts, value)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Run the block on all processes, or raise on all; gathered parameters are freed.

        Raises:
            FailedElsewhereError: If only other processes failed.
            RuntimeError: If the processes ran different parts of the model, or not equally often.
        """
        if not self._parts:
            yield
            return
        self._parted, token = False, sampling_in_step.set(True)
        hooks = [self._meet_before(number, part) for number, part in enumerate(self._parts)]
        try:
            yield
            self._meet(len(self._parts))
        except Exception:
            if not self._parted:
                self._meet(FAILED)
            reset_after_error(self._parts)
            raise
        finally:
            for hook in hooks:
                hook.remove()
            sampling_in_step.reset(token)
            reshard(self._parts)

    def _meet_before(self, number: int, part: nn.Module) -> Any:
        # compiled code would communicate when it is traced, and never again
        meet = torch.compiler.disable(lambda *_: self._meet(number))
        return part.register_forward_pre_hook(meet, prepend=True)

    def _meet(self, step: int) -> None:
        """Announce the next step of this process, and stop if another process does something else."""
        extremes = torch.tensor([step, -step], device=self._device)
        dist.all_reduce(extremes, dist.ReduceOp.MAX)
        last, first = int(extremes[0]), -int(extremes[1])
        self._parted = first != last or first == FAILED
        if not self._parted or step == FAILED:
            return
        if first == FAILED:
            raise FailedElsewhereError("Another process failed, so this one stops here too.")
        raise RuntimeError(
            "Expected a sampler that runs the parts of a sharded model equally often and in the same order for any "
            "samples, but the processes diverged. Take a fixed number of steps, or leave the monitor out and evaluate "
            "the consolidated checkpoints after the run: `genmonitor sweep`."
        )
