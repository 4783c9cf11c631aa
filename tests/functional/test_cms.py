# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
import torch
from _helpers import references as ref
from _helpers.golden import CMS, CMS_BLOCKS_OF_150, FAKE, GAMMA, REAL, digits, partition
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel, PixelPartition
from genmonitor.functional import cosine_mean_similarity, pixel_cka

KINDS = {"gaussian": GaussianKernel, "laplacian": LaplacianKernel}
LABELS = np.array([[1, 1, 2, 2], [1, 0, 0, 2], [3, 3, 1, 2], [3, 3, 1, 1]])


def draw(n: int, *shape: int, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    return shift + torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-8), (torch.float64, 6e-10)])
def test_digits(dtype, error):
    images = digits().to(dtype)
    found = cosine_mean_similarity(images[FAKE], images[REAL], kernel=GaussianKernel(GAMMA), partition=partition())
    assert {name: float(found[name]) for name in CMS} == pytest.approx(CMS, abs=error)
    logs = {name: math.log(CMS[f"cluster_{name}"]) for name in "12345"}
    shares = {name: log / sum(logs.values()) for name, log in logs.items()}
    assert {name: float(found[f"share_{name}"]) for name in "12345"} == pytest.approx(shares, abs=1e-4)
    assert found["share_constant"] == found["violations"] == 0
    whole = cosine_mean_similarity(images[FAKE], images[REAL], kernel=GaussianKernel(GAMMA))
    assert float(whole) == pytest.approx(CMS["image"], abs=error)
    assert {value.dtype for value in [whole, *found.values()]} == {torch.float64}


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-8), (torch.float64, 2e-9)])
def test_digits_in_blocks_of_150(dtype, error):
    images = digits().to(dtype)
    found = cosine_mean_similarity(images[FAKE], images[REAL], kernel=GaussianKernel(GAMMA), block_size=150)
    assert float(found) == pytest.approx(CMS_BLOCKS_OF_150, abs=error)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_twin(kind, channels, block, unbiased):
    fake, real = draw(12, channels, 4, 4), draw(20, channels, 4, 4, seed=1, shift=0.3)
    options = {"block": block, "unbiased": unbiased}
    regions = {
        name: ref.cms(*(ref.region(side.numpy(), LABELS, label) for side in (fake, real)), 0.05, kind, **options)
        for label, name in enumerate(["constant", "cluster_1", "cluster_2", "cluster_3"])
    }
    expected = regions | {
        "image": ref.cms(ref.flat(fake.numpy()), ref.flat(real.numpy()), 0.05, kind, **options),
        "product": np.prod(list(regions.values())),
    }
    found = cosine_mean_similarity(
        fake,
        real,
        kernel=KINDS[kind](0.05),
        partition=PixelPartition(torch.from_numpy(LABELS)),
        block_size=block,
        unbiased=unbiased,
    )
    assert {name: float(found[name]) for name in expected} == pytest.approx(expected, rel=1e-12)
    assert int(found["violations"]) == sum(expected["image"] > value + 1e-7 for value in regions.values())


def test_twin_on_patches():
    fake, real = draw(12, 2, 4, 6), draw(9, 2, 4, 6, seed=1)
    labels = torch.tensor([[1, 2, 2], [1, 1, 2]])
    found = cosine_mean_similarity(
        fake, real, kernel=GaussianKernel(0.05), partition=PixelPartition(labels, patch_size=2)
    )
    pixel_labels = np.kron(labels, np.ones((2, 2), int))
    for label in (1, 2):
        sides = (ref.region(side.numpy(), pixel_labels, label) for side in (fake, real))
        assert float(found[f"cluster_{label}"]) == pytest.approx(ref.cms(*sides, 0.05))


def test_gamma_that_is_not_given_is_of_the_real_side():
    fake, real = draw(10, 5, shift=4), draw(12, 5, seed=1)
    expected = ref.cms(fake.numpy(), real.numpy(), ref.median_gamma(real.numpy()))
    assert float(cosine_mean_similarity(fake, real)) == pytest.approx(expected)
    assert float(cosine_mean_similarity(real, fake)) != pytest.approx(expected, rel=1e-3)


