# SPDX-License-Identifier: Apache-2.0
"""Options of a monitor by keyword, divided between sampler, schedule and monitor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from genmonitor.callbacks.schedule import Schedule
from genmonitor.callbacks.weights import Weights
from genmonitor.images.sampler import SampleFn
from genmonitor.monitoring.options import EvaluationOptions, check_names


class MonitorOptions(EvaluationOptions, total=False):
    """Options that all monitors of a Trainer take by keyword, in addition to those of `EvaluationOptions`.

    These are `image_key`, `evaluate_on`, `on_alert`, `on_error` and `verbose`.

    Args:
        every_n_epochs: Number n of epochs, to evaluate in every n-th, at the end of validation if there is any, else at
            the end of the epoch; 1 by default.
        every_n_train_steps: Number n of training batches, to evaluate after the first and then after every n-th
            instead.
        sample_fn: Function `sample_fn(pl_module, n)` that returns n images [n, C, H, W]; None, the default, calls
            `pl_module.sample(n)`. With prompts the arguments are `(pl_module, prompts)` and the method is
            `sample_prompts(prompts)`. Prompts are a list of strings, or labels as int64 [n] on the module's device.
        sample_batch_size: Number of images per call of it, and of samples per call of an encoder; 100 by default.
        real_images: Dataset, DataLoader or tensor; None, the default, for the Trainer's data, see the monitor.
        weights: Weights to evaluate with Lightning's WeightAveraging: "raw", "averaged", or "auto", the default, for
            averaged ones if there are any.
    """

    every_n_epochs: int
    every_n_train_steps: int | None
    sample_fn: SampleFn | None
    sample_batch_size: int
    real_images: Any
    weights: Weights


def split_options(monitor: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], Schedule, dict[str, Any]]:
    """Split the options of a monitor into those of a `Sampler`, the schedule, and those of `GenerativeMonitor`.

    Args:
        monitor: Class of the monitor.
        given: Options given to its constructor.

    Raises:
        TypeError: If an option is unknown, naming the most similar one.
    """
    options = dict(given)
    own = inspect.signature(monitor).parameters.keys() - {"options"}
    check_names(monitor.__name__, options, [*MonitorOptions.__annotations__, *own])
    sampling = {"sample_fn": "sample_fn", "sample_batch_size": "batch_size"}
    timing = ("every_n_epochs", "every_n_train_steps")
    of_sampler = {name: options.pop(option) for option, name in sampling.items() if option in options}
    schedule = Schedule(**{name: options.pop(name) for name in timing if name in options})
    return of_sampler, schedule, options
