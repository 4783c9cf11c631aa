# SPDX-License-Identifier: Apache-2.0
"""Weights of real images: what minimizes the quadratic form, and what they say of a class that is missing."""

import torch
from scipy.optimize import nnls
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, pixel_views
from genmonitor.functional.diagnosis.proportions import RIDGE, match, matching_weights


def two_classes(n: int, seed: int, bright: float) -> Tensor:
    """The first `bright` of the images are bright at the left, the others at the right."""
    x = 0.1 * torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    many = round(n * bright)
    x[:many, ..., :3] += 0.8
    x[many:, ..., 3:] += 0.8
    return x


def test_weights_minimize_the_quadratic_form() -> None:
    points = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
    gram = (-4 * (points - points.T).square()).exp()
    across = gram[:, :5].mean(1)
    found = matching_weights(gram, across)
    root = torch.linalg.cholesky(gram + RIDGE * torch.eye(12))
    exact = nnls(root.T.numpy(), torch.linalg.solve(root, across).numpy(), maxiter=1000)[0]

    def value(w: Tensor) -> float:
        return float(w @ gram @ w + RIDGE * w @ w - 2 * w @ across)

    exact = torch.tensor(exact / exact.sum())
    assert value(found / 12) <= value(exact) + 1e-3
    assert found.mean().item() == 1
    assert bool((found >= 0).all())


def test_a_missing_class_is_proportions_and_noise_is_not() -> None:
    real, missing, same = two_classes(80, 0, 0.5), two_classes(80, 1, 0.0), two_classes(80, 2, 0.5)
    distance = Distance.of(real, pixel_views(real, torch.ones(6, 6, dtype=torch.bool)), 40)
    embedded = distance.embedded(real)
    missing = missing[torch.randperm(80, generator=torch.Generator().manual_seed(0))]
    share, weights = match(distance, embedded, distance.embedded(missing[:40]), distance.embedded(missing[40:]))
    assert share > 0.8
    assert float(weights[:40].mean()) < 0.1
    noise = same + 0.3 * torch.randn(same.shape, generator=torch.Generator().manual_seed(3))
    noise = noise[torch.randperm(80, generator=torch.Generator().manual_seed(1))]
    share, _ = match(distance, embedded, distance.embedded(noise[:40]), distance.embedded(noise[40:]))
    assert share < 0.25
