# SPDX-License-Identifier: Apache-2.0
"""Scendi as a stateful metric."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from genmonitor._validation import check_relative_cutoff
from genmonitor.functional.scendi import (
    JointCovariance,
    ScendiModes,
    least_squares_map,
    scendi_from_covariances,
    scendi_from_grams,
    scendi_modes,
)
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import check_kernels, gram_matrix
from genmonitor.metrics._spectral import PromptedMetric


class ScendiScore(PromptedMetric):
    """Scendi score: the diversity of outputs beyond what their prompts explain.

    If both kernels have explicit features (the cosine, or a Gaussian with `num_features`), the metric streams. Its
    state is their joint covariance, which does not grow with the number of samples. Otherwise it keeps the samples and
    is exact, for up to several thousand of them, but without `correct` and `modes`.

    For captions given images, captions are the outputs and images the prompts.

    Args:
        kernel: Kernel of outputs; None for the cosine. A gamma that is not given is resolved at the first `compute`,
            from the first 1000 samples of all processes. A streaming metric resolves it from rank zero's first
            `update`, which every process must then call. It stays across `reset`.
        prompt_kernel: Kernel of prompts, likewise.
        num_features: Number of random Fourier features of each Gaussian kernel; None for the exact kernel.
        rcond: Eigenvalues of the prompts' covariance up to rcond times the largest one count as zero. None for their
            number times the float32 precision.
        seed: Seed of the random Fourier features.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as `functional.scendi_score` does,
            which also documents the values and the warnings.

    References:
        Ospanov, Jalali and Farnia, "Scendi Score: Prompt-Aware Diversity Evaluation via Schur Complement of CLIP
            Embeddings", arXiv 2412.18645.

    Example:
        >>> import torch
        >>> from genmonitor import ScendiScore
        >>> metric = ScendiScore()
        >>> outputs, prompts = torch.eye(4).repeat_interleave(4, dim=0), torch.eye(2).repeat_interleave(8, dim=0)
        >>> metric.update(outputs, prompts)  # each prompt has two kinds of outputs of its own
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'scendi': 1.414, 'scendi_prompt': 1.414, 'prompt_share': 0.5}
        >>> metric.correct(outputs[[0, 4]], prompts[[0, 4]])
        tensor([[ 0.5000, -0.5000,  0.0000,  0.0000],
                [-0.5000,  0.5000,  0.0000,  0.0000]])
    """

    plot_lower_bound: float = 0.0

    def __init__(
        self,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        num_features: int | None = None,
        rcond: float | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        kernels = check_kernels(num_features, kernel=kernel, prompt_kernel=prompt_kernel)
        super().__init__(kernels, num_features, seed, **kwargs)
        self.rcond = None if rcond is None else check_relative_cutoff("rcond", rcond)

    def compute(self) -> dict[str, Tensor]:
        """Return float64 scalars `scendi`, `scendi_prompt` and `prompt_share`."""
        if self.streams:
            return scendi_from_covariances(self._joint(), rcond=self.rcond)
        return scendi_from_grams(*(gram_matrix(x, kernel) for x, kernel in self._kept()), rcond=self.rcond)

    def correct(self, outputs: Tensor, prompts: Tensor) -> Tensor:
        """Subtract the part that prompts explain from outputs, φ_I - Γ* φ_T, as fitted to the samples so far.

        The outputs may be new. Under torch.distributed every process must call it, like `compute`.

        Args:
            outputs: Features [N, D].
            prompts: Features [N, E].

        Returns:
            Corrected features [N, P] of the outputs' kernel; for the cosine the D values of x / ‖x‖.
        """
        x, t = self._features(outputs, prompts)
        with self._synced():
            gamma = least_squares_map(self._joint(), rcond=self.rcond)
        return x - t @ gamma.T.to(t)

    def modes(self, num_modes: int) -> ScendiModes:
        """Return the directions in which outputs vary most beyond their prompts. Every process must call it.

        Args:
            num_modes: Number K of modes, at most the number of features of outputs.

        Returns:
            Eigenvalues and eigenvectors. `mode_scores` scores samples on them; the highest scores illustrate a mode.
        """
        with self._synced():
            return scendi_modes(self._joint(), self.feature_sum, num_modes, rcond=self.rcond)

    def mode_scores(self, outputs: Tensor, prompts: Tensor, modes: ScendiModes) -> Tensor:
        """Score samples, which may be new, on modes v: ⟨v, φ_I - Γ* φ_T⟩.

        Args:
            outputs: Features [N, D].
            prompts: Features [N, E].
            modes: Result of `modes` of this metric.

        Returns:
            Scores [N, K]; `scores.topk(5, dim=0).indices` are the top samples of each mode.
        """
        x, t = self._features(outputs, prompts)
        return x @ modes.vectors.to(x) - t @ modes.prompt_vectors.to(t)

    def _features(self, outputs: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
        """Return explicit features of outputs and prompts."""
        self._need_features()
        x, t = (self._features_of(side)(x) for side, x in self._checked_pairs(outputs, prompts).items())
        return x, t

    def _joint(self) -> JointCovariance:
        self._need_features()
        return JointCovariance.of(self._covariance(), self._features_of("outputs").size, int(self.count))