def test_one_gamma_serves_all_clusters():
    fake, real = draw(10, 1, 2, 4), draw(12, 1, 2, 4, seed=1)
    gamma = ref.median_gamma(ref.flat(real.numpy()))
    found = cosine_mean_similarity(fake, real, partition=PixelPartition.grid((2, 4), 1, 2))
    sides = (side[..., :2].flatten(1).numpy() for side in (fake, real))
    assert float(found["cluster_1"]) == pytest.approx(ref.cms(*sides, gamma))


def test_the_product_is_exact_for_independent_clusters():
    """Theorem 1: every combination of a left and a right half is as likely as its parts are together."""

    def outer(left, right):
        return torch.cat([left.repeat_interleave(len(right), 0), right.repeat(len(left), 1)], 1).reshape(-1, 1, 1, 4)

    fake = outer(draw(5, 2), draw(6, 2, seed=1))
    real = outer(draw(7, 2, seed=2, shift=1), draw(4, 2, seed=3))
    halves = PixelPartition.grid((1, 4), 1, 2)
    found = cosine_mean_similarity(fake, real, kernel=GaussianKernel(0.3), partition=halves)
    assert float(found["image"]) == pytest.approx(float(found["product"]), rel=1e-12)
    assert found["image"] < 0.9
    assert found["violations"] == 0
    # the right partition only
    mixed = PixelPartition(torch.tensor([[1, 2, 1, 2]]))
    other = cosine_mean_similarity(fake, real, kernel=GaussianKernel(0.3), partition=mixed)
    assert float(other["image"]) == pytest.approx(float(found["image"]), rel=1e-12)
    assert abs(float(other["image"] - other["product"])) > 1e-3


def test_independence_of_any_two_clusters_is_not_enough():
    """Three pixels of ±1, the third the product of the others on one side and minus that product on the other."""
    two = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    fake, real = (torch.cat([two, sign * two.prod(1, keepdim=True)], 1).reshape(4, 1, 1, 3) for sign in (1, -1))
    kernel = GaussianKernel.from_sigma(1)
    for side in (fake, real):
        torch.testing.assert_close(pixel_cka(side, kernel=kernel), torch.eye(3).double(), rtol=0, atol=1e-6)
    found = cosine_mean_similarity(fake, real, kernel=kernel, partition=PixelPartition(torch.tensor([[1, 2, 3]])))
    assert float(found["product"]) == pytest.approx(1, abs=1e-12)
    assert float(found["image"]) == pytest.approx(0.387, abs=5e-4)


def test_the_blame_falls_on_the_cluster_that_is_off():
    real = draw(60, 1, 2, 4)
    fake = draw(60, 1, 2, 4, seed=1)
    fake[..., 2:] += 2
    found = cosine_mean_similarity(fake, real, partition=PixelPartition.grid((2, 4), 1, 2))
    shares = [float(found[f"share_{k}"]) for k in (1, 2)]
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    assert shares[1] > 0.8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_sides_have_nobody_to_blame(dtype):
    x = draw(30, 1, 2, 4).to(dtype)
    found = cosine_mean_similarity(x, x, partition=PixelPartition.grid((2, 4), 2, 2))
    values = {name: float(value) for name, value in found.items()}
    assert values["image"] == pytest.approx(1, abs=1e-7)
    assert all(values[name] == pytest.approx(1, abs=1e-7) for name in ("product", "cluster_1", "cluster_4"))
    assert values["violations"] == 0


def test_no_shares_where_every_value_is_exactly_1():
    x = torch.ones(4, 1, 1, 2)
    found = cosine_mean_similarity(x, x, kernel=GaussianKernel(1.0), partition=PixelPartition.grid((1, 2), 1, 2))
    assert [float(found[name]) for name in ("image", "share_1", "share_2", "violations")] == [1, 0, 0, 0]


