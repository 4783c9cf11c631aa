# SPDX-License-Identifier: Apache-2.0
import warnings

import numpy as np
import pytest
import torch
from _helpers import entropy_references as twin
from _helpers import references as ref
from _helpers.entropy_references import SCENDI, digits, one_hot
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.functional import scendi_score, vendi_score
from genmonitor.functional.scendi import (
    JointCovariance,
    least_squares_map,
    scendi_from_covariances,
    scendi_from_grams,
    scendi_modes,
)
from genmonitor.kernels.covariance import covariance, feature_map, random_features


def draw(n: int, d: int = 3, seed: int = 0, shift: float = 0.0) -> Tensor:
    return shift + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pairs(n: int, d: int = 4, e: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs that follow their prompts in part."""
    prompts = draw(n, e, seed=seed)
    return prompts @ draw(e, d, seed=seed + 1) + draw(n, d, seed=seed + 2), prompts


def joint_of(outputs: Tensor, prompts: Tensor) -> JointCovariance:
    maps = [feature_map(CosineKernel(), x.shape[1], None, 0) for x in (outputs, prompts)]
    return JointCovariance.of(covariance([outputs, prompts], maps), outputs.shape[1], len(outputs))


def floats(score: dict[str, Tensor]) -> dict[str, float]:
    assert {value.dtype for value in score.values()} == {torch.float64}
    return {name: float(value) for name, value in score.items()}


def unit(x: Tensor) -> np.ndarray:
    return twin.unit(x.numpy())


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_digits(dtype, error):
    outputs, prompts = (digits() + 1).to(dtype), one_hot().to(dtype)
    assert floats(scendi_score(outputs, prompts)) == pytest.approx(SCENDI, abs=error)
    grams = [torch.from_numpy(unit(x.double()) @ unit(x.double()).T) for x in (outputs, prompts)]
    assert floats(scendi_from_grams(*grams)) == pytest.approx(SCENDI, abs=error)


@pytest.mark.parametrize("n", [60, 7])
@pytest.mark.parametrize("sides", [(4, 3), (3, 5), (2, 2)])
def test_twin(n, sides):
    """More samples than dimensions go by covariances, fewer by Gram matrices."""
    outputs, prompts = pairs(n, *sides)
    expected = twin.scendi(unit(outputs), unit(prompts))
    assert floats(scendi_score(outputs, prompts)) == pytest.approx(expected)
    joint = joint_of(outputs, prompts)
    assert floats(scendi_from_covariances(joint)) == pytest.approx(expected)
    grams = (torch.from_numpy(unit(x) @ unit(x).T) for x in (outputs, prompts))
    assert floats(scendi_from_grams(*grams)) == pytest.approx(expected)


@pytest.mark.parametrize("n", [200, 40])
def test_twin_of_random_features(n):
    outputs, prompts = pairs(n)
    prompts = prompts.round()[:, :1] @ torch.ones(1, 3).double()  # few distinct ones
    phi = twin.fourier(outputs.numpy(), random_features(GaussianKernel(0.1), 4, 20, 3).frequencies.double().numpy())
    phi_t = twin.fourier(prompts.numpy(), random_features(GaussianKernel(0.2), 3, 20, 3).frequencies.double().numpy())
    found = scendi_score(
        outputs,
        prompts,
        kernel=GaussianKernel(0.1),
        prompt_kernel=GaussianKernel(0.2),
        num_features=20,
        rcond=1e-4,
        seed=3,
    )
    assert floats(found) == pytest.approx(twin.scendi(phi, phi_t, 1e-4))


def test_random_features_come_near_the_kernel():
    outputs, prompts = pairs(300)
    prompts = prompts.sign()
    kernels = {"kernel": GaussianKernel(0.1), "prompt_kernel": GaussianKernel(0.2)}
    exact = floats(scendi_score(outputs, prompts, **kernels))
    assert floats(scendi_score(outputs, prompts, num_features=4000, **kernels)) == pytest.approx(exact, rel=0.03)
    assert exact["scendi"] > 4


def test_one_kernel_may_be_exact_and_the_other_have_features():
    outputs, prompts = pairs(50)
    gram = torch.from_numpy(ref.gram(outputs.numpy(), outputs.numpy(), 0.3, "laplacian"))
    expected = scendi_from_grams(gram, torch.from_numpy(unit(prompts) @ unit(prompts).T))
    assert floats(scendi_score(outputs, prompts, kernel=LaplacianKernel(0.3))) == pytest.approx(floats(expected))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(12, 40), d=st.integers(1, 6), e=st.integers(1, 6), seed=st.integers(0, 99))
def test_parts_are_positive_and_sum_to_one(n, d, e, seed):
    outputs, prompts = pairs(n, d, e, seed)
    joint = joint_of(outputs, prompts)
    driven = least_squares_map(joint) @ joint.cross.T
    rest = joint.outputs - driven
    for part in (driven, rest):
        assert float(torch.linalg.eigvalsh(part).min()) > -1e-12
    assert float(driven.trace() + rest.trace()) == pytest.approx(1, abs=1e-6)
    score = floats(scendi_score(outputs, prompts))
    assert score["prompt_share"] == pytest.approx(float(driven.trace()))
    assert 0 <= score["prompt_share"] <= 1
    assert min(score["scendi"], score["scendi_prompt"]) >= 1 - 1e-12
    assert floats(scendi_score(outputs.flip(0), prompts.flip(0))) == pytest.approx(score)


def test_scendi_is_vendi_where_prompts_say_nothing():
    """Each of 4 outputs occurs with each of 4 prompts of mean zero, so that C_IT is 0."""
    outputs = draw(4, 5).repeat_interleave(4, dim=0)
    prompts = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).double().repeat(4, 1)
    score = floats(scendi_score(outputs, prompts))
    assert score == pytest.approx({"scendi": float(vendi_score(outputs)), "scendi_prompt": 1, "prompt_share": 0})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scendi_is_one_where_prompts_say_all(dtype):
    """Outputs' features, of norm 1, are a rotation of the prompts'."""
    prompts = draw(50, 4).to(dtype)
    outputs = 3 * prompts @ torch.linalg.qr(draw(4, 4, seed=1)).Q.to(dtype)
    score = floats(scendi_score(outputs, prompts))
    assert score == pytest.approx({"scendi": 1, "scendi_prompt": float(vendi_score(outputs)), "prompt_share": 1})


def scenes(shapes: int, colors: int) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs with a shape and a color, as one-hot columns of their own, and the names of each."""
    n = 60
    shape, color = torch.arange(n) % shapes, torch.arange(n) // 5 % colors
    one_hot = torch.nn.functional.one_hot
    return torch.cat([one_hot(shape, 6), one_hot(color, 6)], 1).double(), one_hot(shape).double(), color


def test_what_prompts_name_raises_vendi_and_not_scendi():
    """The paper's controlled experiment on CLEVR, in small."""
    named, unnamed, vendi = [], [], []
    for count in (2, 3, 5):
        outputs, shape, _ = scenes(shapes=count, colors=2)
        vendi.append(float(vendi_score(outputs)))
        named.append(floats(scendi_score(outputs, shape))["scendi"])
        unnamed.append(floats(scendi_score(outputs, torch.ones(60, 1)))["scendi"])
    assert vendi[0] * 1.15 < vendi[1] < vendi[2] / 1.15
    assert unnamed[0] * 1.15 < unnamed[1] < unnamed[2] / 1.15
    assert named == pytest.approx([named[0]] * 3, rel=0.02)


def test_more_specific_prompts_leave_less_open():
    outputs, shape, color = scenes(shapes=4, colors=3)
    both = torch.cat([shape, torch.nn.functional.one_hot(color).double()], 1)
    scores = [floats(scendi_score(outputs, prompts)) for prompts in (torch.ones(60, 1), shape, both)]
    assert scores[0]["scendi"] > 1.2 * scores[1]["scendi"] > 1.2**2 * scores[2]["scendi"]
    assert scores[0]["prompt_share"] < scores[1]["prompt_share"] < scores[2]["prompt_share"]


@pytest.mark.parametrize("kernel", [CosineKernel(), GaussianKernel(0.3)])
def test_one_prompt_for_all_takes_the_mean_away_whatever_it_says(kernel):
    outputs = draw(40, 5)
    prompts = [draw(1, 4, seed=seed).expand(40, 4) for seed in range(3)]
    scores = [float(scendi_score(outputs, one, kernel=kernel)["scendi"]) for one in prompts]
    assert scores[1:] == pytest.approx(scores[:1] * 2, rel=1e-9)


def test_least_squares_map_is_a_regression():
    outputs, prompts = pairs(40)
    joint, phi, phi_t = joint_of(outputs, prompts), unit(outputs), unit(prompts)
    expected = np.linalg.lstsq(phi_t, phi, rcond=None)[0].T
    np.testing.assert_allclose(least_squares_map(joint).numpy(), expected, atol=1e-10)


def test_modes_are_eigenvectors_with_scores_of_positive_sum():
    outputs, prompts = pairs(40)
    phi, phi_t = unit(outputs), unit(prompts)
    total = torch.from_numpy(np.hstack([phi, phi_t]).sum(0))
    modes = scendi_modes(joint_of(outputs, prompts), total, 3)
    model, _ = twin.parts(phi, phi_t, 1e-6)
    eigenvalues, vectors = (array[..., ::-1][..., :3] for array in np.linalg.eigh(model))
    np.testing.assert_allclose(modes.eigenvalues, eigenvalues, atol=1e-12)
    scores = phi @ modes.vectors.numpy() - phi_t @ modes.prompt_vectors.numpy()
    gamma = np.linalg.lstsq(phi_t, phi, rcond=None)[0].T
    expected = (phi - phi_t @ gamma.T) @ vectors
    np.testing.assert_allclose(scores, expected * np.sign(expected.sum(0)), atol=1e-10)
    assert (scores.sum(0) > 0).all()


def test_the_sign_of_modes_does_not_hang_on_rounding():
    """With one-hot prompts the scores sum to 0: what is left of that sum, and so its sign, is rounding."""
    outputs, prompts = digits() + 1, one_hot()
    joint, maps = joint_of(outputs, prompts), [feature_map(CosineKernel(), d, None, 0) for d in (64, 10)]
    total = torch.cat([m(x) for m, x in zip(maps, (outputs, prompts), strict=True)], 1).sum(0)
    modes = scendi_modes(joint, total, 8)
    for sign in (1e-9, -1e-9):
        torch.testing.assert_close(scendi_modes(joint, total + sign, 8).vectors, modes.vectors, rtol=0, atol=1e-8)
    assert (modes.vectors.gather(0, modes.vectors.abs().argmax(0, keepdim=True)) > 0).all()


def test_rcond_cuts_small_eigenvalues_of_the_prompts_off():
    outputs, prompts = pairs(60)
    prompts = prompts * torch.tensor([1.0, 1.0, 1e-3])
    smallest = np.linalg.eigvalsh(unit(prompts).T @ unit(prompts) / 60)[0]
    assert 1e-7 < smallest < 1e-5
    for rcond in (1e-9, 1e-3):
        expected = twin.scendi(unit(outputs), unit(prompts), rcond)
        assert floats(scendi_score(outputs, prompts, rcond=rcond)) == pytest.approx(expected)
        grams = [torch.from_numpy(unit(x) @ unit(x).T) for x in (outputs, prompts)]
        assert floats(scendi_from_grams(*grams, rcond=rcond)) == pytest.approx(expected)
    shares = [floats(scendi_score(outputs, prompts, rcond=rcond))["prompt_share"] for rcond in (1e-9, 1e-3)]
    assert shares[0] > shares[1] + 0.01
    default = floats(scendi_score(outputs, prompts))["prompt_share"]  # 3 times 1.2e-7
    assert default == pytest.approx(shares[0])


@pytest.mark.parametrize("options", [{}, {"num_features": 60}, {"num_features": 400}])
def test_prompts_of_full_rank_are_warned_of(options):
    """They explain any outputs: with prompts that have nothing to do with them Scendi is 1 all the same."""
    outputs, prompts = draw(100, 5), draw(100, 6, seed=1)
    kernels = {"kernel": GaussianKernel(0.5), "prompt_kernel": GaussianKernel(5.0)}
    with pytest.warns(UserWarning, match=r"rank (100|9\d) for 100 samples.*`scendi` is near 1 whatever"):
        score = floats(scendi_score(outputs, prompts, **kernels, **options))
    assert score["prompt_share"] > 0.95
    assert score["scendi"] < 1.5


def test_rank_deficient_prompts_give_finite_values():
    outputs, prompts = pairs(30, e=2)
    for deficient in (torch.cat([prompts, prompts], 1), prompts[:, :1] * 0 + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            score = floats(scendi_score(outputs, deficient))
        assert all(np.isfinite(value) for value in score.values())
        assert score == pytest.approx(floats(scendi_score(outputs, deficient[:, : deficient.shape[1] // 2 or 1])))


def test_more_modes_than_features_are_refused():
    with pytest.raises(ValueError, match="`num_modes` to be at most 4, the features of the kernel, but got 5"):
        scendi_modes(joint_of(*pairs(20)), torch.zeros(7, dtype=torch.float64), 5)
