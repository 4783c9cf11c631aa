# SPDX-License-Identifier: Apache-2.0
import sys

import gaussian_mixture
import pytest
import torch
from gaussian_mixture import measure, mixtures


@pytest.fixture(scope="module")
def rows():
    return measure(25)


def test_the_first_components_of_the_reference_are_elsewhere():
    x, t, y, u = mixtures(3, 50)
    assert x.shape == y.shape == (400, 50)
    assert torch.equal(t, u)
    distances = [(x[t[:, c] > 0].mean(0) - y[u[:, c] > 0].mean(0)).norm() for c in range(8)]
    assert min(distances[:3]) > 5 > 1 > max(distances[3:])


def test_as_many_modes_of_either_sign_as_components_that_differ(rows):
    for row in rows:
        large = row.eigenvalues[row.large]
        assert int((large > 0).sum()) == int((large < 0).sum()) == row.differing
        assert row.rest < 0.03


def test_total_and_energy_rise_with_the_components_that_differ(rows):
    for values in ([row.total for row in rows], [row.energy for row in rows]):
        assert values == sorted(values)


def test_the_script_prints_and_draws(monkeypatch, capsys, tmp_path, rows):
    monkeypatch.setattr(gaussian_mixture, "measure", lambda per_component: rows)
    monkeypatch.setattr(sys, "argv", ["gaussian_mixture.py", "--out", str(tmp_path)])
    gaussian_mixture.main()
    assert "8          8          8" in capsys.readouterr().out
    assert (tmp_path / "gaussian-mixture.png").stat().st_size > 10_000
