# SPDX-License-Identifier: Apache-2.0
"""Explicit feature maps φ with k(x, y) = ⟨φ(x), φ(y)⟩, exactly or in expectation."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def unit_sphere(x: Tensor) -> Tensor:
    """Map samples to x / ‖x‖, the exact map of the cosine kernel.

    Args:
        x: Samples [N, D].

    Returns:
        Features [N, D].

    Raises:
        ValueError: If a sample is the zero vector, which has no direction.

    Example:
        >>> unit_sphere(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    kind = torch.finfo(x.dtype)
    # squares leave the range of a dtype before values do: of a norm below the root of the smallest number over the
    # precision, squares that matter to it are lost
    least, most = torch.stack(norms.detach().aminmax()).tolist() if len(x) else (1, 1)
    if not kind.tiny**0.5 / kind.eps <= least <= most < math.inf:
        largest = x.detach().abs().amax(1, keepdim=True)
        x = x / largest.where(largest > 0, 1)
        norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        if zeros := int((norms == 0).sum()):
            raise ValueError(
                f"Expected samples other than the zero vector for the cosine kernel, but {zeros} of {len(x)} are zero. "
                "Leave them out or use a Gaussian kernel."
            )
    return x / norms


def fourier_features(x: Tensor, frequencies: Tensor) -> Tensor:
    """Map samples to [cos(ωᵀx), sin(ωᵀx)] / sqrt(R): features of norm 1, unbiased for k = E cos(ωᵀ(x - y)).

    Args:
        x: Samples [N, D].
        frequencies: Random ω [R, D], such as those of `GaussianKernel.frequencies`.

    Returns:
        Features [N, 2R].

    Example:
        >>> phi = fourier_features(torch.randn(5, 3), torch.randn(8, 3))
        >>> torch.allclose(phi.square().sum(1), torch.ones(5))
        True
    """
    angles, scale = x @ frequencies.to(x).T, 1 / math.sqrt(len(frequencies))
    if angles.requires_grad:
        return torch.cat([angles.cos(), angles.sin()], dim=1) * scale
    out = angles.new_empty(len(x), 2 * len(frequencies))
    torch.cos(angles, out=out[:, : len(frequencies)])
    torch.sin(angles, out=out[:, len(frequencies) :])
    return out.mul_(scale)


def taylor_size(values: int, degree: int) -> int:
    """Return the number of Taylor features of a site: the monomials of its values up to the degree.

    Example:
        >>> taylor_size(values=3, degree=2)
        10
    """
    return math.comb(values + degree, degree)


def taylor_features(u: Tensor, gamma: float, degree: int) -> Tensor:
    """Map site values to the Taylor features of exp(-gamma ‖u - v‖²), minus a constant.

    φ_a(u) = exp(-γ‖u‖²) sqrt((2γ)^|a| / a!) u^a over multi-indices a with |a| up to `degree`. The first one is near 1,
    and expm1 subtracts 1 from it, so that float32 keeps its tiny variation.

    Args:
        u: Site values near zero [D, V, N]: sites, values per site, samples.
        gamma: Gamma of the kernel.
        degree: Highest degree of a monomial, at least 1.

    Returns:
        Features [D, R, N] with R = `taylor_size(V, degree)`.

    Example:
        >>> u, v = torch.tensor([0.3, -0.2]).reshape(1, 1, 2).double(), 1.0
        >>> phi = taylor_features(u, gamma=0.1, degree=6)[0]
        >>> phi[0] += 1
        >>> torch.allclose(phi[:, 0] @ phi[:, 1], torch.tensor(-0.1 * 0.5**2).double().exp())
        True
    """
    sites, values, n = u.shape
    exponent = -gamma * u.square().sum(1)
    envelope = exponent.exp()
    out = u.new_empty(sites, taylor_size(values, degree), n)
    out[:, 0] = torch.expm1(exponent)
    # (index in out, exponents of the monomial, last variable used); each degree extends the one before
    previous = [(-1, (0,) * values, 0)]
    row = 1
    for _ in range(degree):
        current = []
        for index, powers, last in previous:
            base = envelope if index < 0 else out[:, index]
            for j in range(last, values):
                raised = (*powers[:j], powers[j] + 1, *powers[j + 1 :])
                torch.mul(base, u[:, j] * math.sqrt(2 * gamma / raised[j]), out=out[:, row])
                current.append((row, raised, j))
                row += 1
        previous = current
    return out
