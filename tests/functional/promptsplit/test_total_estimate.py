# SPDX-License-Identifier: Apache-2.0
"""The total beyond the samples for which all eigenvalues are computed: right to within its stated error."""

import numpy as np
import pytest
import torch
from _helpers.joint_spectra import KERNELS, digit_sides, random_sides
from _helpers.slow import slow_but
from _helpers.total_spectra import N, dimmed, exact_total, kernels, spectra
from torch import Tensor

from genmonitor import GaussianKernel, PromptSplit
from genmonitor.functional import prompt_split
from genmonitor.functional.promptsplit import joint_spectrum
from genmonitor.kernels import Kernel
from genmonitor.linalg import chunking, krylov


@pytest.fixture
def never_dense(monkeypatch):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)


@pytest.fixture
def short_space(monkeypatch):
    """Half of a spectrum at most is in the Krylov space."""
    monkeypatch.setattr(krylov, "CAPACITY", 384)
    monkeypatch.setattr(krylov, "STEPS", 16)


def deviation(name: str, dtype: torch.dtype) -> tuple[float, float, float]:
    """Return by how much an estimate is off, its stated error and the exact value."""
    sides, arguments = spectra()[name]
    modes = prompt_split(*(side.to(dtype) for side in sides), **arguments)
    expected = exact_total(name)
    return float(modes.total) - expected, float(modes.total_error), expected


@pytest.mark.parametrize("name", spectra())
def test_all_eigenvalues_are_those_of_numpy(name):
    sides, arguments = spectra()[name]
    modes = prompt_split(*sides, **arguments)
    assert float(modes.total) == pytest.approx(exact_total(name), rel=1e-6)
    assert modes.total_error == 0


@pytest.mark.parametrize("dtype", slow_but([torch.float32, torch.float64], torch.float32), ids=str)
@pytest.mark.parametrize("name", spectra())
def test_estimates_are_as_near_as_stated(never_dense, short_space, name, dtype):
    off, error, expected = deviation(name, dtype)
    assert abs(off) <= 4 * error
    assert error < max(0.15 * expected, 0.015)


def test_stated_errors_are_as_large_as_the_errors(never_dense, short_space):
    """In the mean over the spectra that no Krylov space of half their size exhausts."""
    kinds = [
        "dimmed digits",
        "digits in negative",
        "noise",
        "embeddings",
        "embeddings, cosine",
        "embeddings, Laplacian",
    ]
    kinds += ["mixture", "mixture, Laplacian outputs", "mixture, eta 10", "every sample twice", "sides far apart"]
    parts = [off / error for off, error, _ in (deviation(name, torch.float64) for name in kinds)]
    assert 0.4 < np.sqrt(np.mean(np.square(parts))) < 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["dimmed digits", "embeddings", "mixture, eta 10"])
def test_a_large_krylov_space_tells_the_total_to_a_hundredth(never_dense, name, dtype):
    sides, arguments = spectra()[name]
    modes = prompt_split(*(side.to(dtype) for side in sides), **arguments)
    expected = exact_total(name)
    assert float(modes.total) == pytest.approx(expected, rel=0.01)
    assert float(modes.total_error) < 0.025 * expected


def test_a_curve_that_crosses_the_limit_does_not_jump(monkeypatch):
    values = []
    for limit in (2 * N, 2 * N - 1):
        monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", limit)
        values.append(prompt_split(*dimmed(N), **kernels(4.3, 0.25)))
    assert [float(modes.total_error) > 0 for modes in values] == [False, True]
    assert float(values[1].total) == pytest.approx(float(values[0].total), rel=0.005)


def test_one_sample_beyond_the_limit_hardly_changes_the_total():
    before, after = (prompt_split(*dimmed(n), **kernels(4.3, 0.25)) for n in (512, 513))
    assert before.total_error == 0
    assert 0 < after.total_error < 0.01 * before.total
    assert abs(float(after.total - before.total)) < 2 * float(after.total_error)


@pytest.mark.parametrize("name", ["noise", "embeddings, cosine", "mixture"])
def test_total_of_random_features(monkeypatch, name):
    """By their covariances, and by products with them."""
    sides, arguments = spectra()[name]
    if name == "noise":
        arguments = {"output_kernel": GaussianKernel(0.01), "prompt_kernel": GaussianKernel(0.01)}
    exact = prompt_split(*sides, **arguments, num_features=90)
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    estimate = prompt_split(*sides, **arguments, num_features=90)
    assert abs(float(estimate.total - exact.total)) <= 4 * float(estimate.total_error)
    assert float(estimate.total_error) < 0.04 * float(exact.total)
    assert exact.total_error == 0


def test_total_of_a_streamed_state(monkeypatch):
    found = []
    for limit in (1024, 0):
        monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", limit)
        metric = PromptSplit(num_features=150)
        x, t, y, u = random_sides(300, 200)
        metric.update(x, t, reference=False)
        metric.update(y, u, reference=True)
        found.append(metric.modes())
        computed = metric.compute()
        assert (computed["total"], computed["total_error"]) == (found[-1].total, found[-1].total_error)
    exact, estimate = found
    assert exact.total_error == 0
    assert abs(float(estimate.total - exact.total)) <= 4 * float(estimate.total_error)


def test_the_modes_alone_decide_where_blocks_are_made_anew(monkeypatch, never_dense):
    sides, arguments = spectra()["embeddings"]
    kept = prompt_split(*sides, **arguments)
    monkeypatch.setattr(chunking, "gram_budget", lambda device: 10**5)
    anew = prompt_split(*sides, **arguments)
    expected = exact_total("embeddings")
    assert abs(float(anew.total) - expected) <= 3 * float(anew.total_error)
    assert anew.total_error > kept.total_error
    torch.testing.assert_close(anew.eigenvalues, kept.eigenvalues, rtol=0, atol=1e-8)


def test_identical_sides_have_a_total_of_zero(never_dense):
    x, t, _, _ = digit_sides()
    modes = prompt_split(x, t, x, t, **KERNELS)
    assert modes.total == modes.total_error == 0


class Rational(Kernel):
    """A kernel of somebody else, of which no random functions are known."""

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        return 1 / (1 + self.resolved_gamma * torch.cdist(x, y) ** 2)


@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_a_kernel_without_known_waves_has_probes_too(monkeypatch, eta):
    sides = random_sides(300, 250)
    arguments = {"output_kernel": Rational(0.1), "prompt_kernel": GaussianKernel(1.0), "eta": eta}
    exact = float(prompt_split(*sides, **arguments).total)
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    monkeypatch.setattr(krylov, "CAPACITY", 240)
    monkeypatch.setattr(krylov, "STEPS", 10)
    modes = prompt_split(*sides, **arguments)
    assert abs(float(modes.total) - exact) <= 4 * float(modes.total_error)
    assert 0 < modes.total_error < 0.2 * exact
    assert modes.residuals.max() < 1e-6


def test_a_heavy_reference_hides_no_mode_of_the_test_side(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    outputs, others = torch.randn(520, 4, generator=generator), torch.randn(520, 4, generator=generator) + 0.3
    prompts = torch.randn(520, 3, generator=generator)
    found = prompt_split(outputs, prompts, others, prompts, eta=100.0, num_modes=3)
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 2000)
    exact = prompt_split(outputs, prompts, others, prompts, eta=100.0, num_modes=3)
    assert found.eigenvalues[:3].tolist() == pytest.approx(exact.eigenvalues[:3].tolist(), rel=1e-4)
    assert float(found.total) == pytest.approx(float(exact.total), rel=0.2)
    assert found.total_error > 0
