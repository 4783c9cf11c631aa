# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers.joint_spectra import (
    BOTTOM,
    KERNELS,
    TOP,
    TOTAL,
    by_side,
    difference_spectrum,
    digit_sides,
    joint_gram,
    ken_total,
    labels,
    mixture,
    random_sides,
)
from _helpers.references import median_gamma
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.functional import joint_spectrum, prompt_split, rank_prompts

NAMES, REFERENCE_NAMES = labels()[:500].tolist(), labels()[500:1000].tolist()


@pytest.fixture(scope="module")
def modes():
    return prompt_split(*digit_sides(), **KERNELS, num_modes=4)


def arrays(sides):
    return [side.numpy() for side in sides]


def test_golden_numbers(modes):
    for found, expected in ((modes.eigenvalues[:4], TOP), (modes.eigenvalues[-3:], BOTTOM)):
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-8)
    assert float(modes.total) == pytest.approx(TOTAL, abs=1e-8)
    assert modes.residuals.max() < 1e-12


def test_the_digits_in_negative_top_the_modes(modes):
    assert rank_prompts(modes.scores[:, 0], NAMES)[0][0] == 3
    assert {rank_prompts(modes.reference_scores[:, mode], REFERENCE_NAMES)[0][0] for mode in (-1, -2)} == {3, 7}
    parts = modes.parts(NAMES, REFERENCE_NAMES)
    assert set(sorted(parts, key=lambda digit: parts[digit].abs().sum())[-2:]) == {3, 7}


def test_similar_mode_is_the_same_on_both_sides(modes):
    similar = modes.similar
    assert abs(similar.eigenvalues) < 0.1 * modes.eigenvalues[0]
    best = rank_prompts(similar.scores[:, 0], NAMES)[0]
    best_of_reference = rank_prompts(similar.reference_scores[:, 0], REFERENCE_NAMES)[0]
    assert best[0] == best_of_reference[0] not in (3, 7)
    assert best[1] == pytest.approx(best_of_reference[1], rel=0.2)
    assert best[1] > 0.1
    assert similar.similar is None


@settings(max_examples=10, deadline=None, derandomize=True)
@given(n=st.integers(2, 12), m=st.integers(2, 12), eta=st.sampled_from([0.3, 1.0, 2.0]), seed=st.integers(0, 99))
def test_all_eigenvalues_are_those_of_the_formula(n, m, eta, seed):
    sides = random_sides(n, m, seed)
    gammas = (0.2, 0.7)
    kernels = {"output_kernel": GaussianKernel(gammas[0]), "prompt_kernel": GaussianKernel(gammas[1])}
    found = prompt_split(*sides, **kernels, eta=eta, num_modes=n + m)
    expected = difference_spectrum(*arrays(sides), gammas, eta)
    np.testing.assert_allclose(found.eigenvalues, by_side(expected, n + m), rtol=0, atol=1e-9)
    assert float(found.total) == pytest.approx(ken_total(expected), abs=1e-6)


