# SPDX-License-Identifier: Apache-2.0
"""PromptedMonitor: what the monitors of conditional generators have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from genmonitor.callbacks.base import GenerativeMonitor, split_options
from genmonitor.evaluation.prompts.prompted import PromptedEvaluator
from genmonitor.evaluation.sampling.sampler import Sampler
from genmonitor.evaluation.settings import DisagreementSettings, DiversitySettings
from genmonitor.kernels import Kernel


class PromptedMonitor(GenerativeMonitor):
    """A monitor of features of outputs and of their prompts.

    Args:
        settings: of the evaluator.
        make: the evaluator's class.
        given: the arguments of the monitor's constructor, with `MonitorOptions` under "options".
    """

    evaluator: PromptedEvaluator[Any]

    def __init__(
        self,
        settings: DiversitySettings | DisagreementSettings,
        make: Callable[..., PromptedEvaluator[Any]],
        given: Mapping[str, Any],
    ) -> None:
        sampling, schedule, rest = split_options(type(self).__name__, given)
        sampler = Sampler(settings.count, settings.given_prompts, seed=settings.seed, **sampling)
        own = {name: given[name] for name in inspect.signature(make).parameters if name in given}
        super().__init__(make(settings, batch_size=sampler.batch_size, **own), sampler, schedule, **rest)

    @property
    def kernel(self) -> Kernel:
        """The kernel of outputs, with its gamma once it is known."""
        return self.evaluator.kernel

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once it is known."""
        return self.evaluator.prompt_kernel
