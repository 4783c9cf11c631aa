# SPDX-License-Identifier: Apache-2.0
"""The Vendi score, RKE and Conditional-Vendi as stateful metrics."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from genmonitor._validation import check_at_least, check_order
from genmonitor.functional.vendi import (
    VendiModes,
    conditional_vendi_from_grams,
    rke_from_covariance,
    rke_from_samples,
    vendi_modes,
    vendi_of_spectrum,
)
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import check_kernels, gram_matrix
from genmonitor.metrics._base import is_left_out
from genmonitor.metrics._spectral import PromptedMetric, SpectralMetric


class _ModeCount(SpectralMetric):
    """Base of VendiScore and RKEScore: a score of one set of samples that grows with the number of its modes."""

    is_differentiable: bool = True
    higher_is_better: bool = True
    gammas: ClassVar[dict[str, str]] = {"features": "gamma"}
    plot_lower_bound: float = 1.0

    features: list[Tensor]

    def __init__(self, kernel: Kernel | None, num_features: int | None, seed: int, **kwargs: Any) -> None:
        super().__init__(check_kernels(num_features, kernel=kernel), num_features, seed, **kwargs)

    def update(self, features: Tensor, real: bool = False) -> None:
        """Add samples.

        Args:
            features: Features [N, D], or images [N, C, H, W].
            real: True to ignore the batch, so that one MetricCollection feeds metrics of one and of two sides.

        Raises:
            TypeError: If they are not a tensor of real numbers.
            ValueError: If they are not finite, differ in D from those before, or one is the zero vector under the
                cosine kernel. Also if the first `update` of a streaming metric cannot resolve the gamma.
        """
        if not is_left_out(real):
            self._add({"features": self._checked("features", features)}, [features])

    def modes(self, num_modes: int) -> VendiModes:
        """Return the directions in which the samples vary most. Every process must call it, like `compute`.

        Args:
            num_modes: Number K of modes, at most the number of features of the kernel.

        Returns:
            Eigenvalues and eigenvectors. `mode_scores` scores samples on them; the highest scores illustrate a mode.

        Raises:
            ValueError: If the metric keeps samples instead of streaming, or has seen none.
        """
        with self._synced():
            self._need_features()
            return vendi_modes(self._covariance(), self.feature_sum, num_modes, float(self.count))

    def mode_scores(self, features: Tensor, modes: VendiModes) -> Tensor:
        """Score samples, which may be new, on modes v: ⟨v, φ⟩.

        Args:
            features: Features [N, D].
            modes: Result of `modes` of this metric.

        Returns:
            Scores [N, K]; `scores.topk(5, dim=0).indices` are the top samples of each mode.
        """
        self._need_features()
        x = self._features_of("features")(self._checked("features", features))
        return x @ modes.vectors.to(x)


class VendiScore(_ModeCount):
    """Vendi score of the samples seen: the number of equally common modes that would be as diverse.

    With the cosine kernel, or with a Gaussian and `num_features`, the metric streams. Its state is the covariance of
    explicit features, which does not grow with the number of samples. With any other kernel it keeps the samples and is
    exact, for up to several thousand of them.

    Args:
        kernel: Kernel; None for the cosine. A gamma that is not given is resolved at the first `compute`, from the
            first 1000 samples of all processes. A streaming metric resolves it from rank zero's first `update`, which
            every process must then call. It stays across `reset`.
        order: Order q of the entropy, positive; may be math.inf.
        num_features: Number of random Fourier features of a Gaussian kernel; None for the exact kernel.
        truncation: Number t of eigenvalues to keep, the largest; the missing mass is spread evenly over them. None
            keeps all.
        seed: Seed of the random Fourier features.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as `functional.vendi_score` does,
            which also documents the value.

    References:
        Friedman and Dieng, "The Vendi Score: A Diversity Evaluation Metric for Machine Learning", arXiv 2210.02410.
        Ospanov et al., "Towards a Scalable Reference-Free Evaluation of Generative Models", arXiv 2407.02961, for
            random Fourier features, and for `modes` of them.
        Ospanov and Farnia, "Do Vendi Scores Converge with Finite Samples? Truncated Vendi Score for Finite-Sample
            Convergence Guarantees", arXiv 2410.21719, for `truncation`.

    Example:
        >>> import torch
        >>> from genmonitor import VendiScore
        >>> metric = VendiScore()
        >>> metric.update(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
        >>> metric.update(torch.tensor([[0.0, 1.0], [0.0, 3.0]]))
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
        >>> metric.mode_scores(torch.eye(2), metric.modes(2)).argmax(0).sort().values  # each mode's top sample
        tensor([0, 1])
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        order: float = 1.0,
        num_features: int | None = None,
        truncation: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel, num_features, seed, **kwargs)
        self.order = check_order("order", order)
        self.truncation = None if truncation is None else check_at_least("truncation", truncation, 1)

    def compute(self) -> Tensor:
        """Return a float64 scalar, at least 1."""
        if self.streams:
            return vendi_of_spectrum(self._covariance(), self.order, self.truncation)
        ((x, kernel),) = self._kept()
        return vendi_of_spectrum(gram_matrix(x, kernel) / len(x), self.order, self.truncation)


class RKEScore(_ModeCount):
    """RKE score of the samples seen: the Vendi score of order 2, which needs no eigenvalues and few samples.

    The state is that of `VendiScore`. If samples are kept, any number of them is exact, a block of pairs at a time.

    Args:
        kernel: Same as in `VendiScore`.
        num_features: Same as in `VendiScore`.
        seed: Seed of the random Fourier features.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: As `VendiScore` does.

    References:
        Jalali, Li and Farnia, "An Information-Theoretic Evaluation of Generative Models in Learning Multi-modal
            Distributions", NeurIPS 2023.

    Example:
        >>> import torch
        >>> from genmonitor import RKEScore
        >>> metric = RKEScore()
        >>> metric.update(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
        >>> metric.update(torch.tensor([[0.0, 1.0], [0.0, 3.0]]))
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
    """

    def __init__(
        self, kernel: Kernel | None = None, num_features: int | None = None, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(kernel, num_features, seed, **kwargs)

    def compute(self) -> Tensor:
        """Return a float64 scalar, at least 1."""
        if self.streams:
            return rke_from_covariance(self._covariance())
        ((x, kernel),) = self._kept()
        return rke_from_samples(x, kernel)


class ConditionalVendiScore(PromptedMetric):
    """Conditional-Vendi and Information-Vendi: number of modes of the outputs of a prompt, and what prompts add.

    The metric keeps the samples, up to several thousand: the kernel of pairs is a product with too many features for a
    covariance. `ScendiScore` streams.

    Args:
        kernel: Kernel of outputs; None for the cosine. A gamma that is not given is resolved at the first `compute`,
            from the first 1000 samples of all processes. It stays across `reset`.
        prompt_kernel: Kernel of prompts, likewise.
        order: Order q of the entropies, positive; may be math.inf. 2 gives Conditional-RKE.
        truncation: Number t of eigenvalues of each spectrum to keep, the largest; the missing mass is spread evenly
            over them. None keeps all.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

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
