# SPDX-License-Identifier: Apache-2.0
"""Bases of all metrics: states own their memory and keep their precision, and a sync works without samples."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar
from zlib import crc32

import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat
from torchmetrics.utilities.distributed import gather_all_tensors

from genmonitor._processes import Kind, agreed_kinds, several_processes
from genmonitor._validation import check_bool, plain
from genmonitor.kernels import Kernel


class GenerativeMetric(Metric):
    """A torchmetrics.Metric whose states own their memory and keep their dtype, and which also syncs without data.

    Args:
        kwargs: Keyword arguments of `torchmetrics.Metric`.
    """

    full_state_update: bool = False
    batches_have_values: ClassVar[bool] = True
    """False where `forward` returns None, since one batch alone has no value."""
    of_every_batch: ClassVar[tuple[str, ...]] = ()
    """States that the value of a batch includes besides the batch."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"distributed_available_fn": several_processes, **kwargs})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value; None for one of real samples, which has no value.

        The value carries the gradient of the batch if `is_differentiable`. It covers this process alone or, with
        `dist_sync_on_step`, the batches of all processes, which must then call it together.

        Args:
            args: Arguments of `update`.
            kwargs: Arguments of `update`.
        """
        self.update(*args, **kwargs)
        self._forward_cache = None
        given = inspect.signature(type(self).update).bind(self, *args, **kwargs).arguments
        if not self.batches_have_values or given.get("real") or given.get("reference"):
            return None
        with_gradient = torch.is_grad_enabled() and bool(self.is_differentiable)
        with torch.set_grad_enabled(with_gradient), self._state_of_a_batch():
            type(self).update(self, *args, **kwargs)  # not torchmetrics' wrapper, which cuts the graph
            if self.compute_on_cpu:
                self._move_list_states_to_cpu()
            with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.dist_sync_on_step):
                self._forward_cache = type(self).compute(self)
        return self._forward_cache

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the samples of another metric of this kind.

        Args:
            incoming_state: The metric, or its `metric_state`.
        """
        if isinstance(incoming_state, dict):
            incoming_state = {name: _copied(state) for name, state in incoming_state.items()}
        super().merge_state(incoming_state)
        self._computed = None
        self._update_count += max(1, getattr(incoming_state, "_update_count", 1))

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Return `compute` with values that a caller may change: those kept for the next call are others."""
        kept = super()._wrap_compute(compute)

        @wraps(kept)
        def computed(*args: Any, **kwargs: Any) -> Any:
            return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, kept(*args, **kwargs))

        return computed

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw one value, or several in order.

        Args:
            val: What `compute` or `forward` returned, or a list of such values; None for `compute()`.
            ax: A matplotlib axis; None for a new figure.

        Returns:
            The figure and its axis.
        """
        return self._plot(val, ax)

    def _keep(self, state: str, rows: Tensor, given: Tensor) -> None:
        """Append rows to a state that is a list, in memory of their own.

        Args:
            state: Name of the state.
            rows: Rows, checked and converted.
            given: Tensor that `update` was given, whose owner may write into it later.
        """
        if not torch.is_grad_enabled():  # with gradients it is the batch of one `forward`
            rows = owned(rows, given)
        # a new list, since the metrics of a compute group share the old one
        setattr(self, state, [*getattr(self, state), rows])

    def _share_states_if(self, key: object) -> None:
        """Let metrics of one compute group share their states only if their keys agree; None agrees with nothing."""
        number = math.nan if key is None else crc32(repr(key).encode())
        self.add_state("group_key", default=torch.tensor(number, dtype=torch.float64), dist_reduce_fx="max")

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        """Follow a module to its device but not to its dtype: bfloat16 would change gammas and lose sums."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take over a saved state, in memory of its own."""
        super()._load_from_state_dict(state_dict, prefix, *args)
        for name in self._defaults:
            setattr(self, name, _copied(getattr(self, name)))
        self._computed = None

    @contextmanager
    def sync_context(self, *args: Any, should_unsync: bool = True, **kwargs: Any) -> Iterator[None]:  # type: ignore[override]
        """Hold the states of all processes inside the block, and this process's own again after it.

        Unlike that of torchmetrics, it also restores after an error. Otherwise states that survive `reset` would stay
        those of all processes.

        Args:
            args: Arguments of `torchmetrics.Metric.sync`.
            should_unsync: True to restore this process's own states.
            kwargs: Arguments of `torchmetrics.Metric.sync`.
        """
        self.sync(*args, **kwargs)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def _synced(self) -> AbstractContextManager[None]:
        """Hold the states of all processes inside the block, as `compute` does."""
        return self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        )

    @contextmanager
    def _state_of_a_batch(self) -> Iterator[None]:
        """Start from empty states inside the block, and restore the metric's own after it, also after an error."""
        own = self._own_states()
        for name, default in self._defaults.items():
            if name not in self.of_every_batch:
                setattr(self, name, default.to(self.device, copy=True) if isinstance(default, Tensor) else [])
        try:
            yield
        finally:
            self._set_states(own)

    def _sync_dist(self, dist_sync_fn: Any = gather_all_tensors, process_group: Any = None) -> None:
        """Gather the states, once all processes agree on shape and dtype; after an error they are as before."""
        own = self._own_states()
        try:
            if several_processes():
                kinds = {name: _kind(state) for name, state in own.items()}
                for name, kind in agreed_kinds(kinds, process_group or self.process_group).items():
                    if kind is not None:
                        setattr(self, name, self._of_kind(own[name], kind))
            super()._sync_dist(dist_sync_fn, process_group)
        except Exception:
            self._set_states(own)
            raise

    def _own_states(self) -> dict[str, Tensor | list[Tensor]]:
        return {name: getattr(self, name) for name in self._defaults}

    def _set_states(self, states: dict[str, Tensor | list[Tensor]]) -> None:
        for name, state in states.items():
            setattr(self, name, state)

    def _of_kind(self, state: Tensor | list[Tensor], kind: Kind) -> Tensor | list[Tensor]:
        """Return a state in the shape and dtype of all processes; without samples it has no rows, or is the default."""
        shape, dtype = kind
        if isinstance(state, Tensor):
            return state.to(dtype) if state.ndim else state.to(dtype).expand(shape).clone()
        return [rows.to(dtype) for rows in state] or [torch.empty(0, *shape, dtype=dtype, device=self.device)]


