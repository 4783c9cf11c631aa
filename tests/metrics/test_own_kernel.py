# SPDX-License-Identifier: Apache-2.0
"""Kernels of a user's own, each stating something else, through all that takes a kernel: right, or refused by name."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
import torch
from _helpers import entropy_references as twin
from _helpers import references as ref
from _helpers.joint_spectra import by_side, ken_total
from torch import Tensor

from genmonitor import (
    ConditionalVendiScore,
    CosineMeanSimilarity,
    MaximumMeanDiscrepancy,
    PixelCKA,
    PixelPartition,
    PromptSplit,
    RKEScore,
    ScendiScore,
    VendiScore,
)
from genmonitor.functional import (
    centered_kernel_alignment,
    joint_diversity,
    mmd_influence,
    pixel_cka,
    prompt_split_energy,
    relative_similarity_test,
)
from genmonitor.functional.kernel_means import kernel_dispersion
from genmonitor.kernels import GaussianKernel, Kernel

GAMMA = 0.4


@dataclass(frozen=True)
class RationalQuadratic(Kernel):
    """1 / (1 + gamma ‖x - y‖²): a sum over sites, but no exponential of one."""

    shift_invariant: ClassVar[bool] = True

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        return (x[:, None] - y).square().sum(2)

    def decay(self, distances: Tensor) -> Tensor:
        return 1 / (1 + self.resolved_gamma * distances)


@dataclass(frozen=True)
class Euclidean(Kernel):
    """exp(-gamma ‖x - y‖₂): an exponential, but not of a sum over sites."""

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        return (x[:, None] - y).square().sum(2).sqrt()


@dataclass(frozen=True)
class ChiSquared(Kernel):
    """exp(-gamma Σ (x - y)² / (x + y)): the product of its sites, but not shift-invariant."""

    factorizes: ClassVar[bool] = True

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        return ((x[:, None] - y).square() / (x[:, None] + y)).sum(2)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(1 + ⟨x, y⟩)² over its values on the diagonal: no distance, no gamma, nothing stated."""

    takes_gamma: ClassVar[bool] = False

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        norms = [(1 + side.square().sum(1)).square() for side in (x, y)]
        return (1 + x @ y.T).square() / (norms[0][:, None] * norms[1]).sqrt()


def distances(x: ref.Array, y: ref.Array, kind: str) -> ref.Array:
    a, b = x[:, None], y[None]
    squares = (a - b) ** 2
    return {
        "rational": lambda: squares.sum(2),
        "euclidean": lambda: np.sqrt(squares.sum(2)),
        "chi": lambda: (squares / (a + b)).sum(2),
    }[kind]()


def gram(x: ref.Array, y: ref.Array, kind: str, gamma: float = GAMMA) -> ref.Array:
    if kind == "polynomial":
        value = (1 + x @ y.T) ** 2
        return value / np.sqrt(np.outer((1 + (x**2).sum(1)) ** 2, (1 + (y**2).sum(1)) ** 2))
    decay = (lambda d: 1 / (1 + gamma * d)) if kind == "rational" else (lambda d: np.exp(-gamma * d))
    return decay(distances(x, y, kind))


KERNELS = {
    "rational": RationalQuadratic(GAMMA),
    "euclidean": Euclidean(GAMMA),
    "chi": ChiSquared(GAMMA),
    "polynomial": Polynomial(),
}
WITH_GAMMA = [kind for kind in KERNELS if kind != "polynomial"]
FACTORIZING = ["chi"]
LABELS = torch.tensor([[1, 1, 2], [0, 2, 2]])
PARTITION = PixelPartition(LABELS)
every = pytest.mark.parametrize("kind", KERNELS)
decaying = pytest.mark.parametrize("kind", WITH_GAMMA)


