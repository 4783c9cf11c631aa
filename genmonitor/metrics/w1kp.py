# SPDX-License-Identifier: Apache-2.0
"""W1KP as a stateful metric."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from genmonitor._validation import check_count, check_integers
from genmonitor.functional.w1kp import PromptVariability, w1kp_by_prompt, w1kp_score
from genmonitor.functional.w1kp_calibration import W1KPCalibration, check_calibration, check_outputs
from genmonitor.metrics._base import GenerativeMetric, is_left_out


class W1KPScore(GenerativeMetric):
    """Mean similarity of the outputs of each prompt, averaged over the prompts: high is similar, low is diverse.

    Keeps every sample.

    Args:
        calibration: Calibration of the outputs' embedding, from `functional.calibrate` or
            `functional.W1KPCalibration.load`.
        k: Number of outputs, at least 2, to report the expected similarity of the closest pair among them too.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If there is no calibration or k is below 2; by `update` and `compute` as `functional.w1kp_score`
            does, which also documents the values.

    References:
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482, Eq. 1.

    Example:
        >>> import torch
        >>> from genmonitor import W1KPScore
        >>> from genmonitor.functional import calibrate
        >>> features, prompts = torch.arange(8.0)[:, None].pow(1.5), torch.tensor([0, 0, 0, 0, 1, 1, 1, 2])
        >>> metric = W1KPScore(calibrate(features))
        >>> metric.update(features, prompts)
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'w1kp': 0.769, 'prompts': 2.0, 'skipped': 1.0}
    """

    is_differentiable: bool = False
    higher_is_better: None = None
    batches_have_values = False  # a prompt's outputs may be spread over several
    plot_lower_bound: float = 0.0

    features: list[Tensor]
    prompt_index: list[Tensor]

    def __init__(self, calibration: W1KPCalibration | None, k: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.calibration = check_calibration(calibration, k)
        self.k = k
        self.add_state("features", default=[], dist_reduce_fx="cat")
        self.add_state("prompt_index", default=[], dist_reduce_fx="cat")

    def update(self, features: Tensor, prompt_index: Tensor, real: bool = False) -> None:
        """Add outputs.

        Args:
            features: Embedded outputs [N, D].
            prompt_index: Index of the prompt of each output, integers [N].
            real: True to ignore the batch, so that one MetricCollection feeds metrics of one and of two sides.

        Raises:
            TypeError: If an input is not a tensor of numbers of the right kind.
            ValueError: If lengths differ, values are not finite, or the calibration is of another embedding.
        """
        if is_left_out(real):
            return
        x, index = check_outputs(features, check_integers("prompt_index", prompt_index), self.calibration)
        self._keep("features", x, features)
        self._keep("prompt_index", index, prompt_index)

    def compute(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the dictionary of `functional.w1kp_score`."""
        return w1kp_score(*self._kept(), calibration=self.calibration, k=self.k)

    def per_prompt(self, names: list[str] | None = None) -> list[PromptVariability]:
        """List the similarity of the outputs of each prompt over all processes, the least diverse prompt first.

        Args:
            names: Names of the prompts, by index.

        Raises:
            ValueError: If a prompt has no name, or no prompt has two outputs.
        """
        with self._synced():
            return w1kp_by_prompt(*self._kept(), calibration=self.calibration, k=self.k, names=names)

    def _kept(self) -> tuple[Tensor, Tensor]:
        check_count("outputs", sum(map(len, self.features)), "update(features, prompt_index)")
        return dim_zero_cat(self.features), dim_zero_cat(self.prompt_index)
