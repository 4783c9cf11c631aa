# SPDX-License-Identifier: Apache-2.0
"""Options of a monitor by keyword, and which of them the sampler, the schedule and the monitor take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from genmonitor.callbacks.integration.weights import Weights
from genmonitor.callbacks.schedule import Schedule
from genmonitor.images.sampler import PromptedSampleFn, SampleFn
from genmonitor.monitoring.options import EvaluationOptions, check_names


class MonitorOptions(EvaluationOptions, total=False):
    """Options that all monitors of a Trainer take by keyword, beside those of `EvaluationOptions`.

    These are `image_key`, `evaluate_on`, `on_alert`, `on_error` and `verbose`.

    Args:
        every_n_epochs: evaluate in every n-th epoch, at the end of validation if there is any, else at the end of the
            epoch; 1 by default.
        every_n_train_steps: evaluate after the first training batch and then after every n-th instead.
        sample_fn: `sample_fn(pl_module, n)` returns n images [n, C, H, W]; None, the default, calls
            `pl_module.sample(n)`. With prompts the arguments are `(pl_module, prompts)` and the method is
            `sample_prompts(prompts)`: a list of strings, or labels as int64 [n] on the module's device.
        sample_batch_size: images per call of it, and samples per call of an encoder; 100 by default.
        real_images: a Dataset, DataLoader or tensor; None, the default, for the Trainer's: see the monitor.
        weights: which weights to evaluate where Lightning's WeightAveraging runs: "auto", the default, for the averaged
            ones where there are any, "raw" or "averaged".
    """

    every_n_epochs: int
    every_n_train_steps: int | None
    sample_fn: SampleFn | PromptedSampleFn | None
    sample_batch_size: int
    real_images: Any
    weights: Weights


def split_options(monitor: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], Schedule, dict[str, Any]]:
    """Return what a `Sampler` takes of the options of a monitor, when to evaluate, and what `GenerativeMonitor` takes.

    Args:
        monitor: its class.
        given: the options that its constructor was given.

    Raises:
        TypeError: if an option is not known, naming the nearest one.
    """
    options = dict(given)
    own = inspect.signature(monitor).parameters.keys() - {"options"}
    check_names(monitor.__name__, options, [*MonitorOptions.__annotations__, *own])
    sampling = {"sample_fn": "sample_fn", "sample_batch_size": "batch_size"}
    timing = ("every_n_epochs", "every_n_train_steps")
    of_sampler = {name: options.pop(option) for option, name in sampling.items() if option in options}
    schedule = Schedule(**{name: options.pop(name) for name in timing if name in options})
    return of_sampler, schedule, options
