# SPDX-License-Identifier: Apache-2.0
"""Conditional-Vendi and Information-Vendi as a stateful metric."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from genmonitor._validation import check_at_least, check_order
from genmonitor.functional.conditional_vendi import conditional_vendi_from_grams
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import check_kernels, gram_matrix
from genmonitor.metrics._spectral import PromptedMetric


class ConditionalVendiScore(PromptedMetric):
    """Conditional-Vendi and Information-Vendi: how many modes the outputs of a prompt have, and what prompts add.

    The metric keeps the samples, for up to several thousand of them: the kernel of pairs is a product, whose features
    are too many to keep a covariance of. `ScendiScore` streams.

    Args:
        kernel: Of outputs, None for the cosine. An open gamma is resolved once, at the first `compute`, from the first
            1000 samples of all processes.
        prompt_kernel: Of prompts, likewise.
        order: Q of the entropies, positive; may be math.inf. 2 gives Conditional-RKE.
        truncation: T keeps the t largest eigenvalues of each spectrum and spreads the missing mass evenly over them;
            None keeps all.
        kwargs: Those of torchmetrics.Metric.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as
            `functional.conditional_vendi_score` does, which also documents the values.

    References:
        Jalali, Ospanov, Gohari and Farnia, "Conditional Vendi Score: Prompt-Aware Diversity Evaluation for Generative
            AI Models and LLMs", arXiv 2411.02817.

    Example:
        >>> import torch
        >>> from genmonitor import ConditionalVendiScore
        >>> metric = ConditionalVendiScore()
        >>> outputs, prompts = torch.eye(6).repeat_interleave(2, dim=0), torch.eye(3).repeat_interleave(4, dim=0)
        >>> metric.update(outputs, prompts)  # each of 3 prompts has two kinds of outputs of its own
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'conditional_vendi': 2.0, 'information_vendi': 3.0}
    """

    may_stream: ClassVar[bool] = False
    plot_lower_bound: float = 1.0

    def __init__(
        self,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        order: float = 1.0,
        truncation: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(check_kernels(None, kernel=kernel, prompt_kernel=prompt_kernel), None, 0, **kwargs)
        self.order = check_order("order", order)
        self.truncation = None if truncation is None else check_at_least("truncation", truncation, 1)

    def compute(self) -> dict[str, Tensor]:
        """Return float64 scalars `conditional_vendi` and `information_vendi`."""
        gram, prompt_gram = (gram_matrix(x, kernel) for x, kernel in self._kept())
        return conditional_vendi_from_grams(gram, prompt_gram, self.order, self.truncation)
