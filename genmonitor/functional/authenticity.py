# SPDX-License-Identifier: Apache-2.0
"""Authenticity: share of generated samples that are not copies of training samples."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_vectors
from genmonitor.linalg.distances import check_neighbors, distance_blocks, neighbor_radii, rounding


def authenticity(fake: Tensor, real: Tensor) -> Tensor:
    """Share of generated samples farther from their nearest training sample than that one is from its own nearest.

    Real samples held out from training get a share that grows with the dimension of the features. Of a normal
    distribution and 1000 training samples it is about 0.4 in 2 dimensions, 0.8 in 64, 0.87 in 768. In many dimensions
    it also grows with M, in 64 dimensions from 0.78 at M = 250 to 0.83 at 4000. Compare with the share of held-out
    samples: less suggests copies of training samples, and a share near 1 may mean that the generator misses the data.
    If several training samples are equally near, to within the rounding of float64, the one farthest from its own
    nearest counts: a copy of any is a copy.

    Args:
        fake: Features [N, D], N at least 2.
        real: Features of training samples [M, D], M at least 2; other real samples cannot be copied.

    Returns:
        A float64 scalar in [0, 1].

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If dimensions differ, values are not finite, or a side has fewer than 2 samples.

    References:
        Alaa et al., "How Faithful is your Synthetic Data? Sample-level Metrics for Evaluating and Auditing Generative
            Models", arXiv 2102.08921.
        Stein et al., "Exposing flaws of generative model evaluation metrics and their unfair treatment of diffusion
            models", arXiv 2306.04675, where it is called AuthPct.

    Example:
        >>> real = torch.tensor([[0.0], [1.0], [3.0]])
        >>> authenticity(torch.tensor([[0.1], [5.5]]), real)  # the first one is a copy
        tensor(0.5000, dtype=torch.float64)
    """
    ratios, _ = nearest_training_samples(fake, real)
    return (ratios > 1).double().mean()


def nearest_training_samples(fake: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Find the nearest training sample of each generated one, a block of pairs at a time.

    Returns:
        The squared distance to it, divided by its own squared distance to its nearest training sample [N]; and its
        index [N].
    """
    real = check_vectors("real", real).double()
    fake = check_vectors("fake", fake, real.shape[1]).double()
    check_neighbors(1, fake=fake, real=real)
    real_radii = neighbor_radii(real, 1)
    margin = rounding(fake.shape[1])
    nearest = torch.empty(len(fake), dtype=torch.long, device=fake.device)
    for rows, at_least in distance_blocks(fake, real, -margin):
        at_most = (fake[rows] - real[at_least.argmin(1)]).square().sum(1, keepdim=True) * (1 + margin)
        nearest[rows] = real_radii.where(at_least <= at_most, -1).argmax(1)  # for ties, the largest radius
    ratios = (fake - real[nearest]).square().sum(1) / real_radii[nearest]
    ratios = ratios.nan_to_num(0, posinf=torch.inf)  # 0 / 0: a copy of what occurs twice in training
    return ratios.where((ratios - 1).abs() > 2 * margin, 1), nearest
