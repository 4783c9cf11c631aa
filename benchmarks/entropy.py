# SPDX-License-Identifier: Apache-2.0
"""Vendi and RKE against the vendi-score package, Scendi against the plain way from its formulas, on the same samples.

python benchmarks/entropy.py
python benchmarks/entropy.py --long                   # Scendi by 2 × 2000 frequencies as well: the plain way is slow
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from harness import DEVICE, clock, row, run, seconds, side_by_side
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor

from genmonitor import GaussianKernel, RKEScore, ScendiScore, VendiScore
from genmonitor.kernels.covariance import random_features
from genmonitor.linalg.feature_maps import fourier_features, unit_sphere

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package's docstrings have invalid escapes
    from vendi_score import vendi

DIM, BATCH = 512, 1000
PLAIN = "plain way"
NOTES = (
    "`score_dual` is one product of all samples, which numpy makes at the machine's rate, and one eigendecomposition; "
    "`score_K` is what the package offers for other kernels. Both compute in the precision of what they are given. "
    "Ours computes in float64 whatever it is given, since float32 buries the small eigenvalues that entropies of an "
    "order up to 1 live off; a product or an eigendecomposition then takes twice as long. So it can be slower than the "
    "peer in float32: its half of the product in float64 takes as long as the whole in float32, and of an exact "
    "Gaussian the eigenvalues of the Gram matrix are nearly all the time. In float64 too the peer may be as fast on "
    "tens of thousands of samples: it takes them at once, ours in batches, each checked and scaled by itself."
)


def embeddings(n: int, dim: int = DIM, seed: int = 0) -> Tensor:
    """Draw float32 samples around 50 centers, with variances that fall like one over the rank."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(50, dim, generator=generator)
    noise = torch.randn(n, dim, generator=generator)
    scale = torch.arange(1, dim + 1).float().rsqrt()
    return ((centers[torch.randint(50, (n,), generator=generator)] + noise) * scale).to(DEVICE)


def streamed(metric: Any, *sides: Tensor) -> Any:
    """Feed a metric in batches, as a monitor does, and compute."""
    for some in zip(*(side.split(BATCH) for side in sides), strict=True):
        metric.update(*some)
    return metric.compute()


def state_mib(metric: Any) -> float:
    states = [torch.cat(state) if isinstance(state, list) else state for state in metric.metric_state.values()]
    return sum(state.numel() * state.element_size() for state in states) / 2**20


def columns(
    sides: list[Tensor], d: str, metric: Any, took: float, peers: dict[str, float], error: float, operations: float
) -> dict[str, Any]:
    moved = sum(side.numel() * side.element_size() for side in sides)
    more = {"state MiB": f"{state_mib(metric):.1f}"}
    said = {name: "its products extrapolated from a tenth" for name in peers if name == PLAIN}
    n = f"{len(sides[0]):,}"
    return row(n, d, took, operations=operations, moved=moved, error=error, peers=peers, extrapolated=said, more=more)


def against(
    x: Tensor, metric: Any, name: str, peer: Callable[[Any], Any], exact: float, operations: float | None = None
) -> dict[str, Any]:
    """Time a metric that is fed in batches and a peer, in the precision of ours and in its own, in turns."""
    metric.to(DEVICE)

    def ours() -> float:
        metric.reset()
        return float(streamed(metric, x))

    error = abs(ours() - exact) / exact
    single, double = x.cpu().numpy(), x.double().cpu().numpy()
    took, narrow, wide = side_by_side(ours, lambda: peer(single), lambda: peer(double), repeats=7)
    peers = {f"{name} in float32": narrow, f"{name} in float64": wide}
    return columns([x], f"{DIM}", metric, took, peers, error, operations or len(x) * DIM * (DIM + 1))


def exact_score(x: Tensor, order: int = 1) -> float:
    return float(vendi.score_dual(x.double().cpu().numpy(), q=order))


def dual_case(n: int) -> Callable[[], dict[str, Any]]:
    """Vendi of the cosine kernel against `score_dual`, whose time is that of one product of numpy.

    The peer has all samples at once; ours takes batches, checks them and multiplies them in float64.
    """

    def measure() -> dict[str, Any]:
        x = embeddings(n)
        return against(x, VendiScore(), "score_dual", vendi.score_dual, exact_score(x))

    measure.__name__ = f"Vendi_{n}_against_score_dual"
    return measure


def RKE_50000_against_score_dual() -> dict[str, Any]:  # noqa: N802
    x = embeddings(50_000)
    return against(x, RKEScore(), "score_dual", lambda some: vendi.score_dual(some, q=2), exact_score(x, 2))


def gram_case(n: int) -> Callable[[], dict[str, Any]]:
    """Vendi of the cosine kernel against `score_K`, the peer's way for kernels in general."""

    def measure() -> dict[str, Any]:
        x = embeddings(n)

        def peer(some: Any) -> float:
            unit = unit_sphere(torch.from_numpy(some))
            return float(vendi.score_K((unit @ unit.T).numpy()))

        return against(x, VendiScore(), "score_K", peer, exact_score(x))

    measure.__name__ = f"Vendi_{n}_against_score_K"
    return measure


