# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from scipy.stats import mannwhitneyu

from genmonitor.functional import prompt_fidelity


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_twin():
    """From the formulas, pair by pair."""
    x, t, index = draw(40, 5), draw(4, 5, seed=1), torch.arange(40) % 3
    index[:7] = 3  # too few to be tested
    found = prompt_fidelity(x, t, index)
    cosines = np.array([[100 * float(a @ b / a.norm() / b.norm()) for b in t] for a in x])
    own = [cosines[index == p, p] for p in range(4)]
    others = [cosines[index != p, p] for p in range(4)]
    assert float(found.score) == pytest.approx(np.concatenate(own).mean())
    assert float(found.shuffled) == pytest.approx(np.concatenate(others).mean())
    np.testing.assert_allclose(found.by_prompt, [x.mean() for x in own])
    np.testing.assert_allclose(found.of_others, [x.mean() for x in others])
    p = [mannwhitneyu(a, b, alternative="greater").pvalue for a, b in zip(own[:3], others[:3], strict=True)]
    np.testing.assert_allclose(found.p_value[:3], p)
    assert found.p_value[3].isnan()


def test_prompts_that_are_followed_are_told_from_one_that_is_ignored():
    prompts, index = draw(5, 16), torch.arange(100) % 5
    images = prompts[torch.where(index == 2, torch.arange(100) % 4, index)] + 0.5 * draw(100, 16, seed=1)
    found = prompt_fidelity(images, prompts, index)
    assert (found.p_value < 1e-3).tolist() == [True, True, False, True, True]
    assert found.by_prompt[2] < found.by_prompt.amax() - 20


def test_level():
    """Prompts that are ignored have p <= 0.05 in about 5 %, three standard errors allowed."""
    p = [prompt_fidelity(draw(60, 4, seed=run), draw(3, 4, seed=9), torch.arange(60) % 3).p_value for run in range(200)]
    assert float((torch.cat(p) <= 0.05).double().mean()) == pytest.approx(0.05, abs=3 * 0.0089)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (torch.zeros(10).long(), r"to hold each of 0..2, of two prompts or more, but got \[0\]"),
        (torch.arange(10) % 4, r"but got \[0, 1, 2, 3\]"),
        (torch.arange(9) % 3, "equally many"),
    ],
)
def test_bad_indices_are_refused(index, says):
    with pytest.raises(ValueError, match=says):
        prompt_fidelity(draw(10, 4), draw(3, 4), index)
