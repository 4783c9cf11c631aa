# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers.joint_spectra import ENERGY, KERNELS, digit_sides, energy, joint_gram, random_sides

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.functional import joint_diversity, prompt_split, prompt_split_energy
from genmonitor.linalg import chunking

BOTH = {"output_kernel": GaussianKernel(0.2), "prompt_kernel": GaussianKernel(0.7)}
GAMMAS = (0.2, 0.7)


def arrays(sides):
    return [side.numpy() for side in sides]


def test_golden_number():
    found = prompt_split_energy(*digit_sides(), **KERNELS)
    assert float(found) == pytest.approx(ENERGY, abs=1e-12)
    assert found.dtype == torch.float64


@pytest.mark.parametrize("eta", [0.5, 1.0, 2.0])
def test_the_energy_is_that_of_the_formula(eta):
    sides = random_sides()
    found = prompt_split_energy(*sides, **BOTH, eta=eta)
    assert float(found) == pytest.approx(energy(*arrays(sides), GAMMAS, eta), abs=1e-12)


def test_the_energy_is_the_sum_of_the_squared_eigenvalues():
    sides = random_sides()
    modes = prompt_split(*sides, num_modes=50, eta=0.7)
    assert float(prompt_split_energy(*sides, eta=0.7)) == pytest.approx(float(modes.eigenvalues.square().sum()))


def test_joint_diversity_is_the_mean_squared_kernel():
    x, t, _, _ = arrays(random_sides())
    found = joint_diversity(*random_sides()[:2], **BOTH)
    assert float(found) == pytest.approx(float((joint_gram(x, t, x, t, GAMMAS) ** 2).mean()), abs=1e-12)


def test_joint_diversity_counts_different_pairs():
    x = torch.arange(5.0)[:, None].repeat(4, 1)
    found = joint_diversity(x, x, output_kernel=GaussianKernel(1e3), prompt_kernel=GaussianKernel(1e3))
    assert float(1 / found) == pytest.approx(5)


def test_identical_sides_and_swapped_sides():
    x, t, y, u = random_sides()
    assert float(prompt_split_energy(x, t, x, t)) == pytest.approx(0, abs=1e-12)
    there, back = prompt_split_energy(x, t, y, u, **BOTH), prompt_split_energy(y, u, x, t, **BOTH)
    assert float(there) == pytest.approx(float(back), abs=1e-12)


@pytest.mark.parametrize("kernel", [GaussianKernel(0.3), LaplacianKernel(0.3), CosineKernel()])
def test_gradients(kernel):
    x, t, y, u = random_sides(7, 5)
    leaves = [side.clone().requires_grad_() for side in (x, t, y, u)]
    arguments = {"output_kernel": kernel, "prompt_kernel": GaussianKernel(0.5)}
    assert torch.autograd.gradcheck(lambda *sides: prompt_split_energy(*sides, **arguments, eta=0.7), leaves)
    assert torch.autograd.gradcheck(lambda *pair: joint_diversity(*pair, **arguments), leaves[:2])


def test_duplicates_have_finite_gradients():
    x = torch.zeros(4, 3, requires_grad=True)
    prompt_split_energy(x, torch.eye(4), torch.ones(4, 3), torch.eye(4), **BOTH).backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().sum() > 0


def test_blocks_change_neither_value_nor_gradient(monkeypatch):
    def value_and_gradient():
        sides = [side.clone().requires_grad_() for side in random_sides(40, 33)]
        value = prompt_split_energy(*sides, **BOTH) + joint_diversity(*sides[:2], **BOTH)
        value.backward()
        return [value.detach(), *(side.grad for side in sides)]

    whole = value_and_gradient()
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 8 * 8 * 40 * 3)  # three rows
    for found, expected in zip(value_and_gradient(), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_no_gram_matrix_is_kept_for_the_gradient():
    x, t, y, u = random_sides(400, 300)
    x.requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda x: x):
        prompt_split_energy(x, t, y, u, **BOTH)
    assert max(kept) < 400 * 50


def test_descending_the_gradient_meets_the_reference():
    x, t, y, _ = random_sides(20, 20)
    x = x.requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.1)
    energies = []
    for _ in range(150):
        value = prompt_split_energy(x, t, y, t, **BOTH)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        energies.append(float(value.detach()))
    assert energies[-1] < 0.5 * energies[0]


def test_autocast_changes_nothing():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = prompt_split_energy(*random_sides(), **BOTH)
    np.testing.assert_allclose(found, prompt_split_energy(*random_sides(), **BOTH), rtol=0)


SIDES = random_sides()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: SIDES[1][:-1]}, "`outputs` and `prompts` to hold equally many samples"),
        ({2: SIDES[2][:, 1:]}, "`reference_outputs` with 5 features"),
        ({0: SIDES[0][:1], 1: SIDES[1][:1]}, "`outputs` to hold at least 2 samples"),
        ({2: SIDES[2][:0], 3: SIDES[3][:0]}, "`reference_outputs` to hold at least 2 samples"),
        ({3: SIDES[3] * float("nan")}, "`reference_prompts` to be finite"),
        ({"eta": 0}, "`eta` to be a positive finite number"),
        ({"prompt_kernel": 3}, "`prompt_kernel` to be a kernel"),
    ],
)
def test_bad_input(change, message):
    sides = [change.get(index, side) for index, side in enumerate(SIDES)]
    with pytest.raises(ValueError, match=message):
        prompt_split_energy(*sides, **{name: value for name, value in change.items() if isinstance(name, str)})


def test_bad_input_of_joint_diversity():
    with pytest.raises(ValueError, match="at least 2 samples, but got 1"):
        joint_diversity(torch.zeros(1, 2), torch.zeros(1, 2))
    with pytest.raises(TypeError, match="`outputs`"):
        joint_diversity(None, torch.zeros(1, 2))
