# SPDX-License-Identifier: Apache-2.0
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from genmonitor.functional import data_copying_test
from genmonitor.linalg import chunking


def draw(n: int, d: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reference(fake: np.ndarray, held_out: np.ndarray, train: np.ndarray) -> tuple[float, float, set[int]]:
    """From the formulas, sample by sample."""
    ratios = []
    for x in (*fake, *held_out):
        distances = sorted(float(np.linalg.norm(x - t)) for t in train)[:50]
        ratios.append(distances[0] / np.mean(distances))
    n, m = len(fake), len(held_out)
    allowed = m // 100
    limit = sorted(ratios[n:])[allowed]
    copied = {i for i in range(n) if ratios[i] < limit}
    distinct = len({min(range(len(train)), key=lambda j, i=i: np.linalg.norm(fake[i] - train[j])) for i in copied})
    size = distinct + allowed
    ways = sum(comb(n, k) * comb(m, size - k) for k in range(distinct, size + 1))
    return ways / comb(n + m, size), max(0.0, len(copied) / n - allowed / m), copied


@pytest.mark.parametrize("budget", [2**29, 3 * 8 * 60 * 7])
@pytest.mark.parametrize("copies", [0, 3, 12])
def test_twin(monkeypatch, budget, copies):
    train, held_out, fake = draw(60), draw(110, seed=1), draw(40, seed=2)
    fake[:copies] = train[5 : 5 + copies] + 0.01
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    p, share, copied = reference(fake.numpy(), held_out.numpy(), train.numpy())
    found = data_copying_test(fake, held_out, train)
    assert [float(x) for x in found[:2]] == pytest.approx([p, share])
    assert set(found.copied.tolist()) == copied
    assert found.nearest[:copies].tolist() == list(range(5, 5 + copies))


def test_level():
    """p <= 0.05 in no more than 5 % of 400 null runs, three standard errors allowed; counts make the test smaller."""
    p = torch.tensor(
        [float(data_copying_test(*(draw(40, 4, 3 * run + i) for i in range(3))).p_value) for run in range(400)]
    )
    assert ((p <= 0.05).double().mean()) <= 0.05 + 3 * 0.011
    assert float(p.max()) == 1


def test_a_twentieth_that_is_copied_is_found_and_named():
    train, held_out, fake = draw(800, 16), draw(400, 16, seed=1), draw(400, 16, seed=2)
    fake[:20] = train[100:120] + 0.05 * draw(20, 16, seed=3)
    found = data_copying_test(fake, held_out, train)
    assert float(found.p_value) < 1e-3
    assert float(found.share) == pytest.approx(0.05, abs=0.02)
    assert set(range(20)) <= set(found.copied.tolist())
    assert found.nearest[:20].tolist() == list(range(100, 120))


@pytest.mark.parametrize("change", [lambda x: 0.5 * x, lambda x: x * torch.linspace(1, 0, 16), lambda x: 2 * x])
def test_samples_that_are_too_alike_or_too_far_are_no_copies(change):
    train, held_out, fake = draw(800, 16), draw(400, 16, seed=1), change(draw(400, 16, seed=2))
    assert float(data_copying_test(fake, held_out, train).p_value) > 1e-3  # from which on copies are a finding
    nearest = [torch.cdist(x, train).amin(1) for x in (fake, held_out)]
    assert mannwhitneyu(*nearest).pvalue < 1e-3  # plain distances would tell them from held-out samples


def test_one_new_sample_over_and_over_is_no_copy():
    """Each counts once per training sample that it is near to."""
    train, held_out = draw(400, 4), draw(200, 4, seed=1)
    found = [data_copying_test(draw(1, 4, seed).repeat(200, 1), held_out, train) for seed in range(2, 40)]
    assert sum(float(x.p_value) <= 0.05 for x in found) == 0


def test_equal_samples_everywhere_are_no_copies():
    same = torch.ones(20, 3)
    found = data_copying_test(same, same, same)
    assert (float(found.p_value), float(found.share), len(found.copied)) == (1, 0, 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**16), st.floats(0.1, 1e3), st.floats(-100, 100))
def test_scale_and_place_make_no_difference(seed, scale, shift):
    train, held_out, fake = draw(40, 3, seed), draw(30, 3, seed + 1), draw(20, 3, seed + 2)
    found, moved = (
        data_copying_test(fake, held_out, train),
        data_copying_test(*(scale * x + shift for x in (fake, held_out, train))),
    )
    assert float(moved.p_value) == pytest.approx(float(found.p_value))
    assert moved.copied.tolist() == found.copied.tolist()
    torch.testing.assert_close(moved.ratios, found.ratios, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("short", ["fake", "held_out", "train"])
def test_fewer_than_8_samples_are_refused(short):
    sides = {name: draw(7 if name == short else 20) for name in ("fake", "held_out", "train")}
    with pytest.raises(ValueError, match=f"Expected `{short}` to hold at least 8 samples, but got 7"):
        data_copying_test(**sides)
