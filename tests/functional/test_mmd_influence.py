# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel, PixelPartition
from genmonitor.functional import MMDInfluence, maximum_mean_discrepancy, mmd_influence
from genmonitor.linalg import chunking

LABELS = np.array([[1, 1, 2, 2], [1, 0, 0, 2], [3, 3, 1, 2]])
PARTITION = PixelPartition(torch.from_numpy(LABELS))
NAMES = ("image", "cluster_1", "cluster_2", "cluster_3", "constant")
VALUES = ("mmd", "fake", "real", "second_order", "real_mean", "by_gamma")
MULTIPLIERS = (0.5, 2, 8, 32)


def images(n: int, seed: int, shift: float = 0.0, channels: int = 2) -> torch.Tensor:
    return shift + torch.randn(n, channels, 3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parts(x: torch.Tensor) -> list[np.ndarray]:
    """The values of the image and of each region, in the order of NAMES."""
    return [ref.flat(x.numpy()), *(ref.region(x.numpy(), LABELS, label) for label in (1, 2, 3, 0))]


def widths(real: np.ndarray) -> list[float]:
    """Gammas around one over the mean squared distance of two different real samples."""
    squares = [((real[i] - real[j]) ** 2).sum() for i in range(len(real)) for j in range(i)]
    return [b / np.mean(squares) for b in MULTIPLIERS]


def mean_kernel(x: np.ndarray, y: np.ndarray, real: np.ndarray) -> np.ndarray:
    """A mean of Gaussian kernels over widths."""
    gammas, n = widths(real), len(real)
    center = np.eye(n) - np.ones((n, n)) / n
    centered = [center @ ref.gram(real, real, gamma) @ center for gamma in gammas]
    spreads = [np.sqrt(sum(k[i, j] ** 2 for i in range(n) for j in range(n) if i != j)) for k in centered]
    return np.average([ref.gram(x, y, gamma) for gamma in gammas], axis=0, weights=1 / np.array(spreads))


def mmd(xx: np.ndarray, xz: np.ndarray, zz: np.ndarray) -> float:
    """Gretton et al., Eq. 3."""
    n, m = xz.shape
    return float(
        sum(xx[i, j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
        + sum(zz[i, j] for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
        - 2 * xz.mean()
    )


def left_out(xx: np.ndarray, xz: np.ndarray, zz: np.ndarray) -> np.ndarray:
    """What the value loses without each sample of the first set, N - 1 times, less its mean."""
    n = len(xx)
    others = [[j for j in range(n) if j != i] for i in range(n)]
    values = np.array([mmd(xx[np.ix_(rest, rest)], xz[rest], zz) for rest in others])
    return (n - 1) * (values.mean() - values)


@pytest.mark.parametrize("budget", [chunking.MEMORY_BUDGET, 1000])
@pytest.mark.parametrize("channels", [1, 3])
def test_twin(channels, budget, monkeypatch):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    fake, real = images(9, 0, 0.3, channels), images(12, 1, 0.0, channels)
    found = mmd_influence(fake, real, partition=PARTITION)
    assert found.regions == NAMES
    for region, (x, z) in enumerate(zip(parts(fake), parts(real), strict=True)):
        xx, xz, zz = mean_kernel(x, x, z), mean_kernel(x, z, z), mean_kernel(z, z, z)
        assert float(found.mmd[region]) == pytest.approx(mmd(xx, xz, zz), abs=1e-12)
        assert found.fake[region].numpy() == pytest.approx(left_out(xx, xz, zz), abs=1e-11)
        assert found.real[region].numpy() == pytest.approx(left_out(zz, xz.T, xx), abs=1e-11)
        assert float(found.second_order[region]) == pytest.approx(ref.mmd_second_order(xx, xz), rel=1e-9)
        pairs = zz[~np.eye(len(zz), dtype=bool)]
        assert float(found.real_mean[region]) == pytest.approx(pairs.mean() - 1)
        for value, gamma in zip(found.by_gamma[region], widths(z), strict=True):
            one = mmd(ref.gram(x, x, gamma), ref.gram(x, z, gamma), ref.gram(z, z, gamma))
            assert float(value) == pytest.approx(one, abs=1e-12)


@pytest.mark.parametrize("kernel", [GaussianKernel(0.05), LaplacianKernel(0.05), GaussianKernel()])
def test_kernel_that_is_given_serves_all_regions(kernel):
    fake, real = images(9, 0, 0.3), images(12, 1)
    found = mmd_influence(fake, real, partition=PARTITION, kernel=kernel)
    kernel = kernel.resolved(real.flatten(1))
    assert found.gamma.tolist() == [kernel.gamma] * 5
    for value, x, z in zip(found.mmd, parts(fake), parts(real), strict=True):
        expected = maximum_mean_discrepancy(torch.from_numpy(x), torch.from_numpy(z), kernel=kernel)
        assert float(value) == pytest.approx(float(expected), abs=1e-12)


def test_features_and_images_without_partition_are_one_region():
    fake, real = images(9, 0), images(12, 1)
    whole, flat = mmd_influence(fake, real), mmd_influence(fake.flatten(1), real.flatten(1))
    by_region = mmd_influence(fake, real, partition=PARTITION)
    assert whole.regions == flat.regions == ("image",)
    for name in VALUES:
        assert torch.equal(getattr(whole, name), getattr(flat, name))
        assert torch.allclose(getattr(whole, name)[0], getattr(by_region, name)[0], atol=1e-13)


def test_a_region_where_real_samples_are_constant():
    """It has no gamma of its own and takes the image's."""
    fake, real = images(9, 0), images(12, 1)
    real[..., torch.from_numpy(LABELS == 2)] = 0.1
    found = mmd_influence(fake, real, partition=PARTITION)
    x, z = parts(fake)[0], parts(real)[0]
    expected = mmd(mean_kernel(x, x, z), mean_kernel(x, z, z), mean_kernel(z, z, z))
    assert float(found.mmd[0]) == pytest.approx(expected, abs=1e-12)
    assert found.gamma[2] == found.gamma[0] > 0
    a, c = parts(fake)[2], parts(real)[2]
    kernels = [
        np.mean([ref.gram(*pair, b * float(found.gamma[0])) for b in MULTIPLIERS], 0)
        for pair in ((a, a), (a, c), (c, c))
    ]
    assert float(found.mmd[2]) == pytest.approx(mmd(*kernels), abs=1e-12)
    alike = mmd_influence(real, real, partition=PARTITION)
    assert [float(getattr(alike, name)[2].abs().max()) for name in VALUES] == [0] * 6


def test_real_samples_that_are_all_the_same():
    fake, real = images(9, 0), images(12, 1)
    nothing = mmd_influence(fake, torch.full_like(real, 0.1), partition=PARTITION)
    assert [float(getattr(nothing, name).abs().max()) for name in (*VALUES, "gamma")] == [0] * 7


@pytest.mark.parametrize(
    ("shift", "scale"), [(0, 1), (100, 0.01), (0, 1e-15), (0, 1e15)], ids=["usual", "far", "tiny", "huge"]
)
def test_float32(shift, scale):
    fake, real = ((shift + scale * x).float() for x in (images(40, 0, 0.3), images(50, 1)))
    found = mmd_influence(fake, real, partition=PARTITION)
    exact = mmd_influence(fake.double(), real.double(), partition=PARTITION)
    for name in VALUES:
        assert getattr(found, name).dtype == torch.float64
        assert torch.allclose(getattr(found, name), getattr(exact, name), rtol=0, atol=2e-6)


def test_a_wide_kernel_loses_nothing_in_float32():
    fake, real, kernel = images(40, 0, 0.3), images(50, 1), GaussianKernel(1e-9)
    found = mmd_influence(fake.float(), real.float(), kernel=kernel)
    exact = mmd_influence(fake, real, kernel=kernel)
    assert float(found.mmd) == pytest.approx(float(exact.mmd), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8])
def test_other_dtypes_are_promoted(dtype):
    fake, real = (images(9, seed).abs().mul(60).clamp_max(255).to(dtype) for seed in (0, 1))
    scale = 255 if dtype == torch.uint8 else 1
    found = mmd_influence(fake, real, partition=PARTITION)
    exact = mmd_influence(fake.double() / scale, real.double() / scale, partition=PARTITION)
    assert torch.allclose(found.fake, exact.fake, rtol=0, atol=2e-6)


def test_autocast_and_gradients_do_not_matter():
    fake, real = images(9, 0).float(), images(12, 1).float()
    plain = mmd_influence(fake, real)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = mmd_influence(fake.requires_grad_(), real)
    assert torch.equal(found.fake, plain.fake)
    assert not found.mmd.requires_grad


def test_state_goes_through_a_file(tmp_path):
    found = mmd_influence(images(9, 0), images(12, 1), partition=PARTITION)
    torch.save(found._asdict(), tmp_path / "state.pt")
    again = MMDInfluence(**torch.load(tmp_path / "state.pt", weights_only=True))
    assert again.regions == found.regions
    assert all(torch.equal(getattr(again, name), getattr(found, name)) for name in (*VALUES, "gamma"))


WITH_NAN = images(9, 0)
WITH_NAN[0, 0, 0, 0] = float("nan")
REFUSED = {
    "nan": (lambda: mmd_influence(WITH_NAN, images(9, 1)), "`fake` to be finite, but 1 of its 216"),
    "few": (lambda: mmd_influence(images(9, 0), images(7, 1)), "`real` to hold at least 8 samples, but got 7"),
    "shape": (lambda: mmd_influence(images(9, 0), images(9, 1, channels=1)), r"`fake` of shape \[N, 1, 3, 4\]"),
    "partition": (
        lambda: mmd_influence(images(9, 0), images(9, 1), partition=PixelPartition.grid((2, 2), 1, 2)),
        "`fake` of size 2×2 like the partition, but got 3×4",
    ),
    "features": (
        lambda: mmd_influence(images(9, 0).flatten(1), images(9, 1).flatten(1), partition=PARTITION),
        r"`fake` as images \[N, C, H, W\] with a partition, but got \[9, 24\]",
    ),
    "cosine": (lambda: mmd_influence(images(9, 0), images(9, 1), kernel=CosineKernel()), "`kernel` to be a GaussianK"),
    "width": (lambda: mmd_influence(images(9, 0), images(9, 1), kernel=1.0), "`kernel` to be a kernel"),
    "range": (lambda: mmd_influence(images(9, 0), 1e200 * images(9, 1)), "squared distances fit in float64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_chance_is_how_much_real_samples_differ():
    real = images(200, 0)
    by_gamma = torch.stack(
        [mmd_influence(images(100, 1 + seed), real, partition=PARTITION).by_gamma for seed in range(40)]
    )
    chance = mmd_influence(images(100, 1), real, partition=PARTITION).by_chance
    assert torch.allclose(by_gamma.std(0)[:, :2], chance[:, :2], rtol=0.5)  # of the wide ones: few samples suffice
