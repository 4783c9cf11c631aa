# SPDX-License-Identifier: Apache-2.0
"""Extra metrics of the user, which get the same samples."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from genmonitor._io import say, warn
from genmonitor._processes import several_processes
from genmonitor.distributed import Collective
from genmonitor.evaluation.results import MOMENT
from genmonitor.findings.values import RUN_VALUES, Better, ValueSpec
from genmonitor.kernels import Kernel


class ExtraMetrics:
    """Metrics that an evaluation adds to its own; a metric that fails is skipped in that evaluation.

    They get images [n, C, H, W] or, if the evaluation encodes images, features [n, d]. A metric whose `update` requires
    `real` or `reference` gets both sides, the real one only once if it keeps it across resets. Other metrics, such as
    the Inception score, get the generated side. Images are converted for the Inception network of torchmetrics: three
    channels, in 0..255 or, with `normalize=True`, in [0, 1]. Any other metric gets them unchanged.

    Args:
        metrics: MetricCollection, or dictionary of metrics.
        of: Input of the metrics, "images" or "features".

    Attributes:
        specs: Declarations of the values of the last `compute`.

    Raises:
        TypeError: If they are something else.
    """

    def __init__(self, metrics: Mapping[str, Any] | Any, of: str = "images") -> None:
        values = list(metrics.values()) if hasattr(metrics, "values") else [metrics]
        if not hasattr(metrics, "items") or not _are_metrics(values):
            kinds = ", ".join(type(x).__name__ for x in values)
            raise TypeError(
                "Expected `extra_metrics` to be a MetricCollection or a dictionary of metrics, but got "
                f"{type(metrics).__name__} of {kinds}. Wrap them: MetricCollection({{'kid': kid}})."
            )
        self._metrics, self._of = metrics, of
        self.specs: list[ValueSpec] = []
        self._failed: set[str] = set()
        self._has_real: set[str] = set()
        self._range = (0.0, 1.0)

    def check(self, probe: Tensor, real: Tensor | None, *, own: Iterable[ValueSpec] = ()) -> None:
        """Try each metric on a few images or features, and empty it.

        Args:
            probe: Generated images [N, C, H, W], or features [N, d].
            real: Real images, which define the value range; None if there are none.
            own: Values of the evaluator, whose keys are reserved.

        Raises:
            ValueError: If a metric does not accept them, or its values could have keys of the evaluator.
        """
        self._check_names(own)
        self._has_real = set()
        if real is not None:
            self._range = (float(real.min()), float(real.max()))
        for name, metric in self._metrics.items():
            metric.to(probe.device)
            try:
                self._feed(name, metric, probe, real)
            except Exception as error:
                raise ValueError(
                    f"Expected every metric of `extra_metrics` to take {self._of} {list(probe.shape[1:])} by "
                    f"`update({self._of}, real=...)` or `update({self._of})`, but {name} raised "
                    f"{type(error).__name__}: {error}"
                ) from error
            _reset_both_sides(metric)
        self._has_real = set()

    def update(self, samples: Tensor, real: Tensor | None) -> None:
        """Give each metric this process's generated and real samples, replacing those of the last evaluation."""
        self._failed = set()
        for name, metric in self._metrics.items():
            try:
                if metric._is_synced:  # it failed in the last evaluation, and holds what it had gathered
                    metric.unsync()
                metric.reset()
                self._feed(name, metric, samples, real)
            except Exception:
                self._fail(name)

    def _check_names(self, own: Iterable[ValueSpec]) -> None:
        """Refuse names whose values, `name` or `name_key`, could be confused with others of a record."""
        keys = [*MOMENT, *(spec.key for spec in (*RUN_VALUES, *own))]
        for name in self._metrics:
            if any(key == name.lower() or key.startswith(f"{name.lower()}_") for key in keys):
                raise ValueError(
                    f"Expected names in `extra_metrics` that are not the monitor's own, but got {name!r}. Rename it."
                )

    def compute(self, comm: Collective) -> dict[str, float]:
        """Compute each metric that succeeded on every process.

        Args:
            comm: Processes that evaluate together.

        Returns:
            Values by lower-case name. A metric that returns a mean and a deviation gives `name` and `name_std`, one
            that returns a dictionary gives `name_key` for each number in it.
        """
        out: dict[str, float] = {}
        self.specs = []
        for name, metric in self._metrics.items():
            if not comm.all_true(name not in self._failed):
                continue
            for part in metric.modules():
                if hasattr(part, "distributed_available_fn"):
                    part.distributed_available_fn = several_processes
            values: list[tuple[ValueSpec, float]] = []
            try:
                values = _declared(name.lower(), metric)
            except Exception:
                self._fail(name)
            if comm.all_true(name not in self._failed):
                self.specs += [spec for spec, _ in values]
                out |= {spec.key: value for spec, value in values}
        return out

    def _feed(self, name: str, metric: Any, samples: Tensor, real: Tensor | None) -> None:
        size = 100  # images per update, since a feature network would not fit all of them in memory
        takes = inspect.signature(metric.update).parameters
        sides = [word for word in ("real", "reference") if word in takes]
        side = next((word for word in sides if takes[word].default is inspect.Parameter.empty), None)
        if side is None:
            if self._of == "features":
                _check_width(metric)
            for batch in samples.split(size):
                metric.update(self._as_expected(metric, batch))
            return
        if real is None:
            raise ValueError("there are no real images to compare with. Give `real_images=`.")
        if name not in self._has_real:
            for batch in real.split(size):
                metric.update(self._as_expected(metric, batch), **{side: True})
        if getattr(metric, "reset_real_features", True) is False:
            self._has_real.add(name)
        for batch in samples.split(size):
            metric.update(self._as_expected(metric, batch), **{side: False})

    def _as_expected(self, metric: Any, images: Tensor) -> Tensor:
        if getattr(metric, "used_custom_model", True):
            return images.clone()  # a metric may work in place
        low, high = self._range
        scaled = ((images - low) / (high - low)).clamp(0, 1).expand(-1, max(3, images.shape[1]), -1, -1)
        return scaled if metric.normalize else (255 * scaled).round().byte()

    def _fail(self, name: str) -> None:
        self._failed.add(name)
        if name not in self._has_real:  # some of the real images may be in already
            _reset_both_sides(self._metrics[name])
        # on every process where it happens
        say(f"`extra_metrics`: {name} failed in this evaluation.\n{traceback.format_exc()}", warn)


