# SPDX-License-Identifier: Apache-2.0
from itertools import combinations

import numpy as np
import pytest
import torch
from _helpers import lattices
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor.functional import (
    W1KPCalibration,
    calibrate,
    prompt_reusability,
    similarity_level,
    w1kp_by_prompt,
    w1kp_score,
)
from genmonitor.functional.w1kp import expected_closest_pairs
from genmonitor.linalg import chunking


def outputs(n: int = 12, dim: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CALIBRATION = calibrate(outputs(40, seed=9))


def similarity(a, b) -> float:
    """1 - F(‖a - b‖²) with F by numpy.interp."""
    return float(1 - np.interp(((a - b) ** 2).sum(), CALIBRATION.distances.numpy(), CALIBRATION.heights.numpy()))


def closest_pair(x, k: int) -> float:
    """The mean over all subsets of k of the largest similarity in them."""
    pairs = {(a, b): similarity(x[a], x[b]) for a, b in combinations(range(len(x)), 2)}
    largest = [max(pairs[pair] for pair in combinations(some, 2)) for some in combinations(range(len(x)), k)]
    return float(np.mean(largest))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(n=st.integers(2, 9), seed=st.integers(0, 999))
def test_one_prompt_is_the_mean_over_all_pairs(n, seed):
    x = outputs(n, seed=seed)
    found = w1kp_score(x, calibration=CALIBRATION)
    assert float(found["w1kp"]) == pytest.approx(closest_pair(x.numpy(), 2), abs=1e-12)
    assert (found["prompts"], found["skipped"]) == (1, 0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(found=lattices.lattices(2, least=4))
def test_on_a_grid_distances_tie_as_in_whole_numbers(found):
    dtype, (x, known) = found
    prompts = torch.arange(len(x)) % 2
    expected = lattices.w1kp(lattices.whole(x), prompts.numpy(), lattices.whole(known))
    assert float(w1kp_score(x, prompts, calibration=calibrate(known))["w1kp"]) == pytest.approx(expected, abs=1e-12)
    if dtype == torch.float64:
        found = w1kp_score(0.1 * x, prompts, calibration=calibrate(0.1 * known))
        assert float(found["w1kp"]) == pytest.approx(expected, abs=1e-9)


def test_k_2_is_the_pairwise_mean_and_k_n_the_maximum():
    x = outputs()
    two, whole = (w1kp_score(x, calibration=CALIBRATION, k=k) for k in (2, 12))
    assert two["w1kp_k"] == two["w1kp"]
    assert float(whole["w1kp_k"]) == pytest.approx(closest_pair(x.numpy(), 12), abs=1e-12)
    assert two["w1kp_k_error"] == whole["w1kp_k_error"] == 0


def test_every_k_is_within_3_standard_errors_of_brute_force():
    x = outputs()
    values, errors = expected_closest_pairs(x, calibration=CALIBRATION)
    for k in range(3, 12):
        assert abs(float(values[k - 2]) - closest_pair(x.numpy(), k)) < 3 * float(errors[k - 2])
    assert errors[1:-1].min() > 0
    assert errors.max() < 0.01
    alone = w1kp_score(x, calibration=CALIBRATION, k=5)
    assert alone["w1kp_k"] == pytest.approx(float(values[3]), abs=4 * float(errors[3]))


def test_the_standard_error_is_that_of_many_draws():
    x = outputs()
    draws = [
        expected_closest_pairs(x, calibration=CALIBRATION, k=5, generator=torch.Generator().manual_seed(seed))
        for seed in range(60)
    ]
    spread = torch.stack([values for values, _ in draws]).std(0)
    stated = torch.stack([errors for _, errors in draws]).mean(0)
    torch.testing.assert_close(spread[1:], stated[1:], rtol=0.35, atol=0)


def test_the_draw_is_the_generators_alone(monkeypatch):
    x = outputs()
    state = torch.get_rng_state()
    first, second = (expected_closest_pairs(x, calibration=CALIBRATION)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    other = expected_closest_pairs(x, calibration=CALIBRATION, generator=torch.Generator().manual_seed(5))[0]
    assert not torch.equal(first, other)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 10**5)
    assert torch.equal(expected_closest_pairs(x, calibration=CALIBRATION)[0], first)


def test_many_prompts():
    x, index = outputs(10), torch.tensor([5, 2, 5, 2, 2, 9, 5, 2, 7, 7])
    found = w1kp_score(x, index, calibration=CALIBRATION, k=3)
    each = {prompt: x[index == prompt].numpy() for prompt in (2, 5, 7)}
    assert float(found["w1kp"]) == pytest.approx(np.mean([closest_pair(some, 2) for some in each.values()]))
    assert (found["prompts"], found["skipped"], found["skipped_k"]) == (3, 1, 2)
    mean = np.mean([closest_pair(each[2], 3), closest_pair(each[5], 3)])
    assert float(found["w1kp_k"]) == pytest.approx(mean, abs=4 * float(found["w1kp_k_error"]))
    alone = expected_closest_pairs(x[index == 2], calibration=CALIBRATION)[1][1]
    assert 0.3 * alone < found["w1kp_k_error"] < alone


def test_similar_outputs_score_high_and_varied_ones_low():
    x = outputs(20)
    scores = [float(w1kp_score(scale * x, calibration=CALIBRATION)["w1kp"]) for scale in (0.0, 0.1, 1.0, 100.0)]
    assert scores[0] == 1
    assert scores[1] > 0.95
    assert scores[2] == pytest.approx(0.5, abs=0.1)  # what it was calibrated on is uniform
    assert scores[3] < 0.01


def test_reusability_is_the_last_k_below_the_cutoff():
    x = outputs(30)
    values, _ = expected_closest_pairs(x, calibration=CALIBRATION)
    for cutoff in (0.0, 0.7, 0.85, 0.95, 1.1):
        k = prompt_reusability(x, calibration=CALIBRATION, cutoff=cutoff)
        assert k == 1 or values[k - 2] < cutoff
        assert k == 30 or values[k - 1] >= cutoff
    assert prompt_reusability(torch.zeros(5, 3), calibration=CALIBRATION) == 1
    assert prompt_reusability(100 * x, calibration=CALIBRATION) == 30


def test_levels_begin_at_their_cutoffs():
    found = [similarity_level(value) for value in (0.0, 0.1999, 0.2, 0.3999, 0.4, 0.8499, 0.85, 1.0)]
    assert found == ["none", "none", "low", "low", "medium", "medium", "high", "high"]


def test_the_table_of_prompts():
    x = torch.cat([outputs(4), 0.1 * outputs(3), outputs(1), 100 * outputs(2)])
    index = torch.tensor([0] * 4 + [1] * 3 + [2] + [3] * 2)
    rows = w1kp_by_prompt(x, index, calibration=CALIBRATION, k=3, names=["a", "b", "c", "d"])
    assert [row.prompt for row in rows] == ["b", "a", "d"]
    assert [row.outputs for row in rows] == [3, 4, 2]
    assert [row.level for row in rows] == ["high", similarity_level(rows[1].w1kp), "none"]
    assert rows[1].w1kp == pytest.approx(closest_pair(x[:4].numpy(), 2))
    assert [row.reusability for row in rows] == [1, prompt_reusability(x[:4], calibration=CALIBRATION), 2]
    assert rows[0].w1kp_k == pytest.approx(closest_pair(x[4:7].numpy(), 3))
    assert rows[1].w1kp_k == pytest.approx(closest_pair(x[:4].numpy(), 3), abs=4 * rows[1].w1kp_k_error)
    assert rows[2].w1kp_k is rows[2].w1kp_k_error is None
    mean = float(w1kp_score(x, index, calibration=CALIBRATION)["w1kp"])
    assert np.mean([row.w1kp for row in rows]) == pytest.approx(mean)
    assert [row.prompt for row in w1kp_by_prompt(x, index, calibration=CALIBRATION)] == [1, 0, 3]


@pytest.mark.parametrize(
    "call",
    [
        lambda **kwargs: w1kp_score(outputs(), **kwargs),
        lambda **kwargs: expected_closest_pairs(outputs(), **kwargs),
        lambda **kwargs: prompt_reusability(outputs(), **kwargs),
        lambda **kwargs: w1kp_by_prompt(outputs(), torch.zeros(12).long(), **kwargs),
    ],
)
def test_w1kp_without_calibration_says_how_to_calibrate(call):
    with pytest.raises(ValueError, match=r"got None.*calibrate\(features, prompt_index\).*W1KPCalibration.load"):
        call()
    with pytest.raises(ValueError, match=r"calibration.s embedding, with 7 values.*\[12, 3\]"):
        call(calibration=calibrate(outputs(9, dim=7)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_index": torch.arange(12)}, "a prompt with at least 2 outputs, but got none"),
        ({"prompt_index": torch.zeros(11).long()}, "equally many samples.*12 and 11"),
        ({"features": outputs(1)}, "a prompt with at least 2 outputs"),
        ({"features": outputs() * float("inf")}, "`features` to be finite"),
        ({"k": 1}, "`k` to be a whole number >= 2, but got 1"),
        ({"k": 13}, "a prompt with at least 13 outputs"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        w1kp_score(**({"features": outputs(), "calibration": CALIBRATION} | arguments))


def test_bad_input_of_the_others():
    with pytest.raises(TypeError, match=r"`prompt_index` as whole numbers \[N\], but got torch.float32"):
        w1kp_score(outputs(), torch.zeros(12), calibration=CALIBRATION)
    with pytest.raises(ValueError, match="`features` to hold at least 13 samples, but got 12"):
        expected_closest_pairs(outputs(), calibration=CALIBRATION, k=13)
    with pytest.raises(ValueError, match="2 names for prompts 0 to 2"):
        w1kp_by_prompt(outputs(), torch.arange(12) % 3, calibration=CALIBRATION, names=["a", "b"])
    with pytest.raises(ValueError, match="a prompt with at least 2 outputs"):
        w1kp_by_prompt(outputs(), torch.arange(12), calibration=CALIBRATION)


def test_the_table_names_the_closest_pair_of_each_prompt():
    x, index = outputs(20), torch.arange(20) % 3
    rows = {row.prompt: row for row in w1kp_by_prompt(x, index, calibration=CALIBRATION)}
    for prompt in range(3):
        members = [i for i in range(20) if i % 3 == prompt]
        expected = max(combinations(members, 2), key=lambda pair: similarity(x[pair[0]].numpy(), x[pair[1]].numpy()))
        assert rows[prompt].closest_pair == expected
        assert rows[prompt].closest == pytest.approx(similarity(*(x[i].numpy() for i in expected)))


def test_the_closest_pair_of_outputs_that_differ_as_much_as_any_is_two_of_them():
    far = torch.tensor([[0.0, 0, 0], [1e9, 0, 0], [0, 1e9, 0]])
    calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=3)
    (row,) = w1kp_by_prompt(far, torch.zeros(3, dtype=torch.long), calibration=calibration)
    assert (row.closest_pair, row.closest) == ((0, 1), 0)


def test_error_is_the_jackknife_over_outputs():
    x, index = outputs(7), torch.zeros(7, dtype=torch.long)
    (row,) = w1kp_by_prompt(x, index, calibration=CALIBRATION)
    without = [closest_pair(np.delete(x.numpy(), i, 0), 2) for i in range(7)]
    assert row.w1kp_error == pytest.approx(np.std(without) * 6**0.5)
    (pair,) = w1kp_by_prompt(x[:2], index[:2], calibration=CALIBRATION)
    assert pair.w1kp_error is None
