# SPDX-License-Identifier: Apache-2.0
"""The total beside NumPy's, and of a part of the samples where they are many."""

import pytest
import torch
from _helpers.total_spectra import N, dimmed, exact_total, kernels, spectra

from genmonitor.functional import joint_spectrum, prompt_split


@pytest.mark.parametrize("limit", [0, 1024], ids=["ends", "whole"])
@pytest.mark.parametrize("name", spectra())
def test_it_is_that_of_numpy(monkeypatch, name, limit):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", limit)
    sides, arguments = spectra()[name]
    assert float(prompt_split(*sides, **arguments).total) == pytest.approx(exact_total(name), rel=1e-6)


def test_of_many_samples_it_is_that_of_some(monkeypatch):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    sides, arguments = dimmed(2 * N), kernels(4.3, 0.25)
    whole = float(prompt_split(*sides, **arguments).total)
    monkeypatch.setattr(joint_spectrum, "TOTAL_SAMPLES", 2 * N)
    first, again = (prompt_split(*sides, **arguments) for _ in range(2))
    assert torch.equal(first.total, again.total)
    assert float(first.total) != pytest.approx(whole, rel=1e-6)
    assert float(first.total) == pytest.approx(whole, rel=0.05)


def test_sides_that_are_the_same_have_none_however_many(monkeypatch):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    monkeypatch.setattr(joint_spectrum, "TOTAL_SAMPLES", 50)
    x, t, _, _ = dimmed(N)
    assert prompt_split(x, t, x, t).total == 0


def test_of_more_samples_of_one_side_both_are_thinned_alike(monkeypatch):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    monkeypatch.setattr(joint_spectrum, "TOTAL_SAMPLES", 30)
    seen = []
    weights = joint_spectrum.side_weights
    monkeypatch.setattr(joint_spectrum, "side_weights", lambda *given: seen.append(given[:2]) or weights(*given))
    x, t, y, u = dimmed(N)
    prompt_split(x, t, y[: N // 2], u[: N // 2])
    assert seen == [(N + N // 2, N), (30, 20)]