def _are_metrics(values: list[Any]) -> bool:
    if not values:
        return True  # torchmetrics, which takes two seconds to import, is not needed
    from torchmetrics import Metric

    return all(isinstance(x, Metric) for x in values)


def _check_width(metric: Any) -> None:
    """Refuse a kernel whose gamma would come from the first generated samples, which are not representative."""
    kernel = getattr(metric, "kernel", None)
    if isinstance(kernel, Kernel) and kernel.takes_gamma and kernel.gamma is None:
        raise ValueError(f"{kernel!r} has no gamma. Give it one.")


def _reset_both_sides(metric: Any) -> None:
    """Empty a metric, including a real side that `reset` keeps."""
    if getattr(metric, "reset_real_features", True):
        metric.reset()
        return
    metric.reset_real_features = True
    try:
        metric.reset()
    finally:
        metric.reset_real_features = False


def _declared(name: str, metric: Any) -> list[tuple[ValueSpec, float]]:
    """Compute a metric; return its values with their declarations."""
    value, higher = metric.compute(), metric.higher_is_better
    better: Better | None = None if higher is None else "high" if higher else "low"
    if isinstance(value, (tuple, list)):
        mean, deviation = ValueSpec(name, better=better), ValueSpec(f"{name}_std", detail=True, error_of=name)
        return [(mean, float(value[0])), (deviation, float(value[1]))]
    if isinstance(value, dict):
        parts = {part: v for part, v in value.items() if getattr(v, "ndim", 0) == 0}
        return [(ValueSpec(f"{name}_{part}"), float(v)) for part, v in parts.items()]
    return [(ValueSpec(name, better=better), float(value))]
