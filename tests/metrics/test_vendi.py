# SPDX-License-Identifier: Apache-2.0
"""VendiScore and RKEScore; what every metric owes torchmetrics and two processes are in test_citizens and test_sync."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genmonitor import GaussianKernel, RKEScore, VendiScore
from genmonitor.functional import rke_score, vendi_score

FORMS = {
    "cosine": {},
    "fourier": {"kernel": GaussianKernel(0.3), "num_features": 6},
    "exact": {"kernel": GaussianKernel(0.3)},
}
forms = pytest.mark.parametrize("form", FORMS)


def draw(n: int, d: int = 3, seed: int = 0, shift: float = 0.0) -> Tensor:
    return shift + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fed(metric, x: Tensor, batch: int | list[int] = 1000):
    for some in x.split(batch):
        metric.update(some)
    return metric


@forms
@settings(max_examples=15, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(0, 9), min_size=2, max_size=6), seed=st.integers(0, 99), data=st.data())
def test_any_batches_in_any_order_say_what_the_function_says(form, sizes, seed, data):
    sizes = [2, *sizes]
    x = draw(sum(sizes), seed=seed)
    shuffled = x[data.draw(st.permutations(range(len(x))))]
    for make, function in ((VendiScore, vendi_score), (RKEScore, rke_score)):
        expected = float(function(x, **FORMS[form]))
        assert float(fed(make(**FORMS[form]), shuffled, sizes).compute()) == pytest.approx(expected, rel=1e-9)


def test_order_and_truncation_are_passed_on():
    x = draw(40, 5)
    for options in (
        {"order": 0.5},
        {"order": 3.0},
        {"truncation": 2},
        {"truncation": 2, "kernel": GaussianKernel(1.0)},
    ):
        assert float(fed(VendiScore(**options), x, 7).compute()) == pytest.approx(float(vendi_score(x, **options)))


def test_the_seed_is_that_of_the_random_features():
    x, options = draw(60), {"kernel": GaussianKernel(0.3), "num_features": 5}
    values = [float(fed(VendiScore(**options, seed=seed), x, 7).compute()) for seed in (0, 1)]
    assert values == pytest.approx([float(vendi_score(x, **options, seed=seed)) for seed in (0, 1)])
    assert values[0] != pytest.approx(values[1], rel=1e-3)


@pytest.mark.parametrize("form", ["cosine", "fourier"])
def test_what_is_streamed_does_not_grow(form):
    metric, sizes = VendiScore(**FORMS[form]), []
    metric.persistent(True)
    for _ in range(3):
        fed(metric, draw(500), 100)
        sizes.append({name: state.numel() for name, state in metric.state_dict().items()})
    assert sizes[0] == sizes[1] == sizes[2]
    assert sum(sizes[0].values()) < 500


def test_gamma_is_set_at_first_compute_or_first_update():
    x = torch.cat([draw(1000, 2), draw(300, 2, seed=1, shift=50)])
    for batch in (1, 7, 1300):
        kept = fed(RKEScore(GaussianKernel()), x, batch)
        assert kept.kernel == GaussianKernel()  # open: other processes may have samples that come first
        kept.compute()
        assert kept.kernel == GaussianKernel().resolved(x[:1000])
    streamed = fed(VendiScore(GaussianKernel(), num_features=4), x, 100)
    assert streamed.kernel == GaussianKernel().resolved(x[:100])
    streamed.reset()
    fed(streamed, 3 * x, 100)
    assert streamed.kernel == GaussianKernel().resolved(x[:100])


def test_zero_vectors_are_refused_under_the_cosine_kernel_alone():
    x = torch.cat([draw(3), torch.zeros(2, 3, dtype=torch.float64)])
    for make in (VendiScore, RKEScore):
        metric = fed(make(), draw(5))
        with pytest.raises(ValueError, match="`features` without zero vectors for the cosine kernel, but 2 of 5 rows"):
            metric.update(x)
        assert float(metric.compute()) == pytest.approx(float(fed(make(), draw(5)).compute()), abs=0)
        for form in ("fourier", "exact"):
            assert math.isfinite(fed(make(**FORMS[form]), x, 2).compute())


@pytest.mark.parametrize("kwargs", [{}, {"kernel": GaussianKernel(0.5), "num_features": 200}])
def test_modes_are_the_kinds_of_samples(kwargs):
    kinds = torch.tensor([0] * 40 + [1] * 30 + [2] * 20)
    features = 5 * torch.eye(4, dtype=torch.float64)[kinds] + 0.01 * torch.randn(90, 4, dtype=torch.float64)
    metric = VendiScore(**kwargs)
    for batch in features.split(25):
        metric.update(batch)
    modes = metric.modes(3)
    assert modes.eigenvalues.tolist() == pytest.approx([4 / 9, 3 / 9, 2 / 9], abs=0.05)
    scores = metric.mode_scores(features, modes)
    torch.testing.assert_close(scores.square().mean(0), modes.eigenvalues, rtol=1e-5, atol=0)
    assert (scores.sum(0) > 0).all()
    assert kinds[scores.topk(10, dim=0).indices].tolist() == [[0, 1, 2]] * 10
    torch.testing.assert_close(metric.mode_scores(features[:5], modes), scores[:5])


def test_modes_have_the_eigenvalues_of_the_score():
    features = torch.randn(50, 6, dtype=torch.float64)
    metric = VendiScore()
    metric.update(features)
    eigenvalues = metric.modes(6).eigenvalues
    assert float(metric.compute()) == pytest.approx(float((-eigenvalues * eigenvalues.log()).sum().exp()))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (VendiScore(GaussianKernel(1.0)), r"explicit features, but got GaussianKernel.* Set `num_features`"),
        (VendiScore(), "samples before this, but got none"),
    ],
)
def test_modes_need_features_and_samples(metric, message):
    if not metric.streams:
        metric.update(torch.randn(5, 2))
    with pytest.raises(ValueError, match=message):
        metric.modes(1)
