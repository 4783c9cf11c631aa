# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers import entropy_references as twin
from _helpers import references as ref
from torch import Tensor

from genmonitor import GaussianKernel, LaplacianKernel
from genmonitor.functional import conditional_vendi_score, vendi_score


def draw(n: int, d: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pairs(n: int = 30) -> tuple[Tensor, Tensor]:
    """Outputs that follow their prompts in part."""
    prompts = draw(n)
    return prompts @ draw(3, 4, seed=1) + draw(n, 4, seed=2), prompts


def floats(score: dict[str, Tensor]) -> dict[str, float]:
    assert {value.dtype for value in score.values()} == {torch.float64}
    return {name: float(value) for name, value in score.items()}


def cosine(x: Tensor):
    unit = twin.unit(x.numpy())
    return unit @ unit.T


@pytest.mark.parametrize("order", [0.5, 1, 2, float("inf")])
def test_twin(order):
    outputs, prompts = pairs()
    found = conditional_vendi_score(outputs, prompts, order=order)
    assert floats(found) == pytest.approx(twin.conditional_vendi(cosine(outputs), cosine(prompts), order))


def test_twin_of_other_kernels():
    outputs, prompts = pairs()
    x, t = outputs.numpy(), prompts.numpy()
    found = conditional_vendi_score(outputs, prompts, kernel=GaussianKernel(0.2), prompt_kernel=LaplacianKernel(0.3))
    expected = twin.conditional_vendi(ref.gram(x, x, 0.2), ref.gram(t, t, 0.3, "laplacian"))
    assert floats(found) == pytest.approx(expected)


def test_twin_of_truncated_spectra():
    outputs, prompts = pairs()
    k, k_t = cosine(outputs), cosine(prompts)
    joint, of_outputs, of_prompts = (twin.truncated_vendi(gram, 3) for gram in (k * k_t, k, k_t))
    expected = {"conditional_vendi": joint / of_prompts, "information_vendi": of_outputs * of_prompts / joint}
    assert floats(conditional_vendi_score(outputs, prompts, truncation=3)) == pytest.approx(expected)


def test_the_two_multiply_to_vendi():
    outputs, prompts = pairs()
    score = floats(conditional_vendi_score(outputs, prompts))
    product = score["conditional_vendi"] * score["information_vendi"]
    assert product == pytest.approx(float(vendi_score(outputs)))
    assert min(score.values()) > 1


def test_prompts_that_say_nothing_leave_vendi():
    outputs, _ = pairs()
    expected = {"conditional_vendi": float(vendi_score(outputs)), "information_vendi": 1.0}
    assert floats(conditional_vendi_score(outputs, torch.ones(30, 1))) == pytest.approx(expected)


def test_prompts_that_say_all_leave_one():
    outputs = torch.eye(5).repeat(4, 1)
    expected = {"conditional_vendi": 1.0, "information_vendi": 5.0}
    assert floats(conditional_vendi_score(outputs, outputs.flip(1))) == pytest.approx(expected)


def test_kinds_within_a_prompt_and_kinds_of_prompts_are_told_apart():
    """3 prompts of 2 kinds of outputs each; a third kind in each prompt, or a fourth prompt."""
    for prompts, kinds in ((3, 2), (3, 3), (4, 2)):
        outputs = torch.eye(prompts * kinds).repeat_interleave(4, dim=0)
        which = torch.eye(prompts).repeat_interleave(4 * kinds, dim=0)
        expected = {"conditional_vendi": kinds, "information_vendi": prompts}
        assert floats(conditional_vendi_score(outputs, which)) == pytest.approx(expected)