def images(n: int, seed: int, power: float = 1.0) -> Tensor:
    """Positive images, since the chi-squared kernel is of histograms."""
    x = torch.rand(n, 2, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 0.1 + ((x + x.roll(1, dims=-1)) / 2) ** power


def sides(kind: str) -> tuple[Tensor, Tensor, ref.Array, ref.Array, ref.Array]:
    fake, real = images(24, 1, 1.5), images(30, 2)
    x, y = fake.flatten(1).numpy(), real.flatten(1).numpy()
    return fake, real, gram(x, x, kind), gram(x, y, kind), gram(y, y, kind)


def off_diagonal(k: ref.Array) -> float:
    return float(k[~np.eye(len(k), dtype=bool)].mean())


def mmd_of(xx: ref.Array, xy: ref.Array, yy: ref.Array) -> float:
    return off_diagonal(xx) + off_diagonal(yy) - 2 * float(xy.mean())


def cms_of(xx: ref.Array, xy: ref.Array, yy: ref.Array) -> float:
    return float(xy.mean() / np.sqrt(xx.mean() * yy.mean()))


def fed(metric, fake: Tensor, real: Tensor):
    metric.update(fake, real=False)
    metric.update(real, real=True)
    return metric.compute()


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel(kind, dtype):
    fake, real, _, xy, _ = sides(kind)
    found = KERNELS[kind](fake.flatten(1).to(dtype), real.flatten(1).to(dtype))
    np.testing.assert_allclose(found, xy, rtol=1e-5 if dtype == torch.float32 else 1e-12)


@decaying
def test_median_heuristic(kind):
    x = images(12, 3).flatten(1)
    pairs = distances(x.numpy(), x.numpy(), kind)[np.triu_indices(12, 1)]
    assert type(KERNELS[kind])().resolved(x).gamma == pytest.approx(1 / np.median(pairs))


@every
def test_mmd_and_cms(kind):
    fake, real, *grams = sides(kind)
    assert float(fed(MaximumMeanDiscrepancy(KERNELS[kind]), fake, real)) == pytest.approx(mmd_of(*grams))
    assert float(fed(CosineMeanSimilarity(kernel=KERNELS[kind]), fake, real)) == pytest.approx(cms_of(*grams))


@every
def test_cms_of_regions(kind):
    """Of a kernel that is no product over pixels the image's value is not the product of its regions'."""
    kernel = KERNELS[kind]
    if kind not in FACTORIZING:
        with pytest.raises(ValueError, match=f"but got {type(kernel).__name__}.*not a product over pixels"):
            CosineMeanSimilarity(PARTITION, kernel)
        return
    fake, real, *grams = sides(kind)
    found = fed(CosineMeanSimilarity(PARTITION, kernel), fake, real)
    assert float(found["image"]) == pytest.approx(cms_of(*grams))
    for name, label in PARTITION.regions().items():
        x, y = (ref.region(side.numpy(), LABELS.numpy(), label) for side in (fake, real))
        expected = cms_of(gram(x, x, kind), gram(x, y, kind), gram(y, y, kind))
        assert float(found[name]) == pytest.approx(expected)


@every
def test_influences_on_mmd(kind):
    kernel, (fake, real, *grams) = KERNELS[kind], sides(kind)
    if kind == "polynomial":
        with pytest.raises(ValueError, match=r"a gamma, but got Polynomial\("):
            mmd_influence(fake, real, kernel=kernel, partition=PARTITION)
        return
    found = mmd_influence(fake, real, kernel=kernel, partition=PARTITION)
    regions = (
        [(side.flatten(1).numpy()) for side in (fake, real)],
        *(
            [ref.region(side.numpy(), LABELS.numpy(), label) for side in (fake, real)]
            for label in PARTITION.regions().values()
        ),
    )
    for index, (x, y) in enumerate(regions):
        xx, xy, yy = gram(x, x, kind), gram(x, y, kind), gram(y, y, kind)
        assert float(found.mmd[index]) == pytest.approx(mmd_of(xx, xy, yy))
        assert float(found.by_gamma[index, 0]) == pytest.approx(mmd_of(xx, xy, yy))
        without = [mmd_of(np.delete(np.delete(xx, i, 0), i, 1), np.delete(xy, i, 0), yy) for i in range(len(x))]
        jackknife = (len(x) - 1) * (mmd_of(xx, xy, yy) - np.array(without))
        np.testing.assert_allclose(found.fake[index], jackknife - jackknife.mean(), atol=1e-12)
    alone = mmd_influence(fake, real, kernel=kernel)
    torch.testing.assert_close(alone.mmd, found.mmd[:1])
    torch.testing.assert_close(alone.fake, found.fake[:1])
    other = images(26, 5, 0.7)
    difference = mmd_of(*(gram(a, b, kind) for a, b in _pairs(other, real))) - mmd_of(*grams)
    tested = relative_similarity_test(fake, other, real, kernel=kernel, partition=PARTITION)["image"]
    assert float(tested.difference) == pytest.approx(difference)


def _pairs(fake: Tensor, real: Tensor) -> list[tuple[ref.Array, ref.Array]]:
    x, y = fake.flatten(1).numpy(), real.flatten(1).numpy()
    return [(x, x), (x, y), (y, y)]


@every
@pytest.mark.parametrize(("patch", "batch_estimator"), [(1, 15), (2, None)])
def test_cka_of_pixels(kind, patch, batch_estimator):
    kernel, x = KERNELS[kind], images(30, 4)[..., :2]
    if kind == "polynomial":
        with pytest.raises(ValueError, match=r"a gamma, but got Polynomial\("):
            pixel_cka(x, kernel=kernel)
        return
    batches = [x] if batch_estimator is None else list(x.split(batch_estimator))
    expected = np.mean([_cka(batch, kind, patch) for batch in batches], 0)
    arguments = {"kernel": kernel, "patch_size": patch, "batch_estimator": batch_estimator}
    np.testing.assert_allclose(pixel_cka(x, **arguments), expected, atol=1e-12)
    np.testing.assert_allclose(pixel_cka(x.float(), **arguments), expected, atol=1e-5)
    metric = PixelCKA(**arguments)
    metric.update(x[:13])
    metric.update(x[13:])
    np.testing.assert_allclose(metric.compute(), expected, atol=1e-12)


def _cka(x: Tensor, kind: str, patch: int) -> ref.Array:
    grams = [gram(values, values, kind) for values in ref.sites(x.numpy(), patch)]
    return np.array([[ref.hsic(k, m) / math.sqrt(ref.hsic(k, k) * ref.hsic(m, m)) for k in grams] for m in grams])


@every
def test_cka_of_two_sets(kind):
    x, y = images(20, 4).flatten(1), images(20, 5).flatten(1)[:, :5] + images(20, 4).flatten(1)[:, :5]
    k, m = gram(x.numpy(), x.numpy(), kind), gram(y.numpy(), y.numpy(), kind)
    expected = ref.hsic(k, m) / math.sqrt(ref.hsic(k, k) * ref.hsic(m, m))
    assert float(centered_kernel_alignment(x, y, kernel=KERNELS[kind])) == pytest.approx(expected)


@every
def test_diversity(kind):
    x = images(30, 6).flatten(1)
    k = gram(x.numpy(), x.numpy(), kind)
    for metric, expected in (
        (VendiScore(KERNELS[kind]), twin.vendi(k)),
        (VendiScore(KERNELS[kind], order=2), twin.vendi(k, 2)),
        (RKEScore(KERNELS[kind]), twin.vendi(k, 2)),
    ):
        metric.update(x)
        assert float(metric.compute()) == pytest.approx(expected)
    assert float(kernel_dispersion(x, KERNELS[kind]).value) == pytest.approx(1 - off_diagonal(k))
    with pytest.raises(ValueError, match=f"random features.*but got {type(KERNELS[kind]).__name__}"):
        VendiScore(KERNELS[kind], num_features=4)


@every
def test_diversity_beyond_prompts(kind):
    kernel, x = KERNELS[kind], images(30, 6).flatten(1)
    t = images(5, 7).flatten(1)[torch.arange(30) % 5, :4]
    k, m = (gram(side.numpy(), side.numpy(), kind) for side in (x, t))
    roots = []
    for matrix in (k, m):  # features with these products
        values, vectors = np.linalg.eigh(matrix)
        roots.append(vectors * np.sqrt(values.clip(0)))
    for metric, expected in (
        (ScendiScore(kernel, kernel), twin.scendi(*roots)),
        (ConditionalVendiScore(kernel, kernel), twin.conditional_vendi(k, m)),
    ):
        metric.update(x, t)
        found = {name: float(value) for name, value in metric.compute().items()}
        assert found == pytest.approx(expected, rel=1e-5)


@every
def test_disagreement(kind):
    kernel = KERNELS[kind]
    x, y = images(24, 8).flatten(1), images(20, 9, 1.4).flatten(1)
    t, u = (images(6, 10).flatten(1)[torch.arange(len(side)) % 6, :4] for side in (x, y))

    def k(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> ref.Array:
        return gram(a.numpy(), b.numpy(), kind) * gram(c.numpy(), d.numpy(), kind)

    xx, xy, yy = k(x, x, t, t), k(x, y, t, u), k(y, y, u, u)
    n, m = len(x), len(y)
    across = xy / np.sqrt(n * m)
    eigenvalues = np.linalg.eigvals(np.block([[xx / n, across], [-across.T, -yy / m]])).real
    metric = PromptSplit(kernel, kernel, num_modes=3)
    metric.update(x, t, reference=False)
    metric.update(y, u, reference=True)
    found = metric.compute()
    np.testing.assert_allclose(found["eigenvalues"], by_side(eigenvalues, 3), atol=1e-8)
    assert float(found["total"]) == pytest.approx(ken_total(eigenvalues), rel=1e-4)
    arguments = {"output_kernel": kernel, "prompt_kernel": kernel}
    energy = (xx**2).mean() - 2 * (xy**2).mean() + (yy**2).mean()
    assert float(prompt_split_energy(x, t, y, u, **arguments)) == pytest.approx(energy)
    assert float(joint_diversity(x, t, **arguments)) == pytest.approx((xx**2).mean())
    with pytest.raises(ValueError, match=f"`num_features`.*but got {type(kernel).__name__}"):
        PromptSplit(kernel, kernel, num_features=4)


@dataclass(frozen=True)
class Tagged(GaussianKernel):
    """A kernel that has no hash."""

    tags: list[str] = field(default_factory=list)


def test_a_kernel_without_a_hash_has_random_features():
    x = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
    t = x.flip(1)
    found = {}
    for kernel in (Tagged(GAMMA), GaussianKernel(GAMMA)):
        vendi, scendi = VendiScore(kernel, num_features=6), ScendiScore(kernel, kernel, num_features=6)
        split = PromptSplit(kernel, kernel, num_features=6)
        vendi.update(x)
        scendi.update(x, t)
        split.update(x, t, reference=False)
        split.update(t, x, reference=True)
        found[type(kernel)] = vendi.compute(), scendi.compute(), split.compute()["eigenvalues"]
    torch.testing.assert_close(found[Tagged], found[GaussianKernel])


@dataclass(frozen=True)
class Linear(Kernel):
    """⟨x, y⟩, which is no kernel with k(x, x) = 1."""

    takes_gamma: ClassVar[bool] = False

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y.T


def test_a_kernel_that_is_not_one_on_its_diagonal_is_refused():
    fake, real, *_ = sides("rational")
    for metric in (MaximumMeanDiscrepancy(Linear()), CosineMeanSimilarity(kernel=Linear())):
        with pytest.raises(ValueError, match=r"k\(x, x\) = 1, but that of Linear.*divide by"):
            fed(metric, fake, real)
    for metric in (VendiScore(Linear()), RKEScore(Linear())):
        metric.update(real.flatten(1))
        with pytest.raises(ValueError, match=r"k\(x, x\) = 1, but that of"):
            metric.compute()
