# SPDX-License-Identifier: Apache-2.0
"""Scores of data that float32 products do not hold, against NumPy: samples far out, far apart, huge, tiny."""

import numpy as np
import pytest
import torch
from _helpers import entropy_references as twin
from _helpers import joint_spectra
from _helpers import references as ref
from torch import Tensor

from genmonitor import (
    CosineKernel,
    CosineMeanSimilarity,
    GaussianKernel,
    LaplacianKernel,
    MaximumMeanDiscrepancy,
    PixelPartition,
    RKEScore,
    VendiScore,
)
from genmonitor.functional import (
    cosine_mean_similarity,
    maximum_mean_discrepancy,
    precision_recall_density_coverage,
    prompt_split,
    prompt_split_energy,
    rke_score,
    vendi_score,
)

KINDS = {"gaussian": GaussianKernel, "laplacian": LaplacianKernel}
HALVES = PixelPartition(torch.tensor([[1, 1, 2, 2]] * 4))


def images(n: int, seed: int) -> Tensor:
    return torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))


def sides(case: str) -> tuple[Tensor, Tensor]:
    fake, real = images(40, 0), images(50, 1)
    kind, _, value = case.partition(" ")
    if kind == "image":
        real[0] = float(value)
    elif kind == "pixel":
        real[0, 0, 2, 3] = float(value)
    elif kind == "generated":
        fake[:3] = float(value)
    elif kind == "constant":
        fake = (real[:1] + float(value)).expand(40, 3, 4, 4).clone()
    elif kind == "gray":
        fake = torch.full((40, 3, 4, 4), float(value))
    elif kind == "scale":
        fake, real = float(value) * fake, float(value) * real
    elif kind == "narrow":  # a tenth of the spread, so that the width is a hundredth, at the same distance
        fake, real = (0.1 * real[:1] + float(value)).expand(40, 3, 4, 4).clone(), 0.1 * real
    return fake, real


CASES = [
    "plain",
    *(f"{kind} {value}" for kind in ("image", "pixel", "generated") for value in ("1e2", "1e6", "1e12", "-1e25")),
    *(f"{kind} {value}" for kind in ("constant", "gray", "narrow") for value in ("0.37", "3.1", "10.1", "1e4")),
    *(f"scale {value}" for value in ("1e-25", "1e-12", "1e12", "1e25")),
]
cases = pytest.mark.parametrize("case", CASES)


def flat(*sides: Tensor) -> list[np.ndarray]:
    return [side.double().flatten(1).numpy() for side in sides]


@pytest.mark.parametrize("kind", KINDS)
@cases
def test_cms_and_mmd(case, kind):
    fake, real = sides(case)
    kernel = KINDS[kind]().resolved(real.flatten(1))
    x, y = flat(fake, real)
    assert kernel.resolved_gamma == pytest.approx(ref.median_gamma(y, kind), rel=1e-6)
    found = cosine_mean_similarity(fake, real, kernel=kernel, partition=HALVES)
    expected = {"image": ref.cms(x, y, kernel.resolved_gamma, kind)}
    for label in (1, 2):
        halves = (ref.region(side.double().numpy(), HALVES.labels.numpy(), label) for side in (fake, real))
        expected[f"cluster_{label}"] = ref.cms(*halves, kernel.resolved_gamma, kind)
    assert {name: float(found[name]) for name in expected} == pytest.approx(expected, abs=1e-6)
    assert all(found[name] <= 1 + 1e-6 for name in expected)
    mmd = float(maximum_mean_discrepancy(fake, real, kernel=kernel))
    assert mmd == pytest.approx(ref.mmd(x, y, kernel.resolved_gamma, kind), abs=1e-6)
    for metric, value in ((CosineMeanSimilarity(), expected["image"]), (MaximumMeanDiscrepancy(), mmd)):
        if kind == "gaussian":
            metric.update(real, real=True)
            metric.update(fake, real=False)
            assert float(metric.compute()) == pytest.approx(value, abs=1e-6)


