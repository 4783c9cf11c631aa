# SPDX-License-Identifier: Apache-2.0
"""Bases of all metrics: full precision, a plot, and a sync that a process without data survives."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from genmonitor._formatting import short
from genmonitor.kernels import Kernel

_T = TypeVar("_T")


class GenerativeMetric(Metric):
    """A torchmetrics.Metric whose states keep their dtype, and which syncs even where a process has no data.

    Args:
        kwargs: those of torchmetrics.Metric.
    """

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw one value, or several in order.

        Args:
            val: what `compute` or `forward` returned, or a list of such values; None for `compute()`.
            ax: a matplotlib axis; None for a new figure.

        Returns:
            The figure and its axis.
        """
        return self._plot(val, ax)

    def extra_repr(self) -> str:
        """Return the values of the last `compute`, nothing before it."""
        return ", ".join(f"{name}={short(value)}" for name, value in self._last_values().items())

    def _repr_html_(self) -> str:
        """Return the values of the last `compute` for a notebook, on the map of the regions where there is one."""
        from genmonitor._html import columns_html, heading_html, map_html, values_html

        values, partition = self._last_values(), getattr(self, "partition", None)
        if not values:
            return heading_html(type(self).__name__, "before `compute`")
        table = values_html(values, None if partition is None else partition.regions())
        body = table if partition is None else columns_html(map_html(partition.labels), table)
        return heading_html(type(self).__name__) + body

    def _last_values(self) -> dict[str, Any]:
        found = self._computed
        return {} if found is None else dict(found) if isinstance(found, dict) else {"value": found}

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        """Follow a module to its device but not to its dtype: in bfloat16 a gamma is another gamma, a sum is lost."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)

    @contextmanager
    def sync_context(self, *args: Any, should_unsync: bool = True, **kwargs: Any) -> Iterator[None]:  # type: ignore[override]
        """Hold the states of all processes inside the block, and this process's own again after it.

        Unlike torchmetrics' own, also after an error: otherwise what survives `reset` would stay everybody's.

        Args:
            args: those of torchmetrics.Metric.sync.
            should_unsync: whether to restore this process's own states.
            kwargs: those of torchmetrics.Metric.sync.
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

    def _synced_on_step(self) -> AbstractContextManager[None]:
        """Hold the states of all processes inside the block if `dist_sync_on_step` is set, as `forward` does."""
        return self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.dist_sync_on_step)

    @contextmanager
    def _batch_state(self, **states: Tensor | list[Tensor]) -> Iterator[None]:
        """Hold the state of a single batch inside the block, and the metric's own again after it, also after an error.

        Args:
            states: those of the batch; all others have their defaults.
        """
        own = {name: getattr(self, name) for name in self._defaults}
        for name, default in self._defaults.items():
            empty: Tensor | list[Tensor] = default.to(self.device, copy=True) if isinstance(default, Tensor) else []
            setattr(self, name, states.get(name, empty))
        try:
            yield
        finally:
            for name, state in own.items():
                setattr(self, name, state)

    def _sync_dist(self, dist_sync_fn: Any = gather_all_tensors, process_group: Any = None) -> None:
        """Gather the states; a process without samples joins with none of the others' shape and dtype."""
        group = process_group or self.process_group
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            own = {name: _kind(getattr(self, name)) for name in self._defaults}
            kinds: list[Any] = [None] * torch.distributed.get_world_size(group)
            torch.distributed.all_gather_object(kinds, own, group)
            for name, kind in own.items():
                known = next((other[name] for other in kinds if other[name] is not None), None)
                if kind is None and known is not None:
                    setattr(self, name, self._nothing_of(name, *known))
        super()._sync_dist(dist_sync_fn, process_group)

    def _nothing_of(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | list[Tensor]:
        """Return a state without samples: no rows, or a scalar in the shape that the first samples give it."""
        state = getattr(self, name)
        if isinstance(state, Tensor):
            return state.expand(shape).clone()
        return [torch.empty(0, *shape, dtype=dtype, device=self.device)]


class KernelMetric(GenerativeMetric):
    """A metric with kernels, each of whose gammas is a buffer: it is saved, moves with the module and survives `reset`.

    NaN stands for a gamma that is still open, or that the kernel does not have.

    Args:
        kwargs: those of torchmetrics.Metric.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._kernels: dict[str, Kernel] = {}

    def _add_kernel(self, gamma: str, kernel: Kernel) -> None:
        """Register a kernel under the name of the buffer that holds its gamma."""
        self._kernels[gamma] = kernel
        value = math.nan if kernel.gamma is None else kernel.gamma
        self.register_buffer(gamma, torch.tensor(value, dtype=torch.float64))

    def _kernel(self, gamma: str) -> Kernel:
        """Return a kernel, with its gamma once that is known."""
        kernel = self._kernels[gamma]
        value = float(getattr(self, gamma)) if kernel.takes_gamma else math.nan
        return kernel if math.isnan(value) else replace(kernel, gamma=value)

    def _resolved(self, gamma: str, x: Tensor) -> Kernel:
        """Return a kernel; an open gamma is taken from samples [N, D] and kept."""
        kernel = self._kernel(gamma).resolved(x)
        self._keep_gamma(gamma, kernel)
        return kernel

    def _keep_gamma(self, gamma: str, kernel: Kernel) -> None:
        """Make the gamma of a resolved kernel part of the state."""
        if kernel.takes_gamma:
            getattr(self, gamma).fill_(kernel.resolved_gamma)

    @contextmanager
    def _gammas_preserved(self) -> Iterator[None]:
        """Restore the gammas on exit, also after an exception: one that is open stays open."""
        before = {gamma: getattr(self, gamma).clone() for gamma in self._kernels}
        try:
            yield
        finally:
            for gamma, value in before.items():
                getattr(self, gamma).copy_(value)


class AnchoredMetric(GenerativeMetric):
    """A metric whose sums are about points that the first `update` fixes; these are saved with its state.

    Args:
        kwargs: those of torchmetrics.Metric.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._fixed: dict[str, Any] = {}  # empty until the first `update`

    def get_extra_state(self) -> dict[str, Any]:
        """Return what the first `update` fixed."""
        return self._fixed

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what the first `update` of a saved metric fixed."""
        self._fixed = dict(state)

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the state of another metric of this kind.

        Raises:
            ValueError: if its first `update` fixed other points: sums of unlike terms mean nothing.
        """
        theirs = incoming_state._fixed if isinstance(incoming_state, AnchoredMetric) else {}
        if self._fixed.keys() != theirs.keys() or not all(_equal(x, theirs[name]) for name, x in self._fixed.items()):
            raise ValueError(
                f"Expected a {type(self).__name__} that began like this one, but its first `update` fixed other "
                "expansion points. Begin both alike: make the other by `clone()` after the first `update`, then "
                "`reset()` it."
            )
        super().merge_state(incoming_state)


def from_rank_zero(choose: Callable[[], _T]) -> _T:
    """Return rank zero's choice on every process, or raise its error on every process, so that none waits for it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return choose()
    return made_by_rank_zero(choose, torch.distributed.get_rank(), broadcast)


def made_by_rank_zero(make: Callable[[], _T], rank: int, broadcast: Callable[[Any], Any]) -> _T:
    """Make something on rank zero alone; return it, or raise its error, on every process.

    Args:
        make: called on rank zero.
        rank: of this process.
        broadcast: from a value to that of rank zero; every process calls it.
    """
    made: Any = None
    if rank == 0:
        try:
            made = make()
        except Exception as error:
            broadcast(portable(error))
            raise
    received = broadcast(made)
    if isinstance(received, Exception):
        raise received
    return received


def broadcast(value: Any) -> Any:
    """Return the value of the first process of torch.distributed on every process."""
    sent = [value]
    torch.distributed.broadcast_object_list(sent, src=0)
    return sent[0]


def _kind(state: Tensor | list[Tensor]) -> tuple[tuple[int, ...], torch.dtype] | None:
    """Return the shape and dtype of a state, of one row if it is a list; None if it has no samples."""
    if isinstance(state, Tensor):
        return (tuple(state.shape), state.dtype) if state.ndim else None
    return (tuple(state[0].shape[1:]), state[0].dtype) if len(state) else None


def _equal(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else bool(a == b)


def portable(error: Exception) -> Exception:
    """Return an error that other processes can be sent: the same where pickling keeps it, else its type and text."""
    with suppress(Exception):
        if str(pickle.loads(pickle.dumps(error))) == str(error):  # noqa: S301 -- what was pickled in the same breath is no file
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")
