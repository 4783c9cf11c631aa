# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers import references as ref

from genmonitor import GaussianKernel
from genmonitor.functional import cka as levels
from genmonitor.functional import pixel_cka
from genmonitor.functional.cka import gram_product, site_values
from genmonitor.linalg.feature_maps import taylor_features


def draw(d: int, values: int, n: int, tails: float = 1.0) -> torch.Tensor:
    """Site values [d, V, N] that depend on each other, with mean zero; `tails` above 1 makes outliers."""
    x = torch.randn(d, values, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x.sign() * x.abs() ** tails + x.roll(1, dims=0)
    return x - x.mean(2, keepdim=True)


def exact(values: torch.Tensor, gamma: float) -> torch.Tensor:
    return levels.normalized(gram_product(values, GaussianKernel(gamma)))


def truncated(values: torch.Tensor, gamma: float, degree: int) -> tuple[torch.Tensor, float]:
    """CKA by the features up to a degree, and the bound of its error."""
    _, v, n = values.shape
    features = taylor_features(values, gamma, degree)
    features = (features - features.mean(2, keepdim=True)) / n**0.5
    hsic = torch.einsum("apn,bqn->abpq", features, features).square().sum((2, 3))
    linear = features[:, 1 : 1 + v]
    linear_norm = torch.linalg.matrix_norm(linear @ linear.mT)
    moment = values.square().sum(1).pow(degree + 1).mean(1)
    return levels.normalized(hsic), levels.taylor_bound(moment, linear_norm, gamma, degree)


def test_the_product_that_these_tests_trust_is_the_formula():
    values = draw(3, 2, 15, tails=2)
    for i in range(3):
        for j in range(3):
            expected = ref.cka(values[i].T.numpy(), values[j].T.numpy(), 0.05)
            assert float(exact(values, 0.05)[i, j]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("gamma", [1e-4, 1e-3, 1e-2, 0.05])
@pytest.mark.parametrize(("values", "tails"), [(1, 1.0), (1, 2.0), (3, 1.5)])
def test_the_bound_bounds_the_error(degree, gamma, values, tails):
    x = draw(6, values, 60, tails)
    found, bound = truncated(x, gamma, degree)
    error = float((found - exact(x, gamma)).abs().max())
    assert error <= bound + 1e-11
    assert error > 0


def test_the_bound_is_of_use():
    x = draw(6, 1, 60)
    bounds = [truncated(x, 1e-3, degree)[1] for degree in (1, 2, 3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] < 0.1
    assert bounds[2] < 1e-5


def test_the_bound_is_at_most_three_times_too_careful():
    x = torch.tensor([[-2.0, 1, 0, 1, -2, 4, -1], [1, -2, 1, -2, 0, 4, -1]]).double()[:, None]
    x = x - x.mean(2, keepdim=True)
    found, bound = truncated(x, 1e-3, 1)
    assert bound / 3 < (found - exact(x, 1e-3)).abs().max() <= bound


@pytest.mark.parametrize("gamma", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
def test_the_degree_is_the_lowest_that_suffices(gamma, tolerance):
    x = draw(5, 2, 80, tails=1.5)
    degree = levels.choose_degree(x, gamma, tolerance)
    assert truncated(x, gamma, degree)[1] <= tolerance
    if degree > 1:
        assert truncated(x, gamma, degree - 1)[1] > tolerance


def test_no_degree_suffices_for_a_large_gamma():
    assert levels.choose_degree(draw(3, 1, 20), 10.0, 1e-6) == levels.MAX_DEGREE + 1


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("tails", [1.0, 2.0])
def test_an_entry_is_within_the_tolerance(tolerance, tails):
    x = draw(8, 1, 150, tails)
    found = levels.taylor_cka(x, 1e-3, tolerance)
    assert found is not None
    # float32 where the tolerance allows it: 1e-7 of rounding
    assert (found - exact(x, 1e-3)).abs().max() < tolerance + 1e-7


@pytest.mark.parametrize("gamma", [1e-4, 1e-3])
def test_pixels_of_few_values_stay_within_the_tolerance(gamma):
    # pixels of three values, and their squares: rounding them to nearest is no noise, it is the same for every image
    t = torch.randint(-1, 2, (300, 128), generator=torch.Generator().manual_seed(0)).float()
    images = torch.cat([t, t.square()], 1).reshape(300, 1, 16, 16)
    found = pixel_cka(images, kernel=GaussianKernel(gamma))
    assert (found - exact(site_values(images.double(), 1), gamma)).abs().max() < 1e-6


def test_many_features_give_way_to_the_product():
    x = draw(5, 6, 30)
    assert levels.taylor_cka(x, 1e-2, 1e-6) is None
    assert levels.taylor_cka(draw(5, 6, 3000), 1e-5, 1e-4) is not None


def test_a_site_without_variance_has_zero_rows():
    hsic = torch.tensor([[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    assert levels.normalized(hsic).tolist() == [[1, 0, 0.5], [0, 0, 0], [0.5, 0, 1]]


@pytest.mark.parametrize("kind", ["normal", "few values", "rarely lit"])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-5, 1e-7])
def test_every_entry_of_many_sites_is_within_the_tolerance(kind, tolerance):
    x = draw(300, 1, 600)
    if kind == "few values":
        x = x.sign() + (x.abs() > 1).double()
    if kind == "rarely lit":
        x = (x > x.flatten(1).quantile(0.98, dim=1)[:, None, None]).double() * (2 + x)
    found = levels.taylor_cka(x, 4e-3, tolerance)
    assert found is not None
    assert torch.equal(found, found.T)
    assert (found - exact(x, 4e-3)).abs().max() <= tolerance


def test_what_is_left_out_can_be_as_much_as_is_allowed_for():
    """The weak level of each site lies along the strong one of the other."""
    weight = 1e-3
    spectrum = torch.tensor([[1, weight], [1, weight]], dtype=torch.float64)
    assert levels.needed_levels(spectrum, 2.1 * weight) == 1
    assert levels.needed_levels(spectrum, 1.9 * weight) == 2
    axes = torch.eye(2, dtype=torch.float64)
    rows = torch.stack([axes, weight**0.5 * axes.flip(0)])
    assert float(levels.sum_of_squares(rows, spectrum.amax(0), 0)[0, 1]) == pytest.approx(2 * weight)
    assert float(levels.sum_of_squares(rows, spectrum.amax(0), 4.1 * weight)[0, 1]) == 0


def test_one_level_is_left_even_if_nothing_matters():
    assert levels.needed_levels(torch.ones(3, 1, dtype=torch.float64), 10.0) == 1


def test_many_levels_give_way_to_the_product():
    assert levels.taylor_cka(draw(4, 6, 64), 1e-5, 1e-6) is None
    assert levels.taylor_cka(draw(4, 6, 3000), 1e-5, 1e-6) is not None
