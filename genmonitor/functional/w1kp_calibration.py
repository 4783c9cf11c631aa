# SPDX-License-Identifier: Apache-2.0
"""Calibration for W1KP: the distribution of distances between outputs of a prompt in an embedding."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pdist

from genmonitor._io import atomic_write
from genmonitor._validation import (
    check_at_least,
    check_features,
    check_integers,
    check_monotonic,
    check_same_length,
    check_some_prompts,
)
from genmonitor.linalg.distances import rounding


@dataclass(frozen=True, eq=False)
class W1KPCalibration:
    """A piecewise linear distribution function F of squared distances d in one embedding; F(d) is uniform on [0, 1].

    Attributes:
        distances: Knots [K], float64, in rising order.
        heights: F at the knots [K], float64, rising within [0, 1].
        dim: Number of values of the embedding.

    Example:
        >>> calibration = calibrate(torch.tensor([[0.0], [1.0], [2.0]]))
        >>> calibration(torch.tensor([0.0, 1.0, 100.0]))
        tensor([0.0000, 0.4000, 0.8000], dtype=torch.float64)
    """

    distances: Tensor
    heights: Tensor
    dim: int

    @classmethod
    def of(cls, distances: Tensor, heights: Tensor, dim: int) -> W1KPCalibration:
        """Make a calibration from knots and heights, after checking them.

        Args:
            distances: Knots [K] in rising order, K at least 2.
            heights: F at the knots [K], rising within [0, 1].
            dim: Number of values of the embedding.

        Raises:
            TypeError: If they are not tensors of real numbers.
            ValueError: If they are not a distribution function.
        """
        check_at_least("dim", dim, 1)
        x, y = check_monotonic("distances", distances), check_monotonic("heights", heights, low=0.0, high=1.0)
        check_same_length("distances", x, "heights", y)
        return cls(x.clone(), y.clone(), dim)  # float64 that was given is not converted into other memory

    @classmethod
    def load(cls, path: str | Path, dim: int | None = None) -> W1KPCalibration:
        """Load a calibration that `save` wrote, or a file of two arrays saved by torch, as the authors publish it.

        Args:
            path: File; nothing in it is executed.
            dim: Number of values of the embedding, for a file of two arrays, which does not contain it.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file holds something else, or neither the file nor `dim` gives the number of values.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"Expected `path` to be a file of a calibration, but there is none at {path!s}.")
        with torch.serialization.safe_globals(_numpy_globals()):
            try:
                found = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:  # a truncated file, or one of something else, may raise any exception
                raise ValueError(f"Expected {str(path)!r} to hold two arrays, but it does not load safely.") from error
        if isinstance(found, dict) and set(found) == {"distances", "heights", "dim"}:
            return cls.of(found["distances"], found["heights"], found["dim"])
        if not isinstance(found, Sequence) or len(found) != 2:
            raise ValueError(f"Expected {str(path)!r} to hold two arrays, but got {type(found).__name__}.")
        if dim is None:
            raise ValueError(
                f"Expected `dim` for {str(path)!r}, which does not name its embedding. Give the number of "
                "values of that embedding."
            )
        distances, heights = (torch.as_tensor(np.asarray(array)) for array in found)
        return cls.of(distances, heights, dim)

    def save(self, path: str | Path) -> None:
        """Write the calibration to a file that `load` reads, completely or not at all."""
        file = io.BytesIO()
        torch.save({"distances": self.distances, "heights": self.heights, "dim": self.dim}, file)
        atomic_write(Path(path), file.getvalue())

    def check(self, name: str, features: Tensor) -> None:
        """Refuse features of another embedding."""
        if features.shape[1] != self.dim:
            raise ValueError(
                f"Expected `{name}` of the calibration's embedding, with {self.dim} values, but got "
                f"{list(features.shape)}. Use that embedding or calibrate this one: calibrate(features, prompt_index)."
            )

    def __call__(self, distances: Tensor) -> Tensor:
        """Return F of squared distances of any shape, float64, like numpy.interp but exact at the knots."""
        return _interpolate(distances.double() * (1 + 2 * rounding(self.dim)), self.distances, self.heights)