def Vendi_2000_Gaussian_against_score_K() -> dict[str, Any]:  # noqa: N802
    """Exact: both decompose the Gram matrix, which scikit-learn makes for the peer."""
    n, x = 2000, embeddings(2000)
    kernel = GaussianKernel().resolved(x)
    exact = float(vendi.score_K(kernel(x.double(), x.double()).cpu().numpy()))
    operations = n * n * DIM + 4 / 3 * n**3

    def peer(some: Any) -> float:
        return float(vendi.score_K(rbf_kernel(some, gamma=kernel.gamma)))

    return against(x, VendiScore(kernel), "score_K", peer, exact, operations)


def plain_covariances(outputs: Tensor, prompts: Tensor, batch: int = 16) -> list[Tensor]:
    """Sum outer products of features, a batch at a time: C_II, C_IT and C_TT."""
    sides = ((outputs, outputs), (outputs, prompts), (prompts, prompts))
    sums = [torch.zeros(x.shape[1], y.shape[1], device=x.device) for x, y in sides]
    for start in range(0, len(outputs), batch):
        for total, (x, y) in zip(sums, sides, strict=True):
            total += torch.einsum("ni,nj->nij", x[start : start + batch], y[start : start + batch]).sum(0)
    return [total / len(outputs) for total in sums]


def plain_scores(c_ii: Tensor, c_it: Tensor, c_tt: Tensor) -> list[float]:
    """Compute Scendi of both parts and Vendi: a full pseudo-inverse and three eigendecompositions."""
    driven = c_it @ torch.linalg.pinv(c_tt) @ c_it.T
    scores = []
    for part in (c_ii - driven, driven, c_ii):
        values = torch.linalg.eigvalsh(part)
        values = values[values > 0]
        scores.append(float((values * (values.sum() / values).log()).sum().exp()))
    return scores


def plain_seconds(outputs: Tensor, prompts: Tensor) -> float:
    """Time the plain way: its outer products, which are linear in the samples, on a tenth of them."""
    start = clock()
    plain_covariances(outputs[::10], prompts[::10])
    products = clock() - start
    covariances = [(x.T @ y) / len(x) for x, y in ((outputs, outputs), (outputs, prompts), (prompts, prompts))]
    start = clock()
    plain_scores(*covariances)
    return 10 * products + clock() - start


def scendi_row(x: Tensor, t: Tensor, d: str, metric: ScendiScore, maps: list[Callable[[Tensor], Tensor]]) -> Any:
    metric.to(DEVICE)

    def ours() -> dict[str, Tensor]:
        metric.reset()
        return streamed(metric, x, t)

    doubles = streamed(copy.deepcopy(metric), x.double(), t.double())
    error = abs(float(ours()["scendi"]) / float(doubles["scendi"]) - 1)
    features = [feature_map(side) for feature_map, side in zip(maps, (x, t), strict=True)]
    size = sum(side.shape[1] for side in features)
    plain, operations = plain_seconds(*features), len(x) * size * (size + 1)
    return columns([x, t], d, metric, seconds(ours), {PLAIN: plain}, error, operations)


def scendi_sides(n: int) -> tuple[Tensor, Tensor]:
    """Draw outputs, and their prompts, of which there are 200."""
    return embeddings(n), embeddings(200, seed=1)[torch.arange(n) % 200]


def scendi_case(n: int, r: int) -> Callable[[], dict[str, Any]]:
    """Scendi of Gaussian kernels by random Fourier features."""

    def measure() -> dict[str, Any]:
        x, t = scendi_sides(n)
        kernels = [GaussianKernel().resolved(side) for side in (x, t)]
        frequencies = [random_features(kernel, DIM, r, 0).frequencies for kernel in kernels]
        maps = [functools.partial(fourier_features, frequencies=some) for some in frequencies]
        return scendi_row(x, t, f"2 × {r} frequencies", ScendiScore(*kernels, num_features=r), maps)

    measure.__name__ = f"Scendi_{n}_by_2x{r}_frequencies"
    return measure


def Scendi_5000_cosine() -> dict[str, Any]:  # noqa: N802
    x, t = scendi_sides(5000)
    return scendi_row(x, t, f"{DIM} + {DIM}", ScendiScore(), [unit_sphere, unit_sphere])


if __name__ == "__main__":
    cases = [
        *(dual_case(n) for n in (1_000, 5_000, 20_000, 50_000)),
        RKE_50000_against_score_dual,
        *(gram_case(n) for n in (1_000, 5_000)),
        Vendi_2000_Gaussian_against_score_K,
        Scendi_5000_cosine,
        scendi_case(5_000, 500),
    ]
    run(__file__, cases, "Vendi, RKE and Scendi against their peers", [scendi_case(5_000, 2_000)], notes=NOTES)
