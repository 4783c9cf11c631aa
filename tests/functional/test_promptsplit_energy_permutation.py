# SPDX-License-Identifier: Apache-2.0
from itertools import product

import numpy as np
import pytest
import torch

from genmonitor.functional import promptsplit_energy
from genmonitor.functional.permutation import NUM_PERMUTATIONS
from genmonitor.functional.promptsplit_energy import disagreement_p_values, permuted_sides
from genmonitor.kernels import CosineKernel, GaussianKernel

KERNELS = {"output_kernel": GaussianKernel(0.5), "prompt_kernel": GaussianKernel(8.0)}
NAMES = [0, 1, 2] * 8
PROMPTS = torch.eye(3)[NAMES]


def draw(seed, changed=None):
    outputs = PROMPTS + torch.randn(24, 3, generator=torch.Generator().manual_seed(seed))
    if changed is not None:
        outputs[changed::3] -= 2
    return outputs


def p_value(x, y, **options):
    return disagreement_p_values((x, PROMPTS), (y, PROMPTS), NAMES, NAMES, **(KERNELS | options))[0]


def test_sides_are_exchanged_within_each_prompt():
    drawn = permuted_sides("aaabbc", "aacbbb", 50, seed=0)
    of_a, of_b, of_c = ([i for i, name in enumerate("aaabbcaacbbb") if name == which] for which in "abc")
    assert {(int(x[of_a].sum()), int(x[of_b].sum()), int(x[of_c].sum())) for x in drawn} == {(3, 2, 1)}
    assert len(drawn.unique(dim=0)) > 40


def test_every_exchange_of_a_prompt_is_as_likely():
    drawn = permuted_sides("ab", "ab", 4000, seed=0)
    counts = [int((drawn[:, :2] == torch.tensor(x)).all(1).sum()) for x in product([False, True], repeat=2)]
    assert counts == pytest.approx([1000] * 4, abs=120)  # 4 standard deviations


def test_sides_are_exchanged_among_all_where_prompts_differ():
    drawn = permuted_sides("ab", "bc", 200, seed=0)
    assert len(drawn.unique(dim=0)) == 6
    assert (drawn.sum(1) == 2).all()


def reference_p_value(x, y, powers):
    """The same with NumPy, by whole matrices."""
    rows = np.concatenate([x, y])
    codes = np.concatenate([PROMPTS, PROMPTS])
    gram = np.exp(-0.5 * ((rows[:, None] - rows) ** 2).sum(2) - 8 * ((codes[:, None] - codes) ** 2).sum(2))
    splits = torch.cat([torch.arange(48)[None] < 24, permuted_sides(NAMES, NAMES, NUM_PERMUTATIONS, 0)]).numpy()
    weights = np.where(splits, 1 / 24, -1 / 24)
    found = np.array([np.einsum("si,ij,sj->s", weights, gram**power, weights) for power in powers])
    found = ((found - found.mean(1, keepdims=True)) / found.std(1, keepdims=True)).max(0)
    return float((found >= found[0] - 1e-9).mean())


@pytest.mark.parametrize("changed", [None, 0])
def test_p_value_is_that_of_whole_matrices(changed, monkeypatch):
    monkeypatch.setattr("genmonitor.linalg.chunking.MEMORY_BUDGET", 5000)  # several blocks
    x, y = draw(0).double(), draw(1, changed).double()
    assert p_value(x, y) == reference_p_value(x.numpy(), y.numpy(), (1 / 16, 1 / 4, 1, 2))


def test_samples_are_as_far_apart_as_any_from_themselves():
    assert p_value(draw(0), draw(0)) == 1


def test_p_value_is_at_its_level_for_one_generator():
    p = [p_value(draw(2 * seed), draw(2 * seed + 1), num_permutations=19) for seed in range(150)]
    assert 0 < sum(x <= 0.05 for x in p) <= 16  # 99.9 % of binomial draws
    assert np.mean(p) == pytest.approx(0.525, abs=0.08)


@pytest.mark.parametrize("kernel", [GaussianKernel(0.5), CosineKernel()])
def test_p_value_finds_a_prompt_that_is_answered_in_another_way(kernel):
    kernels = {"output_kernel": kernel, "prompt_kernel": CosineKernel() if kernel == CosineKernel() else kernel}
    p = [p_value(draw(2 * seed), draw(2 * seed + 1, changed=1), **kernels) for seed in range(10)]
    assert sum(x <= 0.05 for x in p) >= 9


def test_of_many_samples_some_are_tested(monkeypatch):
    monkeypatch.setattr(promptsplit_energy, "TESTED", 30)
    assert p_value(draw(0), draw(1, changed=0) - 3) == 0.001


def test_p_value_refuses_no_permutations():
    with pytest.raises(ValueError, match="`num_permutations` to be a whole number >= 1"):
        p_value(draw(0), draw(1), num_permutations=0)


def prompted(differing=(), n=80, seed=0):
    """Return test and reference sides of four prompts, which differ for some of these."""
    generator = torch.Generator().manual_seed(seed)
    names = [i % 4 for i in range(n)]
    prompts = torch.eye(4)[names]
    x, y = torch.randn(2, n, 3, generator=generator)
    for prompt in differing:
        y[prompt::4] += 1.5
    return (x, prompts), (y, prompts), names, names


def test_the_prompts_that_differ_and_only_these_have_a_small_p_value():
    found = disagreement_p_values(*prompted((1, 3)))[1]
    assert [prompt for prompt, p in found.items() if p <= 0.05] == [1, 3]


@pytest.mark.nightly
@pytest.mark.slow
def test_one_level_holds_for_all_prompts():
    false = sum(min(disagreement_p_values(*prompted(seed=seed))[1].values()) <= 0.05 for seed in range(100))
    assert 1 <= false <= 12


def test_too_few_samples_of_a_prompt_and_prompts_of_one_side():
    test, reference, names, _ = prompted(range(4), n=4)
    assert set(disagreement_p_values(test, reference, names, names)[1].values()) == {1.0}
    assert disagreement_p_values(test, reference, names, [0, 1, 2, 9])[1] == {}
