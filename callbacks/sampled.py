# SPDX-License-Identifier: Apache-2.0
"""How a monitor gets its samples: this process's share of the one global set, drawn once for all monitors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from genmonitor.callbacks import shared_samples
from genmonitor.callbacks.framework import Callback
from genmonitor.callbacks.prompts import PromptedSampleFn, Prompts, prompted_sampler
from genmonitor.callbacks.sampling import SampleFn, draw, sampler


class Sampled(Callback):
    """Part of `GenerativeMonitor`, whose arguments these are: draws samples."""

    n_samples: int
    prompts: Prompts | None = None
    sample_fn: SampleFn | PromptedSampleFn | None
    sample_batch_size: int
    seed: int
    _sample_shape: tuple[int, ...] = ()
    _ranges: Sequence[tuple[int, int]] = ()
    """From where to where samples were drawn together, for the manifest."""

    def samples_of(self, pl_module: Any) -> Callable[[list[int]], Tensor]:
        """Return the function from indices of the global set to images; raise ValueError where there is no way."""
        prompts = self.prompts
        if prompts is None:
            sample = sampler(self.sample_fn, pl_module)
            return lambda indices: sample(len(indices))
        of_prompts = prompted_sampler(self.sample_fn, pl_module)
        return lambda indices: of_prompts(prompts.of(indices, pl_module.device))

    def draw(self, trainer: Any, pl_module: Any, indices: Iterable[int]) -> Tensor:
        """Generate the samples of these indices of the one global set, [len(indices), C, H, W]."""
        indices = list(indices)
        sample = self.samples_of(pl_module)
        size = self.sample_batch_size
        batches = [indices[i : i + size] for i in range(0, len(indices), size)]
        if not batches:
            return torch.empty(0, *self._sample_shape, device=pl_module.device)
        with trainer.precision_plugin.forward_context():
            samples = draw(sample, self.progress(trainer, batches, "sampling"), self.seed)
        samples = samples.to(pl_module.device)  # where the processes talk to each other
        self._sample_shape = tuple(samples.shape[1:])
        return samples

    def share(self, trainer: Any, n: int | None = None) -> range:
        """Return which indices of a global set of n are this process's: consecutive, in the order of the processes."""
        n, rank, world = n or self.n_samples, trainer.global_rank, trainer.world_size
        return range(n * rank // world, n * (rank + 1) // world)

    def progress(self, trainer: Any, over: Iterable[Any], doing: str) -> Iterator[Any]:
        """Show a bar that names itself while going over something, where the Trainer shows one and somebody looks."""
        shown = trainer.is_global_zero and trainer.progress_bar_callback is not None
        # None: in a terminal or a notebook, not in a file, where each step of the bar would be a line
        return iter(tqdm(over, desc=f"{type(self).__name__}: {doing}", leave=False, disable=None if shown else True))

    def _samples(self, trainer: Any, pl_module: Any) -> Tensor:
        """Return this process's share of the samples, drawn by itself or by a monitor before it in this check."""
        indices = list(self.share(trainer))
        self._ranges = [(0, len(indices))]
        if len(monitors(trainer)) < 2 or not indices:
            return self.draw(trainer, pl_module, indices)
        request = (*self._request(), shared_samples.fingerprint(pl_module))
        draw_missing = partial(self.draw, trainer, pl_module)
        samples = shared_samples.draw_once(trainer, request, indices, draw_missing)
        self._ranges = shared_samples.ranges(trainer, request)
        self._sample_shape = tuple(samples.shape[1:])
        return samples

    def _request(self) -> tuple[Hashable, ...]:
        """Return what a sample depends on beside its index and the weights."""
        way = self.sample_fn if isinstance(self.sample_fn, Hashable) else id(self.sample_fn)
        prompts = None if self.prompts is None else tuple(self.prompts.values)
        return type(self).samples_of, type(self).draw, way, prompts, self.seed, self.sample_batch_size

    def _let_samples_go(self, trainer: Any) -> None:
        if monitors(trainer)[-1] is self:
            shared_samples.forget(trainer)


def monitors(trainer: Any) -> list[Sampled]:
    """Return the monitors of a Trainer, in its order."""
    return [callback for callback in trainer.callbacks if isinstance(callback, Sampled)]
