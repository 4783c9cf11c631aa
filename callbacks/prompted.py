# SPDX-License-Identifier: Apache-2.0
"""PromptedMonitor: a monitor of conditional generators, by features of outputs and of their prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.options import MonitorOptions, split_options
from genmonitor.evaluation.prompted import PromptedEvaluator
from genmonitor.evaluation.settings import DisagreementSettings, DiversitySettings
from genmonitor.images.sampler import Sampler
from genmonitor.kernels import Kernel


class PromptedMonitor(GenerativeMonitor):
    """A monitor of features of outputs and of their prompts.

    Args:
        settings: Settings of the evaluator.
        evaluator_class: Class of the evaluator.
        options: `MonitorOptions` of the monitor.
        **arguments: Further arguments of the evaluator's class.
    """

    evaluator: PromptedEvaluator[Any]

    def __init__(
        self,
        settings: DiversitySettings | DisagreementSettings,
        evaluator_class: Callable[..., PromptedEvaluator[Any]],
        options: MonitorOptions,
        **arguments: Any,
    ) -> None:
        sampling, schedule, rest = split_options(type(self), options)
        sampler = Sampler(settings.n_samples, settings.prompts, seed=settings.seed, **sampling)
        evaluator = evaluator_class(settings, batch_size=sampler.batch_size, **arguments)
        super().__init__(evaluator, sampler, schedule, **rest)

    @property
    def kernel(self) -> Kernel:
        """The kernel of outputs, with its gamma once it is known."""
        return self.evaluator.kernel

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once it is known."""
        return self.evaluator.prompt_kernel