def test_widths_come_from_the_reference_side():
    x, t, y, u = random_sides()
    gammas = (median_gamma(y.numpy()), median_gamma(u.numpy()))
    expected = difference_spectrum(*arrays((x, t, y, u)), gammas, 1.0)
    found = prompt_split(x, t, y, u, num_modes=50).eigenvalues
    np.testing.assert_allclose(found, by_side(expected, 50), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", [LaplacianKernel(0.3), CosineKernel()])
@pytest.mark.parametrize("prompt_kernel", [GaussianKernel(0.5), LaplacianKernel(0.2), CosineKernel()])
def test_other_kernels(kernel, prompt_kernel):
    x, t, y, u = random_sides()
    outputs, prompts, weights = (
        torch.cat([x, y]),
        torch.cat([t, u]),
        torch.tensor([1 / 30] * 30 + [-1 / 20] * 20, dtype=torch.float64),
    )
    gram = kernel(outputs, outputs) * prompt_kernel(prompts, prompts)
    expected = np.sort(np.linalg.eigvals((weights[:, None] * gram).numpy()).real)[::-1]
    found = prompt_split(x, t, y, u, output_kernel=kernel, prompt_kernel=prompt_kernel, num_modes=50)
    np.testing.assert_allclose(found.eigenvalues, by_side(expected, 50), rtol=0, atol=1e-9)


def test_swapping_the_sides_negates_the_spectrum(modes):
    x, t, y, u = digit_sides()
    swapped = prompt_split(y, u, x, t, **KERNELS, num_modes=4)
    torch.testing.assert_close(swapped.eigenvalues, -modes.eigenvalues.flip(0), rtol=0, atol=1e-10)
    torch.testing.assert_close(swapped.scores, modes.reference_scores.flip(1), rtol=0, atol=1e-7)


@pytest.mark.parametrize("num_features", [None, 50])
@pytest.mark.parametrize("limit", [0, 2048])
def test_identical_sides_have_no_modes(monkeypatch, num_features, limit):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", limit)
    x, t, _, _ = digit_sides()
    again = prompt_split(x, t, x, t, **KERNELS, num_features=num_features)
    assert again.eigenvalues.abs().max() < 1e-6
    assert abs(again.total) < 1e-4


def test_scores_are_projections_onto_unit_directions():
    """A mode is Σ c φ with cᵀ K c = 1, its scores are K c, and as an eigenvector of D K it is D scores / λ."""
    sides = random_sides()
    gammas = (0.2, 0.7)
    modes = prompt_split(*sides, output_kernel=GaussianKernel(0.2), prompt_kernel=GaussianKernel(0.7), num_modes=4)
    x, t, y, u = arrays(sides)
    outputs, prompts = np.concatenate([x, y]), np.concatenate([t, u])
    gram = joint_gram(outputs, prompts, outputs, prompts, gammas)
    weights = np.repeat([1 / 30, -1 / 20], [30, 20])
    scores = torch.cat([modes.scores, modes.reference_scores]).numpy()
    coefficients = weights[:, None] * scores / modes.eigenvalues.numpy()
    np.testing.assert_allclose(gram @ coefficients, scores, rtol=0, atol=1e-9)
    np.testing.assert_allclose(coefficients.T @ gram @ coefficients, np.eye(8), rtol=0, atol=1e-9)


def test_scores_of_other_samples(modes):
    x, t, y, u = digit_sides()
    torch.testing.assert_close(modes.score(x[:9], t[:9]), modes.scores[:9], rtol=0, atol=1e-9)
    torch.testing.assert_close(modes.score(y[:9], u[:9]), modes.reference_scores[:9], rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="equally many samples"):
        modes.score(x[:9], t[:8])


def test_scores_are_positive_on_the_side_that_has_the_mode(modes):
    assert (modes.scores.mean(0)[:4] > 0).all()
    assert (modes.reference_scores.mean(0)[4:] > 0).all()


@pytest.mark.parametrize("eta", [0.5, 2.0])
def test_the_parts_of_the_prompts_sum_to_the_eigenvalues(eta):
    modes = prompt_split(*digit_sides(), **KERNELS, num_modes=5, eta=eta)
    parts = modes.parts(NAMES, REFERENCE_NAMES)
    assert sorted(parts) == list(range(10))
    torch.testing.assert_close(sum(parts.values()), modes.eigenvalues, rtol=0, atol=1e-12)


def test_a_prompt_of_one_side_only_has_its_part():
    x, t, y, u = random_sides()
    modes = prompt_split(x, t, y, u, num_modes=3)
    parts = modes.parts(["a"] * 30, ["b"] * 20)
    torch.testing.assert_close(parts["a"], modes.scores.square().mean(0))
    torch.testing.assert_close(parts["b"], -modes.reference_scores.square().mean(0))


def test_there_are_always_as_many_modes_as_wanted():
    x, t, y, u = random_sides(3, 2)
    modes = prompt_split(x, t, y, u, **KERNELS, num_modes=9)
    assert modes.eigenvalues.shape == modes.residuals.shape == (18,)
    assert modes.scores.shape == (3, 18)
    assert (modes.eigenvalues[:3] > 0).all()
    assert (modes.eigenvalues[3:16] == 0).all()
    assert (modes.eigenvalues[16:] < 0).all()
    assert (modes.scores[:, 3:16] == 0).all()


@pytest.mark.parametrize("limit", [0, 2048])
def test_each_side_has_its_modes_beside_stronger_ones_of_the_other(monkeypatch, limit):
    """The reference repeats itself: its modes are the furthest from zero."""
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", limit)
    x, t, y, u = random_sides(60, 60)
    repeated = y[:5].repeat(12, 1) + 0.01 * y
    arguments = {"output_kernel": GaussianKernel(1.0), "prompt_kernel": GaussianKernel(1e-3)}
    whole = prompt_split(x, t, repeated, u, **arguments, num_modes=60).eigenvalues
    assert int((whole.abs().sort(descending=True).indices[:6] < 60).sum()) < 3
    found = prompt_split(x, t, repeated, u, **arguments, num_modes=3).eigenvalues
    torch.testing.assert_close(found, torch.cat([whole[:3], whole[-3:]]), rtol=0, atol=1e-9)
    assert (found[:3] > 0).all()


def test_rank_prompts_by_mean_score():
    scores = torch.tensor([0.3, 0.1, 0.9, -1.0])
    assert rank_prompts(scores, ["a", "a", "b", "c"]) == [
        ("b", pytest.approx(0.9)),
        ("a", pytest.approx(0.2)),
        ("c", -1),
    ]
    with pytest.raises(ValueError, match="each of 4 samples, but got 3"):
        rank_prompts(scores, ["a", "b", "c"])


@pytest.mark.parametrize("differing", range(9))
def test_a_mixture_has_as_many_modes_as_components_that_differ(monkeypatch, differing):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    eigenvalues = prompt_split(*mixture(differing), num_modes=10).eigenvalues
    assert int((eigenvalues > 0.05).sum()) == int((eigenvalues < -0.05).sum()) == differing
    assert int((eigenvalues.abs() < 0.01).sum()) == 20 - 2 * differing


def test_float32_says_the_same(modes):
    found = prompt_split(*(side.float() for side in digit_sides()), **KERNELS, num_modes=4)
    torch.testing.assert_close(found.eigenvalues, modes.eigenvalues, rtol=0, atol=1e-6)
    assert found.eigenvalues.dtype == torch.float64


@pytest.mark.parametrize(("num_features", "alike"), [(13, True), (12, False)])
def test_exact_kernels_where_they_cost_less_than_random_features(num_features, alike):
    """50 samples: two for each of 26 features, or more than that for each of 24."""
    exact, found = (prompt_split(*random_sides(), num_features=count) for count in (None, num_features))
    assert torch.equal(found.eigenvalues, exact.eigenvalues) == alike


def test_data_far_from_zero():
    sides = random_sides()
    expected = prompt_split(*sides, num_modes=4).eigenvalues
    x, t, y, u = ((side + 1000).float() for side in sides)
    torch.testing.assert_close(prompt_split(x, t, y, u, num_modes=4).eigenvalues, expected, rtol=0, atol=1e-4)


def test_autocast_changes_nothing(modes):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = prompt_split(*digit_sides(), **KERNELS, num_modes=4)
    torch.testing.assert_close(found.eigenvalues, modes.eigenvalues, rtol=0, atol=1e-12)


def test_samples_without_a_width_say_which_kernel_lacks_it():
    x, t, y, u = random_sides()
    with pytest.raises(ValueError, match=r"`prompt_kernel`: Expected samples that differ.*Give the kernel a `gamma`"):
        prompt_split(x, t, y, u[:1].expand(20, 3))
    assert prompt_split(x, t, y, u[:1].expand(20, 3), prompt_kernel=GaussianKernel(1.0)).eigenvalues[0] > 0.1


SIDES = random_sides()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: SIDES[0][:-1]}, "`outputs` and `prompts` to hold equally many samples.*29 and 30"),
        ({3: SIDES[3][:-1]}, "`reference_outputs` and `reference_prompts` to hold equally many samples"),
        ({2: SIDES[2][:, :-1]}, "`reference_outputs` with 5 features.*\\[20, 4\\]"),
        ({3: SIDES[3][:, :-1]}, "`reference_prompts` with 3 features"),
        ({0: SIDES[0][:0], 1: SIDES[1][:0]}, "`outputs` to hold at least 2 samples, but got 0"),
        ({2: SIDES[2][:1], 3: SIDES[3][:1]}, "`reference_outputs` to hold at least 2 samples, but got 1"),
        ({1: SIDES[1] / 0}, "`prompts` to be finite"),
        ({"eta": 0.0}, "`eta` to be a positive finite number, but got 0.0"),
        ({"eta": -1.0}, "`eta`"),
        ({"num_modes": 0}, "`num_modes` to be a whole number >= 1"),
        ({"num_features": 0}, "`num_features` to be a whole number >= 1"),
        ({"num_features": 10**5}, "`num_features` to be at most 8192 to stay within 4 GiB, but got 100000"),
        ({"output_kernel": "rbf"}, "`output_kernel` to be a kernel"),
        ({"num_features": 9, "prompt_kernel": CosineKernel()}, "such as Gaussian ones, or two cosine kernels"),
        ({"num_features": 9, "output_kernel": CosineKernel()}, "such as Gaussian ones, or two cosine kernels"),
    ],
)
def test_bad_input(change, message):
    sides = [change.get(index, side) for index, side in enumerate(SIDES)]
    with pytest.raises(ValueError, match=message):
        prompt_split(*sides, **{name: value for name, value in change.items() if isinstance(name, str)})


