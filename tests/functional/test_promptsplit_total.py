# SPDX-License-Identifier: Apache-2.0
"""The total beyond the samples for which all eigenvalues are computed: right to within its stated error."""

import functools

import numpy as np
import pytest
import torch
from _helpers.golden import digits
from _helpers.joint_spectra import KERNELS, digit_sides, ken_total, labels, mixture, random_sides
from torch import Tensor

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel, PromptSplit
from genmonitor.functional import _joint_spectrum as joint_spectrum
from genmonitor.functional import prompt_split
from genmonitor.kernels import Kernel
from genmonitor.kernels.product import PairKernel
from genmonitor.linalg import blocks, krylov

N = 400


@pytest.fixture
def never_dense(monkeypatch):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)


def dimmed(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Digits at 0.7 of their brightness against themselves, with their labels as prompts."""
    index = torch.arange(n) % 1797
    images, prompts = (digits().flatten(1) + 1) / 2, torch.nn.functional.one_hot(labels()).double()
    return 0.7 * images[index], prompts[index], images[index], prompts[index]


def kernels(sigma: float, prompt_sigma: float) -> dict[str, GaussianKernel]:
    return {
        "output_kernel": GaussianKernel.from_sigma(sigma),
        "prompt_kernel": GaussianKernel.from_sigma(prompt_sigma),
    }


@functools.cache
def spectra() -> dict[str, tuple[tuple[Tensor, ...], dict]]:
    """Sides and arguments whose spectra are flat, steep, of low rank, one-sided, multiple, of noise alone."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, y, t, u = draw(N, 200), draw(N, 200), draw(N, 50), draw(N, 50)
    scale = torch.arange(1, 201).double().rsqrt()
    topics, answers = draw(40, 32), draw(2, 40, 200)
    answers[1, 8:] = answers[0, 8:]
    topic, other = torch.randint(40, (2, N), generator=generator)
    embeddings = (
        (answers[0, topic] + x) * scale,
        topics[topic] + 0.5 * draw(N, 32),
        (answers[1, other] + y) * scale,
        topics[other] + 0.5 * draw(N, 32),
    )
    three = torch.eye(3).double()[torch.arange(N) % 3]
    components = tuple(side.double()[::2] for side in mixture(3))
    copies = tuple(side.double()[::2] for side in mixture(3, spread=0.0))
    twice = tuple(torch.cat([side[: N // 2]] * 2) for side in (x, t, y, u))
    one = (x[:1] + 0.01 * x, t[:1] + 0.01 * t, y, u)
    cosines = {"output_kernel": CosineKernel(), "prompt_kernel": CosineKernel()}
    laplacian = {"output_kernel": LaplacianKernel(), "prompt_kernel": LaplacianKernel()}
    mixed = {"output_kernel": LaplacianKernel(), "prompt_kernel": GaussianKernel(1.0)}
    tiny = {"output_kernel": GaussianKernel(1e-5), "prompt_kernel": GaussianKernel(1e-5)}
    large = {"output_kernel": GaussianKernel(0.1), "prompt_kernel": GaussianKernel(0.1)}
    one_hot = {"prompt_kernel": GaussianKernel(1.0)}
    return {
        "dimmed digits": (dimmed(N), kernels(4.3, 0.25)),
        "digits in negative": (tuple(side[:N] for side in digit_sides()), KERNELS),
        "noise": ((x, t, y, u), {}),
        "embeddings": (embeddings, {}),
        "embeddings, cosine": (embeddings, cosines),
        "embeddings, Laplacian": (embeddings, laplacian),
        "smooth": ((x[:, :1], three, y[:, :1] + 0.3, three), one_hot),
        "mixture": (components, {}),
        "mixture, Laplacian outputs": (components, mixed),
        "mixture, eta 0.1": (components, {"eta": 0.1}),
        "mixture, eta 10": (components, {"eta": 10.0}),
        "copies": (copies, {}),
        "every sample twice": (twice, {}),
        "one mode above all others": (one, {}),
        "sides far apart": ((x, t, y + 100, u), large | {"output_kernel": GaussianKernel(1e-3)}),
        "nearly linear": ((x, t, y + 0.1, u), tiny),
        "nearly orthogonal": ((x, t, y, u), large),
        "sides of different size": ((x[:100], t[:100], y, u), {}),
        "steep": ((x * scale**2, t[:, :2], y * scale**2, u[:, :2]), {}),
    }


def exact_total(sides: tuple[Tensor, ...], arguments: dict) -> float:
    """By all eigenvalues of K^½ D K^½, in NumPy."""
    x, t, y, u = sides
    eta, options = arguments.get("eta", 1.0), {k: v for k, v in arguments.items() if k != "eta"}
    kernel = PairKernel.of(y, u, options.get("output_kernel"), options.get("prompt_kernel"))
    rows = torch.cat([kernel.rows(x, t), kernel.rows(y, u)])
    values, vectors = np.linalg.eigh(kernel.gram(rows, rows).numpy())
    root = vectors * np.sqrt(
        values * (values > 1e-14 * values.max())
    )  # where copies cancel, rounding has a square root
    weights = np.repeat([1 / len(x), -eta / len(y)], [len(x), len(y)])
    return ken_total(np.linalg.eigvalsh(root.T @ (weights[:, None] * root)))


@pytest.fixture
def short_space(monkeypatch):
    """Half of a spectrum at most is in the Krylov space."""
    monkeypatch.setattr(krylov, "CAPACITY", 384)
    monkeypatch.setattr(krylov, "STEPS", 16)


def deviation(name: str, dtype: torch.dtype) -> tuple[float, float, float]:
    """Return by how much an estimate is off, its stated error and the exact value."""
    sides, arguments = spectra()[name]
    modes = prompt_split(*(side.to(dtype) for side in sides), **arguments)
    expected = exact_total(sides, arguments)
    return float(modes.total) - expected, float(modes.total_error), expected


@pytest.mark.parametrize("name", spectra())
def test_all_eigenvalues_are_those_of_numpy(name):
    sides, arguments = spectra()[name]
    modes = prompt_split(*sides, **arguments)
    assert float(modes.total) == pytest.approx(exact_total(sides, arguments), rel=1e-6)
    assert modes.total_error == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
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
    expected = exact_total(sides, arguments)
    assert float(modes.total) == pytest.approx(expected, rel=0.01)
    assert float(modes.total_error) < 0.02 * expected


@pytest.mark.parametrize("limit", [0, 1024])
@pytest.mark.parametrize("name", ["dimmed digits", "embeddings, cosine", "mixture, eta 10", "copies"])
def test_all_eigenvalues_without_their_vectors(monkeypatch, name, limit):
    """The total is exact, and the modes are those of a Krylov space."""
    monkeypatch.setattr(joint_spectrum, "WHOLE_LIMIT", limit)
    sides, arguments = spectra()[name]
    modes = prompt_split(*sides, **arguments)
    assert float(modes.total) == pytest.approx(exact_total(sides, arguments), rel=1e-6)
    assert modes.total_error == 0
    monkeypatch.setattr(joint_spectrum, "WHOLE_LIMIT", 10**6)
    whole = prompt_split(*sides, **arguments)
    torch.testing.assert_close(modes.eigenvalues, whole.eigenvalues, rtol=0, atol=1e-7)
    sizes = [found.scores.abs().mean(0)[whole.eigenvalues.abs() > 1e-6] for found in (modes, whole)]
    torch.testing.assert_close(*sizes, rtol=0, atol=1e-4)
    assert modes.residuals.max() < 1e-5


def test_a_curve_that_crosses_the_limit_does_not_jump(monkeypatch):
    values = []
    for limit in (2 * N, 2 * N - 1):
        monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", limit)
        values.append(prompt_split(*dimmed(N), **kernels(4.3, 0.25)))
    assert [float(modes.total_error) > 0 for modes in values] == [False, True]
    assert float(values[1].total) == pytest.approx(float(values[0].total), rel=0.005)


@pytest.mark.slow
def test_one_sample_more_than_the_limit_does_not_change_the_total():
    """With distinct digits: the second turn through them is a little darker."""
    sides = tuple(side * (1 - 0.01 * (torch.arange(2049) // 1797))[:, None] for side in dimmed(2049))
    before, after = (prompt_split(*(side[:n] for side in sides), **kernels(4.3, 0.25)) for n in (2048, 2049))
    assert before.total_error == 0
    assert 0 < after.total_error < 0.01 * before.total
    assert abs(float(after.total - before.total)) < 2 * float(after.total_error)


@pytest.mark.parametrize("name", ["noise", "embeddings, cosine", "mixture"])
@pytest.mark.parametrize("num_features", [90, 1000])
def test_of_random_features(monkeypatch, name, num_features):
    """By their covariance, and by the Gram matrix where there are more of them than samples."""
    sides, arguments = spectra()[name]
    if name == "noise":
        arguments = {"output_kernel": GaussianKernel(0.01), "prompt_kernel": GaussianKernel(0.01)}
    exact = prompt_split(*sides, **arguments, num_features=num_features)
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    estimate = prompt_split(*sides, **arguments, num_features=num_features)
    assert abs(float(estimate.total - exact.total)) <= 3 * float(estimate.total_error) + 1e-4 * float(exact.total)
    assert float(estimate.total_error) < 0.04 * float(exact.total)
    assert exact.total_error == 0


def test_streamed(monkeypatch):
    found = []
    for limit in (4096, 0):
        monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", limit)
        metric = PromptSplit(num_features=150)
        x, t, y, u = random_sides(300, 200)
        metric.update(x, t, reference=False)
        metric.update(y, u, reference=True)
        found.append(metric.modes())
        assert metric.compute()["total"] == found[-1].total
    exact, estimate = found
    assert exact.total_error == 0
    assert abs(float(estimate.total - exact.total)) <= 3 * float(estimate.total_error) + 1e-4 * float(exact.total)


def test_where_the_gram_matrix_is_computed_anew_the_modes_alone_decide(monkeypatch, never_dense):
    sides, arguments = spectra()["embeddings"]
    kept = prompt_split(*sides, **arguments)
    monkeypatch.setattr(blocks, "gram_budget", lambda device: 10**5)
    anew = prompt_split(*sides, **arguments)
    expected = exact_total(sides, arguments)
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
        return 1 / (1 + self.width * torch.cdist(x, y) ** 2)


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


@pytest.mark.parametrize("kernel", [GaussianKernel(0.1), LaplacianKernel(0.1), CosineKernel()])
@pytest.mark.parametrize("prompt_kernel", [GaussianKernel(0.3), LaplacianKernel(0.3), CosineKernel()])
def test_probes_have_the_gram_matrix_as_covariance(monkeypatch, kernel, prompt_kernel):
    x, t, y, u = random_sides(9, 8)
    pairs = PairKernel.of(y, u, kernel, prompt_kernel)
    rows = pairs.rows(x, t)
    drawn = pairs.probes(rows, 1000)
    gram = pairs.gram(rows, rows)
    deviation = (gram.diagonal() * gram.diagonal()[:, None] + gram**2).sqrt() / 1000**0.5
    assert (abs(drawn @ drawn.T / 1000 - gram) < 4.5 * deviation).all()
    assert torch.equal(pairs.probes(rows, 1000), drawn)