class KernelMetric(GenerativeMetric):
    """A metric with kernels, whose gammas are buffers: they are saved, move with the module and survive `reset`.

    NaN stands for a gamma that is not yet known, or that the kernel does not have.

    Args:
        kwargs: Keyword arguments of `torchmetrics.Metric`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._kernels: dict[str, Kernel] = {}

    def _add_kernel(self, gamma: str, kernel: Kernel) -> None:
        """Register a kernel under the name of the buffer that holds its gamma."""
        self._kernels[gamma] = kernel
        value = math.nan if kernel.gamma is None else kernel.gamma
        with torch.inference_mode(False):  # else it could not be filled outside of such a mode
            self.register_buffer(gamma, torch.tensor(value, dtype=torch.float64))

    def _kernel(self, gamma: str) -> Kernel:
        """Return a kernel, with its gamma once that is known."""
        kernel = self._kernels[gamma]
        value = float(getattr(self, gamma)) if kernel.takes_gamma else math.nan
        return kernel if math.isnan(value) else replace(kernel, gamma=value)

    def _resolved(self, gamma: str, x: Tensor) -> Kernel:
        """Return a kernel; a gamma that is not given is taken from samples [N, D] and kept."""
        kernel = self._kernel(gamma).resolved(x)
        self._keep_gamma(gamma, kernel)
        return kernel

    def _keep_gamma(self, gamma: str, kernel: Kernel) -> None:
        """Make the gamma of a resolved kernel part of the state."""
        if kernel.takes_gamma:
            with torch.inference_mode(False):  # else it could not be loaded outside of such a mode
                setattr(self, gamma, torch.full_like(getattr(self, gamma), kernel.resolved_gamma))

    def _own_states(self) -> dict[str, Tensor | list[Tensor]]:
        """Return the gammas too: one that is open stays open after a batch."""
        return super()._own_states() | {gamma: getattr(self, gamma) for gamma in self._kernels}


def is_left_out(real: bool, reference: bool = False) -> bool:
    """Return True for a batch of the other side, which a metric of one side leaves out.

    A MetricCollection passes a keyword only to metrics that take it. Without `real` in its signature, a metric of one
    side would take real samples for generated ones.
    """
    return check_bool("real", real) or check_bool("reference", reference)


def owned(x: Tensor, given: Tensor) -> Tensor:
    """Return a detached tensor that owns its memory, copied only if it shares the memory of the given tensor."""
    x = x.detach()
    shared = x.untyped_storage().data_ptr() == plain(given).untyped_storage().data_ptr()
    return x.clone(memory_format=torch.contiguous_format) if shared else x


def joined(name: str, batches: list[Tensor] | Tensor, call: str) -> Tensor:
    """Return the batches of a state as one tensor, without a copy if there is a single batch.

    Args:
        name: Name of the samples in an error.
        batches: Batches of samples.
        call: Name of the call that adds samples, for an error.
    """
    if not len(batches):
        raise ValueError(f"Expected {name} before `compute`, but got none. Call `{call}`.")
    return batches[0] if isinstance(batches, list) and len(batches) == 1 else dim_zero_cat(batches)


def _copied(state: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
    return state.detach().clone() if isinstance(state, Tensor) else [rows.detach().clone() for rows in state]


def _kind(state: Tensor | list[Tensor]) -> Kind | None:
    """Return the shape and the widest dtype of a state, of one row if it is a list; None if it has no samples."""
    if isinstance(state, Tensor):
        return (tuple(state.shape), state.dtype) if state.ndim else None
    if not len(state):
        return None
    dtype = state[0].dtype
    for rows in state[1:]:
        dtype = torch.promote_types(dtype, rows.dtype)
    return tuple(state[0].shape[1:]), dtype