def test_a_generator_far_away_still_has_shares():
    real = draw(20, 1, 1, 4).float()
    fake = real.clone()
    fake[..., 2:] += 1e4
    found = cosine_mean_similarity(fake, real, partition=PixelPartition.grid((1, 4), 1, 2))
    assert found["cluster_2"] == found["image"] == 0
    assert float(found["share_1"] + found["share_2"]) == pytest.approx(1)
    assert found["share_2"] > 0.99


def test_a_region_below_the_image_is_a_violation():
    # left and right depend on each other among the real ones: both are off in the first
    fake = torch.tensor([[-1.0, -3], [-1, -3]]).reshape(2, 1, 1, 2)
    real = torch.tensor([[2.0, 2], [-1, 2], [-1, -3]]).reshape(3, 1, 1, 2)
    found = cosine_mean_similarity(fake, real, kernel=GaussianKernel(0.3), partition=PixelPartition.grid((1, 2), 1, 2))
    image = ref.cms(ref.flat(fake.numpy()), ref.flat(real.numpy()), 0.3)
    left, right = (ref.cms(fake[..., k].flatten(1).numpy(), real[..., k].flatten(1).numpy(), 0.3) for k in (0, 1))
    assert right < image - 0.1 < image < left
    assert found["violations"] == 1


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(2, 9), m=st.integers(2, 9), gamma=st.floats(0.01, 2), seed=st.integers(0, 99))
def test_range_symmetry_and_order(n, m, gamma, seed):
    x, y = draw(n, 3, seed=seed), draw(m, 3, seed=seed + 1, shift=0.5)
    kernel = GaussianKernel(gamma)
    value = float(cosine_mean_similarity(x, y, kernel=kernel))
    assert 0 <= value <= 1 + 1e-12
    assert float(cosine_mean_similarity(y, x, kernel=kernel)) == pytest.approx(value)
    assert float(cosine_mean_similarity(x.flip(0), y.flip(0), kernel=kernel)) == pytest.approx(value)
    assert float(cosine_mean_similarity(x, y + 3, kernel=kernel)) <= value + 1e-3
    assert float(cosine_mean_similarity(x, x, kernel=kernel)) == pytest.approx(1)


def test_float32_far_from_zero():
    x, y = (100 + draw(50, 512) / 100).float(), (100 + draw(40, 512, seed=1) / 100).float()
    exact = float(cosine_mean_similarity(x.double(), y.double()))
    assert float(cosine_mean_similarity(x, y)) == pytest.approx(exact, abs=1e-6)


def test_a_cosine_that_is_not_defined_is_refused():
    opposite, alike = torch.tensor([[1.0, 0], [-1, 0]]), torch.tensor([[1.0, 0], [1, 1]])
    for fake, real in [(opposite, alike), (alike, opposite), (opposite, opposite)]:
        with pytest.raises(ValueError, match=r"positive squared norms, but got -1\..*`unbiased=False`"):
            cosine_mean_similarity(fake, real, kernel=CosineKernel(), unbiased=True)


CASES = {
    "plain": {},
    "blocks": {"block_size": 2},
    "unbiased": {"unbiased": True},
    "laplacian": {"kernel": LaplacianKernel(0.3)},
    "cosine": {"kernel": CosineKernel()},
    "regions": {"partition": PixelPartition.grid((1, 2), 1, 2)},
}


@pytest.mark.parametrize("case", CASES)
def test_gradient(case):
    options = {"kernel": GaussianKernel(0.3)} | CASES[case]

    def values(x, y):
        out = cosine_mean_similarity(x, y, **options)
        return torch.stack([out[name] for name in ("image", "product", "share_1")]) if isinstance(out, dict) else out

    shape = (1, 1, 2) if "partition" in options else (2,)
    x, y = (side.requires_grad_() for side in (draw(4, *shape), draw(6, *shape, seed=1, shift=1)))
    assert torch.autograd.gradcheck(values, (x, y))
