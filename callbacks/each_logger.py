# SPDX-License-Identifier: Apache-2.0
"""Going over a Trainer's loggers, by what the `experiment` of each can do.

Not by its class: `lightning` and `pytorch_lightning` have unrelated logger classes. A logger that raises is named in
one warning and never stops the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

WANDB_STEP = "trainer/global_step"
"""What Lightning's W&B logger logs beside every scalar. wandb's own step is never given: it must not go backwards."""

_warned: WeakSet[Any] = WeakSet()


def for_each(loggers: Iterable[Any], send: Callable[[Any, Any], None]) -> None:
    """Send something to each logger and its `experiment`, whatever the others do."""
    for logger in loggers:
        try:
            send(logger, getattr(logger, "experiment", None))
        except Exception as error:
            if logger not in _warned:
                _warned.add(logger)
                warnings.warn(
                    f"{type(logger).__name__} did not take what was logged: {type(error).__name__}: {error}. "
                    "The other loggers and the PNG files are not affected; this is said once.",
                    stacklevel=3,
                )


def is_wandb(experiment: Any) -> bool:
    """Whether it is a run of W&B."""
    return type(experiment).__module__.split(".")[0] == "wandb"


def log_wandb(logger: Any, experiment: Any, values: Mapping[str, Any], step: int) -> None:
    """Log to a run of W&B, with the trainer's step as the x-axis."""
    experiment.log({**{prefixed(logger, key): value for key, value in values.items()}, WANDB_STEP: step})


def prefixed(logger: Any, key: str) -> str:
    """The key as the logger writes it: Lightning's loggers take a prefix of the user's own."""
    prefix = getattr(logger, "_prefix", "")
    return f"{prefix}{logger.LOGGER_JOIN_CHAR}{key}" if prefix else key