def test_no_tensor():
    with pytest.raises(TypeError, match=r"`prompts` to be a torch\.Tensor, but got list"):
        prompt_split(SIDES[0], ["a cat"] * 30, *SIDES[2:])


@pytest.mark.parametrize("num_features", [None, 4000])
@pytest.mark.parametrize("kernel", [None, GaussianKernel(0.2), CosineKernel(), LaplacianKernel(0.3)])
def test_without_prompts_it_is_ken(kernel, num_features):
    """Of the matrix of the paper, by its own blocks."""
    if isinstance(kernel, LaplacianKernel) and num_features:
        pytest.skip("has no random features")
    x, _, y, _ = random_sides(30, 20)
    x[:6] = 4 + 0.1 * x[:6]  # what the reference lacks
    prompt_kernel = CosineKernel() if isinstance(kernel, CosineKernel) and num_features else None
    kernels = {"output_kernel": kernel, "prompt_kernel": prompt_kernel}
    found = prompt_split(x, None, y, None, **kernels, eta=2, num_modes=30, num_features=num_features)
    known = (kernel or GaussianKernel()).resolved(y)
    n, m, eta = len(x), len(y), 2
    blocks = [
        [known(x, x) / n, known(x, y) * (eta / (n * m)) ** 0.5],
        [-known(y, x) * (eta / (n * m)) ** 0.5, -known(y, y) * eta / m],
    ]
    expected = torch.linalg.eigvals(torch.cat([torch.cat(row, 1) for row in blocks])).real.numpy()
    tolerance = 1e-6 if num_features is None else 0.1
    np.testing.assert_allclose(found.eigenvalues, by_side(expected, 30), rtol=0, atol=tolerance)
    assert float(found.total) == pytest.approx(ken_total(expected), abs=10 * tolerance)
    if not isinstance(kernel, CosineKernel):  # directions of five values are no kinds
        assert (found.scores[:, 0].topk(6).indices < 6).all()


def test_prompts_of_one_side_alone_are_refused():
    x, t, y, _ = random_sides()
    with pytest.raises(TypeError, match="`reference_prompts`"):
        prompt_split(x, t, y, None)
