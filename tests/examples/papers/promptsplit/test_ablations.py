# SPDX-License-Identifier: Apache-2.0
import sys
from statistics import fmean

import ablations
import torch
from ablations import KERNELS, bound, errors_in_n, errors_in_r, outermost, spectrum, spectrum_of
from gaussian_mixture import mixtures

from genmonitor.functional import prompt_split


def test_the_spectrum_is_that_of_prompt_split():
    x, t, y, u = (side.double() for side in mixtures(4, 5))
    gram = (KERNELS["output_kernel"](torch.cat([x, y]), torch.cat([x, y]))) * KERNELS["prompt_kernel"](
        torch.cat([t, u]), torch.cat([t, u])
    )
    expected = prompt_split(x, t, y, u, **KERNELS, num_modes=40).eigenvalues
    torch.testing.assert_close(spectrum(gram), torch.cat([expected[:40], expected[-40:]]), rtol=0, atol=1e-9)
    features = torch.linalg.cholesky(gram + 1e-12 * torch.eye(80))
    torch.testing.assert_close(spectrum_of(features[:, :80]), spectrum(gram), rtol=0, atol=1e-9)


def test_errors_fall_with_frequencies_and_stay_below_the_bound():
    errors = errors_in_r([50, 800], 5, draws=4)
    assert fmean(errors[800]) < fmean(errors[50]) / 2
    assert all(max(values) < bound(r) for r, values in errors.items())


def test_errors_fall_with_samples():
    errors = errors_in_n([5, 20], 40, draws=2)
    assert list(errors) == [40, 160]
    assert fmean(errors[160]) < fmean(errors[40])
    assert outermost(5, 0).shape == (16,)


def test_the_script_prints_and_draws(monkeypatch, capsys, tmp_path):
    command = "ablations.py --frequencies 50 100 --per-component 5 10 --many 20 --draws 2".split()  # noqa: SIM905
    monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path)])
    ablations.main()
    assert "Theorem 1" in capsys.readouterr().out
    assert (tmp_path / "ablations.png").stat().st_size > 10_000