@cases
def test_rke_and_vendi(case):
    fake, real = sides(case)
    x = torch.cat([real, fake]).flatten(1)
    gamma = GaussianKernel().resolved(x).resolved_gamma
    gram = ref.gram(*flat(x, x), gamma)
    for score, metric, expected in (
        (rke_score, RKEScore(GaussianKernel(gamma)), 1 / (gram**2).mean()),
        (vendi_score, VendiScore(GaussianKernel(gamma)), twin.vendi(gram)),
    ):
        metric.update(x)
        assert float(score(x, kernel=GaussianKernel(gamma))) == pytest.approx(expected, rel=5e-6)
        assert float(metric.compute()) == pytest.approx(expected, rel=5e-6)


@pytest.mark.parametrize("value", [1e-25, 1e-15, 1e15, 1e25])
def test_the_cosine_kernel_knows_directions_alone(value):
    x = images(40, 0).flatten(1)
    rows = torch.ones(40, 1)
    rows[::3] = value
    for scaled in (value * x, rows * x):
        assert float(vendi_score(scaled)) == pytest.approx(float(vendi_score(x)), rel=1e-6)
        assert float(rke_score(scaled)) == pytest.approx(float(rke_score(x)), rel=1e-6)
        torch.testing.assert_close(CosineKernel()(scaled, scaled), CosineKernel()(x, x))


@cases
def test_prdc(case):
    fake, real = (side.flatten(1) for side in sides(case))
    found = {name: float(value) for name, value in precision_recall_density_coverage(fake, real, k=4).items()}
    # as seen from 1e12 away, samples are as far as each other but for some 1e-13, little more than rounding
    tie = (fake.shape[1] + 8) * np.finfo(np.float64).eps
    assert found == pytest.approx(twin.prdc(*flat(fake, real), 4, tie), abs=1e-12)


@pytest.mark.parametrize("kinds", [("gaussian", "gaussian"), ("laplacian", "laplacian"), ("gaussian", "laplacian")])
@cases
def test_prompt_split(case, kinds):
    fake, real = (side.flatten(1) for side in sides(case))
    t, u = (torch.eye(5)[torch.arange(len(side)) % 5] for side in (fake, real))
    kernels = [KINDS[kind]().resolved(values) for kind, values in zip(kinds, (real, u), strict=True)]
    x, t_, y, u_ = flat(fake, t, real, u)
    both, prompts = np.concatenate([x, y]), np.concatenate([t_, u_])
    gram = ref.gram(both, both, kernels[0].resolved_gamma, kinds[0]) * ref.gram(
        prompts, prompts, kernels[1].resolved_gamma, kinds[1]
    )
    weights = np.repeat([1 / len(x), -1 / len(y)], [len(x), len(y)])
    expected = np.sort(np.linalg.eigvals(weights[:, None] * gram).real)[::-1]
    options = {"output_kernel": kernels[0], "prompt_kernel": kernels[1]}
    found = prompt_split(fake, t, real, u, **options, num_modes=90)
    np.testing.assert_allclose(found.eigenvalues, joint_spectra.by_side(expected, 90), rtol=0, atol=1e-6)
    assert float(found.total) == pytest.approx(joint_spectra.ken_total(expected), rel=1e-4, abs=1e-5)
    torch.testing.assert_close(found.score(fake[:5], t[:5]), found.scores[:5], rtol=0, atol=1e-5)
    energy = prompt_split_energy(fake, t, real, u, **options)
    assert float(energy) == pytest.approx((expected**2).sum(), abs=2e-6)


@pytest.mark.parametrize("kind", KINDS)
@cases
def test_gram_matrices(case, kind):
    fake, real = (side.flatten(1) for side in sides(case))
    kernel = KINDS[kind]().resolved(real)
    found = kernel(fake, real)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, ref.gram(*flat(fake, real), kernel.resolved_gamma, kind), rtol=0, atol=2e-6)
