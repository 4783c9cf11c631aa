# SPDX-License-Identifier: Apache-2.0
"""Sums of functions of all eigenvalues of an operator, from a Krylov space that random probes started."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from genmonitor.linalg.krylov import Space

APART = 0.03
"""A Ritz vector whose residual is below this part of the gap to the next Ritz value is an eigenvector.

The angle between them is at most residual over gap, and what an eigenvalue contributes to a sum is off by the square of
that, a thousandth.
"""

CLUSTER = 1e-6
"""Ritz values nearer to each other than this part of the largest stand for as many eigenvalues as probes say.

Rounding alone would separate the copies of a multiple eigenvalue by as much in float32.
"""

Function = Callable[[Tensor], Tensor]


def spectral_sums(
    space: Space, functions: Sequence[Function], known: Sequence[tuple[Function, float]] = ()
) -> tuple[Tensor, Tensor]:
    """Estimate Σ f(λ) over the whole spectrum, for functions with f(0) = 0, in a space made by `Space.ends`.

    Eigenvalues whose vectors the space has are summed. The rest is what the probes have of it, Σ f(θ) ⟨ξ, y⟩² over the
    other Ritz pairs θ, y (Hutchinson's method with the deflation of Hutch++ and the quadrature of Lanczos), corrected
    by how far the same probes are off with sums that are known. Probes make no bias; what a space of finite size misses
    of f does, and shows as it grows.

    Args:
        space: its probes must be more than two beyond the sums that are known.
        functions: F of them, of the eigenvalues [b].
        known: other such functions with their sums.

    Returns:
        The sums [F], and the covariance of their errors [F, F] from how much the probes differ.

    References:
        Ubaru, Chen and Saad, "Fast Estimation of tr(f(A)) via Stochastic Lanczos Quadrature", SIAM Journal on Matrix
            Analysis and Applications 38(4), 2017.
        Meyer et al., "Hutch++: Optimal Stochastic Trace Estimation", arXiv 2010.09649.
    """
    values = space.ritz()[0]
    of_values = torch.stack([function(values) for function in [*functions, *(control for control, _ in known)]])
    apart, f = _apart(space), len(functions)
    summed, each = of_values[:, apart].sum(1), of_values[:, ~apart] @ space.shares()[~apart]
    # least squares over the probes, of what is wanted by the errors of what is known: the constant is a mean in which
    # every probe has its part, and these errors cancel
    errors = each[f:] + (summed[f:] - summed.new_tensor([value for _, value in known]))[:, None]
    errors = errors / errors.norm(dim=1, keepdim=True).clamp_min(torch.finfo(errors.dtype).tiny)
    design = torch.cat([torch.ones_like(each[:1]), errors]).T
    inverse = torch.linalg.pinv(design)
    parts = inverse[0]
    left = each[:f] - (design @ (inverse @ each[:f].T)).T
    covariance = left @ left.T / (len(parts) - design.shape[1]) * parts.square().sum()
    return summed[:f] + each[:f] @ parts, covariance


def _apart(space: Space) -> Tensor:
    """Tell which Ritz vectors are eigenvectors: their residual is far below the gap to the next Ritz value."""
    values = space.ritz()[0]
    if not len(values):
        return values > 0
    infinity = values.new_tensor([torch.inf])
    steps = torch.cat([infinity, values.diff(), infinity])
    gaps = torch.minimum(steps[:-1], steps[1:])
    return (space.residuals <= APART * gaps) & (gaps >= CLUSTER * values.abs().max())