def calibrate(features: Tensor, prompt_index: Tensor | None = None) -> W1KPCalibration:
    """Fit a calibration to the squared distances between outputs of the same prompt.

    The knots are 0, the sorted distances, and four times the largest squared norm, which bounds the squared distance of
    two such vectors. Knot i of N has height i / N.

    Args:
        features: Embedded outputs of many prompts [N, D].
        prompt_index: Index of the prompt of each output, integers [N]; None for a single prompt.

    Raises:
        TypeError: If an input is not a tensor of numbers of the right kind.
        ValueError: If lengths differ, values are not finite, or no prompt has two outputs.

    References:
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482, Eq. 1.

    Example:
        >>> calibrate(torch.tensor([[0.0], [1.0], [2.0]])).distances
        tensor([ 0.,  1.,  1.,  4., 16.], dtype=torch.float64)
    """
    x = check_features("features", features).detach()
    groups = [x]
    if prompt_index is not None:
        index = check_integers("prompt_index", prompt_index)
        check_same_length("features", x, "prompt_index", index)
        groups = [x[index == prompt] for prompt in index.unique()]
    distances = torch.cat([pdist(group.double()).square() for group in groups]).sort().values.cpu()
    check_some_prompts(len(distances), 2)
    largest = 4 * x.double().square().sum(1).max().cpu()
    knots = torch.cat([distances.new_zeros(1), distances, largest[None]])
    return W1KPCalibration.of(knots, torch.arange(len(knots)).double() / len(knots), x.shape[1])


def pair_distances(x: Tensor) -> Tensor:
    """Return the squared distances [n, n], float64, between outputs [n, D]."""
    n = len(x)
    rows, columns = torch.triu_indices(n, n, offset=1, device=x.device)
    out = torch.zeros(n, n, dtype=torch.float64, device=x.device)
    # one difference after the other, in the same way for each pair, so that equal distances are equal to the last bit
    out[rows, columns] = pdist(x.double()).square()
    return out + out.T


def similarities(x: Tensor, index: Tensor, calibration: W1KPCalibration) -> dict[int, Tensor]:
    """Map each prompt to the similarities [n, n] of its outputs."""
    return {int(prompt): 1 - calibration(pair_distances(x[index == prompt])) for prompt in index.unique(sorted=True)}


def _interpolate(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the piecewise linear function through rising x [K] and y [K] at values of any shape, in float64."""
    x, y, at = x.to(at.device), y.to(at.device), at.double()
    left = (torch.searchsorted(x, at, right=True) - 1).clamp(0, len(x) - 2)
    step = x[left + 1] - x[left]
    part = torch.where(step > 0, (at - x[left]) / step.where(step > 0, 1), 1).clamp(0, 1)
    return y[left] + part * (y[left + 1] - y[left])


def _numpy_globals() -> list[Any]:
    """List the functions that rebuild a saved NumPy array; none of them runs code from the file."""
    rebuild = np.zeros(0).__reduce__()[0]
    dtypes = {type(np.dtype(kind)) for kind in (np.float16, np.float32, np.float64, np.int32, np.int64)}
    return [rebuild, (rebuild, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype, *dtypes]


def check_calibration(calibration: W1KPCalibration | None, k: int | None) -> W1KPCalibration:
    """Refuse a missing calibration, and subsets too small for a pair."""
    if not isinstance(calibration, W1KPCalibration):
        raise ValueError(
            f"Expected `calibration` to be a W1KPCalibration, but got {calibration!r}: distances of one embedding mean "
            "nothing in another. Fit one with calibrate(features, prompt_index) on outputs of many prompts, or load "
            "one with W1KPCalibration.load(path, dim=...)."
        )
    if k is not None:
        check_at_least("k", k, 2)
    return calibration


def check_outputs(features: object, prompt_index: object, calibration: W1KPCalibration) -> tuple[Tensor, Tensor]:
    """Return outputs [N, D] of the calibrated embedding and the prompt of each, 0 where `prompt_index` is None."""
    x = check_features("features", features).detach()
    calibration.check("features", x)
    if prompt_index is None:
        return x, torch.zeros(len(x), dtype=torch.long, device=x.device)
    index = check_integers("prompt_index", prompt_index)
    check_same_length("features", x, "prompt_index", index)
    return x, index
