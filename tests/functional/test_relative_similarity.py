# SPDX-License-Identifier: Apache-2.0
from itertools import combinations_with_replacement, product
from math import factorial

import numpy as np
import pytest
import torch
from _helpers import references as ref
from scipy.stats import norm

from genmonitor import GaussianKernel, LaplacianKernel, PixelPartition
from genmonitor.functional import (
    maximum_mean_discrepancy,
    mmd_influence,
    relative_similarity_from_influences,
    relative_similarity_test,
)
from genmonitor.functional.relative_similarity import RealSide
from genmonitor.linalg import chunking

HALVES = PixelPartition.grid((2, 4), 1, 2)
KERNEL = GaussianKernel(0.1)


def images(n: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    return shift + torch.randn(n, 1, 2, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numbers(found: dict) -> list[list[float]]:
    return [[float(value) for value in region] for region in found.values()]


def jackknife(samples: dict[str, np.ndarray], name: str) -> float:
    """The variance of the difference from leaving out the samples of one set, one at a time."""

    def difference(sets):
        return ref.mmd(sets["other"], sets["real"], 0.1, unbiased=True) - ref.mmd(
            sets["fake"], sets["real"], 0.1, unbiased=True
        )

    names = ("fake", "other") if name == "pairs" else (name,)
    n = len(samples[names[0]])
    values = [difference(samples | {key: np.delete(samples[key], i, axis=0) for key in names}) for i in range(n)]
    return (n - 1) * float(np.var(values))


@pytest.mark.parametrize("paired", [False, True])
def test_twin(paired):
    x, y, z = images(10, 0, 0.2), images(10 if paired else 13, 1, 0.5), images(12, 2)
    found = relative_similarity_test(x, y, z, kernel=KERNEL, partition=HALVES, paired=paired)
    assert list(found) == ["image", "cluster_1", "cluster_2"]
    p_values = {}
    for name, columns in {"image": slice(0, 4), "cluster_1": slice(0, 2), "cluster_2": slice(2, 4)}.items():
        sets = [side[..., columns].flatten(1).numpy() for side in (x, y, z)]
        samples = dict(zip(("fake", "other", "real"), sets, strict=True))
        difference = ref.mmd(sets[1], sets[2], 0.1, unbiased=True) - ref.mmd(sets[0], sets[2], 0.1, unbiased=True)
        if paired:
            variance = jackknife(samples, "pairs") + jackknife(samples, "real")
        else:
            excess = sum(
                ref.mmd_second_order(ref.gram(side, side, 0.1), ref.gram(side, sets[2], 0.1)) for side in sets[:2]
            )
            variance = max(sum(jackknife(samples, key) for key in samples) - excess, excess)
        assert float(found[name].difference) == pytest.approx(difference, abs=1e-12)
        assert float(found[name].standard_error) == pytest.approx(variance**0.5, rel=1e-9)
        p_values[name] = norm.sf(difference / variance**0.5)
        assert float(found[name].p_value) == pytest.approx(p_values[name], rel=1e-9)
    low, high = sorted(("cluster_1", "cluster_2"), key=p_values.get)
    assert float(found[low].p_value_adjusted) == pytest.approx(min(1, 2 * p_values[low]))
    assert float(found[high].p_value_adjusted) == pytest.approx(max(2 * p_values[low], p_values[high]))
    assert found["image"].p_value_adjusted == found["image"].p_value


def all_sets(n: int, chances: list[float]) -> list[tuple[torch.Tensor, float]]:
    """Every set of n draws from the numbers 0, 1, …, with the chance to draw it."""
    sets = []
    for drawn in combinations_with_replacement(range(len(chances)), n):
        counts = [drawn.count(value) for value in range(len(chances))]
        ways = factorial(n) / np.prod([factorial(count) for count in counts])
        sets.append((torch.tensor(drawn), float(ways * np.prod([chances[value] for value in drawn]))))
    return sets


def moments(values: list[float], chances: list[float]) -> tuple[float, float]:
    mean = np.dot(values, chances)
    return float(mean), float(np.dot((np.array(values) - mean) ** 2, chances))


@pytest.mark.parametrize("second", [[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], ids=["as the data", "wrong"])
def test_variance_of_unpaired_sets_has_no_bias(second):
    """Over all samples of 4, 5 and 4 that three values give; but for the part that is kept as a floor."""
    points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    fakes, others = all_sets(4, [0.2, 0.5, 0.3]), all_sets(5, second)
    differences, variances, chances = [], [], []
    for real, chance in all_sets(4, [0.2, 0.5, 0.3]):
        side = RealSide.of(points[real], GaussianKernel(0.5), None)
        sides = [[(side.influence(points[some]), p) for some, p in sets] for sets in (fakes, others)]
        for (a, p), (b, q) in product(*sides):
            jackknife = sum(float(h.var()) / h.shape[1] for h in (a.fake, b.fake, b.real - a.real))
            differences.append(float(b.mmd - a.mmd))
            variances.append(jackknife - float(a.second_order + b.second_order))
            chances.append(chance * p * q)
    assert sum(chances) == pytest.approx(1)
    assert np.dot(variances, chances) == pytest.approx(moments(differences, chances)[1], rel=1e-9)


@pytest.mark.parametrize("chances", [[0.3, 0.1, 0.1, 0.5], [0.25] * 4, [0.1, 0.4, 0.3, 0.2]])
def test_variance_of_pairs_is_at_least_what_it_is(chances):
    """Efron and Stein, Theorem 1. Terms of second order count twice, and (N - 1) / (N - 2) times more among N = 4.

    The pairs of zeros and ones are alike, independent, and contrary.
    """
    points, zeros_and_ones = torch.tensor([[0.0], [1.0]], dtype=torch.float64), all_sets(4, [0.6, 0.4])
    differences, variances, weights = [], [], []
    for real, chance in zeros_and_ones:
        side = RealSide.of(points[real], GaussianKernel(0.5), None)
        for pairs, p in all_sets(4, chances):
            a, b = side.influence(points[pairs // 2]), side.influence(points[pairs % 2])
            variances.append(float((b.fake - a.fake).var() / 4 + (b.real - a.real).var() / 4))
            differences.append(float(b.mmd - a.mmd))
            weights.append(chance * p)
    exact = moments(differences, weights)[1]
    assert exact <= np.dot(variances, weights) <= 2 * 3 / 2 * exact


NULLS = ["equal", "equal, unequal numbers", "equal, paired", "wrong in other ways", "one region", "one region, paired"]


def draw(case: str, generator: torch.Generator, n: int = 40) -> list[torch.Tensor]:
    """Draw two sets that are as far from the data, and the data: gray images of two halves that are partly blank."""
    sizes = (n, 2 * n, n) if "unequal" in case else (n, n, n)
    noise = [torch.randn(size, 1, 2, 4, generator=generator) for size in sizes]
    if "paired" in case:
        noise[1] = 0.9 * noise[0] + 0.19**0.5 * noise[1]
    fake, other, real = (0.7 * x + 0.7 * x.mean((2, 3), keepdim=True) for x in noise)
    if "other ways" in case:  # mirrored, so as far
        fake, other = fake + 0.5, other - 0.5
    elif "one region" in case:
        fake[..., 2:], other[..., 2:] = fake[..., 2:] + 0.7, other[..., 2:] + 0.7
    return [fake, other, real] if "other ways" in case else [x.clamp_min(0) for x in (fake, other, real)]


LEVELS = [pytest.param(x, marks=[] if x == "equal" else [pytest.mark.slow, pytest.mark.nightly]) for x in NULLS]


@pytest.mark.parametrize("case", LEVELS)
def test_level(case):
    """At 5 % (6 % allowed) 200 draws give at most 12 ± 3.4: 24 or more have a chance of 1 in 1000."""
    generator = torch.Generator().manual_seed(0)
    p_values, adjusted = [], []
    for _ in range(200):
        found = relative_similarity_test(*draw(case, generator), partition=HALVES, paired="paired" in case)
        p_values.append([float(region.p_value) for region in found.values()])
        adjusted.append(min(float(found[name].p_value_adjusted) for name in ("cluster_1", "cluster_2")))
    hits = (np.array(p_values) < 0.05).sum(0)
    assert (hits < 24).all(), hits
    assert (np.array(adjusted) < 0.05).sum() < 24
    farther = (np.array(p_values) > 0.95).sum(0)
    assert (farther < 24).all(), farther


@pytest.mark.parametrize("paired", [False, True])
def test_power(paired):
    """The faulty half is named, and the other is not; 50 draws at a power of 0.8 give 33 with chance 0.99."""
    generator = torch.Generator().manual_seed(0)
    named = []
    for _ in range(50):
        fake, other, real = draw("equal, paired" if paired else "equal", generator, n=60)
        other[..., 2:] *= 0.4
        found = relative_similarity_test(fake, other, real, partition=HALVES, paired=paired)
        named.append([float(found[f"cluster_{c}"].p_value_adjusted) < 0.05 for c in (1, 2)])
    left, right = np.sum(named, 0)
    assert right >= 33
    assert left <= 8  # at 5 %, 9 of 50 have a chance of 1 in 1000


def test_pairs_tell_what_unpaired_sets_cannot():
    """Both far from the data, alike but for a trifle."""
    fake, real = images(50, 0, 1.0), images(50, 1)
    other = fake + 0.01
    assert relative_similarity_test(fake, other, real).p_value > 0.3
    assert relative_similarity_test(fake, other, real, paired=True).p_value < 1e-6


@pytest.mark.parametrize("paired", [False, True])
def test_swapping_the_sets_flips_the_difference(paired):
    x, y, z = images(20, 0, 0.2), images(20, 1, 0.5), images(25, 2)
    one = relative_similarity_test(x, y, z, partition=HALVES, paired=paired)
    two = relative_similarity_test(y, x, z, partition=HALVES, paired=paired)
    for name in one:
        assert float(two[name].difference) == pytest.approx(-float(one[name].difference), rel=1e-9)
        assert float(two[name].standard_error) == pytest.approx(float(one[name].standard_error), rel=1e-9)
        assert float(two[name].p_value) == pytest.approx(1 - float(one[name].p_value), rel=1e-9)
    assert one["image"].difference > 0  # the first is closer


def test_alternatives():
    x, y, z = images(20, 0, 0.2), images(20, 1, 0.5), images(25, 2)
    closer, farther, different = (
        relative_similarity_test(x, y, z, alternative=word).p_value for word in ("closer", "farther", "different")
    )
    assert closer < 0.5 < farther
    assert float(closer + farther) == pytest.approx(1)
    assert float(different) == pytest.approx(2 * float(closer))


def test_order_and_chunks_do_not_matter(monkeypatch):
    x, y, z = images(20, 0, 0.2), images(20, 1, 0.5), images(25, 2)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    options = {"partition": HALVES, "paired": True}
    found = relative_similarity_test(x, y, z, **options)
    again = relative_similarity_test(x[order], y[order], z.flip(0), **options)
    assert np.allclose(numbers(found), numbers(again), rtol=1e-9, atol=1e-15)
    apart = relative_similarity_test(x[order], y, z, **options)
    assert abs(apart["image"].standard_error - found["image"].standard_error) > 1e-4
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 1000)
    assert np.allclose(numbers(found), numbers(relative_similarity_test(x, y, z, **options)), rtol=1e-9, atol=1e-15)


def test_without_a_partition_the_image_is_the_one_region():
    x, y, z = images(20, 0, 0.2), images(22, 1, 0.5), images(25, 2)
    whole = relative_similarity_test(x, y, z)
    flat = relative_similarity_test(x.flatten(1), y.flatten(1), z.flatten(1))
    found = relative_similarity_test(x, y, z, partition=HALVES)["image"]
    assert [float(value) for value in whole] == [float(value) for value in flat]
    assert [float(value) for value in whole] == pytest.approx([float(value) for value in found], rel=1e-9)


@pytest.mark.parametrize("kernel", [None, KERNEL, LaplacianKernel(0.2)])
def test_kept_influences_give_the_same(kernel):
    x, y, z = images(20, 0, 0.2), images(22, 1, 0.5), images(25, 2)
    direct = relative_similarity_test(x, y, z, kernel=kernel, partition=HALVES)
    kept = [mmd_influence(side, z, kernel=kernel, partition=HALVES) for side in (x, y)]
    assert relative_similarity_from_influences(*kept) == direct
    if kernel is not None:
        expected = maximum_mean_discrepancy(y, z, kernel=kernel) - maximum_mean_discrepancy(x, z, kernel=kernel)
        assert float(direct["image"].difference) == pytest.approx(float(expected), abs=1e-12)


def test_equal_sets_are_even():
    x, z = images(20, 0), images(25, 2)
    for paired in (False, True):
        found = relative_similarity_test(x, x, z, paired=paired)
        assert (float(found.difference), float(found.p_value)) == (0, 0.5)
        assert relative_similarity_test(x, x, z, paired=paired, alternative="different").p_value == 1


def test_a_region_where_real_samples_are_constant():
    x, y, z = images(20, 0), images(20, 1, 0.5), images(25, 2)
    x[..., 2:] = z[..., 2:] = 0.5
    found = relative_similarity_test(x, y, z, partition=HALVES)
    assert found["cluster_2"].p_value < 0.001  # what varies there is seen
    y[..., 2:] = 0.5
    even = relative_similarity_test(x, y, z, partition=HALVES)["cluster_2"]
    assert (float(even.difference), float(even.p_value)) == (0, 0.5)


def test_real_samples_that_are_all_the_same():
    x, y, z = images(20, 0), images(20, 1, 0.5), images(25, 2)
    nothing = relative_similarity_test(x, y, torch.full_like(z, 0.5), partition=HALVES)
    assert numbers(nothing) == [[0, 0, 1, 1]] * 3


def test_dtypes():
    x, y, z = (images(20, seed, 3.0).clamp(0, 6) for seed in range(3))
    exact = relative_similarity_test(x, y, z, partition=HALVES)
    for dtype, error in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)):
        found = relative_similarity_test(*(side.to(dtype) for side in (x, y, z)), partition=HALVES)
        assert {value.dtype for region in found.values() for value in region} == {torch.float64}
        assert np.allclose([row[:2] for row in numbers(found)], [row[:2] for row in numbers(exact)], atol=error)
    integers = [(40 * side).to(torch.uint8) for side in (x, y, z)]
    scaled = relative_similarity_test(*(side.double() / 255 for side in integers))
    assert float(relative_similarity_test(*integers).difference) == pytest.approx(float(scaled.difference), abs=1e-6)
    mixed = relative_similarity_test(x.float(), y, z.half(), partition=HALVES)
    assert np.allclose(numbers(mixed)[0][:2], numbers(exact)[0][:2], atol=1e-3)


X, Z = images(12, 0), images(10, 1)
WITH_NAN = X.clone()
WITH_NAN[1, 0, 0, :2] = float("nan")
KEPT = mmd_influence(X, Z, kernel=KERNEL)
REFUSED = {
    "nan": (lambda: relative_similarity_test(X, WITH_NAN, Z), "`other` to be finite, but 2 of its 96"),
    "few": (lambda: relative_similarity_test(X, X[:7], Z), "`other` to hold at least 8 samples, but got 7"),
    "shape": (lambda: relative_similarity_test(X, X[..., :3], Z), r"`other` of shape \[N, 1, 2, 4\]"),
    "pairs": (lambda: relative_similarity_test(X, X[:9], Z, paired=True), "with `paired=True`.* got 12 and 9. Draw"),
    "words": (lambda: relative_similarity_test(X, X, Z, alternative="greater"), "`alternative`.*'closer'.*'greater'"),
    "kept pairs": (
        lambda: relative_similarity_from_influences(KEPT, mmd_influence(X[:9], Z, kernel=KERNEL), paired=True),
        "got 12 and 9",
    ),
    "regions": (
        lambda: relative_similarity_from_influences(KEPT, mmd_influence(X, Z, kernel=KERNEL, partition=HALVES)),
        "10 samples of image by .* and 10 samples of image, cluster_1, cluster_2 by .* Measure both again",
    ),
    "width": (
        lambda: relative_similarity_from_influences(KEPT, mmd_influence(X, Z, kernel=GaussianKernel(0.2))),
        "gamma 0.1, .* gamma 0.2, ",
    ),
    "count": (
        lambda: relative_similarity_from_influences(KEPT, mmd_influence(X, Z[:9], kernel=KERNEL)),
        "10 samples .* and 9 samples",
    ),
    "real": (
        lambda: relative_similarity_from_influences(KEPT, mmd_influence(X, images(10, 3), kernel=KERNEL)),
        "same real samples, .* mean -0.* and .* mean -0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_word_is_no_answer_to_paired():
    with pytest.raises(TypeError, match="`paired` to be True or False, but got 'no'"):
        relative_similarity_test(X, X, Z, paired="no")
