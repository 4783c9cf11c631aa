# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
import torch
from torch import distributions

from genmonitor.images.seeding import SeededRows

# How a model may draw n rows, and the mean and standard deviation of the values.
UNIFORM = (0.5, math.sqrt(1 / 12))
INTEGERS = (4.5, math.sqrt(99 / 12))  # 0..9
DRAWS = {
    "randn": (lambda n: torch.randn(n, 40), (0, 1)),
    "randn of a size": (lambda n: torch.randn(size=(n, 40)), (0, 1)),
    "randn_like": (lambda n: torch.randn_like(torch.zeros(n, 40)), (0, 1)),
    "randn of groups of rows": (lambda n: torch.randn(n * 4, 10).view(n, 40), (0, 1)),
    "rand": (lambda n: torch.rand(n, 40), UNIFORM),
    "rand_like": (lambda n: torch.rand_like(torch.zeros(n, 40)), UNIFORM),
    "randint": (lambda n: torch.randint(10, (n, 40)), INTEGERS),
    "randint of one per row": (lambda n: torch.randint(0, 10, (n,)), INTEGERS),
    "randint by name": (lambda n: torch.randint(low=0, high=10, size=(n, 40)), INTEGERS),
    "randint from above 0": (lambda n: torch.randint(5, high=15, size=(n, 40)) - 5, INTEGERS),
    "randint of numpy's numbers": (lambda n: torch.randint(np.int64(10), (n, 40)), INTEGERS),
    "randint_like": (lambda n: torch.randint_like(torch.zeros(n, 40), 10), INTEGERS),
    "randint_like from above 0": (lambda n: torch.randint_like(torch.zeros(n, 40), 5, 15) - 5, INTEGERS),
    "normal of tensors": (lambda n: torch.normal(torch.full((n, 40), 3.0), torch.full((n, 40), 2.0)), (3, 2)),
    "normal of means": (lambda n: torch.normal(torch.full((n, 40), 3.0)), (3, 1)),
    "normal by name": (lambda n: torch.normal(mean=torch.full((n, 40), 3.0)), (3, 1)),
    "normal of deviations": (lambda n: torch.normal(3.0, torch.full((n, 40), 2.0)), (3, 2)),
    "normal of a size": (lambda n: torch.normal(3.0, 2.0, size=(n, 40)), (3, 2)),
    "normal_": (lambda n: torch.empty(n, 40).normal_(3, 2), (3, 2)),
    "normal_ by name": (lambda n: torch.empty(n, 40).normal_(mean=3, std=2), (3, 2)),
    "uniform_": (lambda n: torch.empty(n, 40).uniform_(-1, 3), (1, 4 * UNIFORM[1])),
    "random_": (lambda n: torch.empty(n, 40).random_(10), INTEGERS),
    "random_ from above 0": (lambda n: torch.empty(n, 40, dtype=torch.long).random_(5, 15) - 5, INTEGERS),
    "Normal": (lambda n: distributions.Normal(torch.full((n, 40), 3.0), 2.0).sample(), (3, 2)),
    "Normal of a shape": (lambda n: distributions.Normal(3.0, 2.0).rsample((n, 40)), (3, 2)),
    "Uniform": (lambda n: distributions.Uniform(torch.zeros(n, 40), 1.0).sample(), UNIFORM),
}
OTHERS = {
    "bernoulli": lambda n: torch.bernoulli(torch.full((n, 40), 0.3)),
    "multinomial": lambda n: torch.multinomial(torch.ones(n, 4), 40, True),
    "exponential_": lambda n: torch.empty(n, 40).exponential_(),
    "dropout": lambda n: torch.nn.functional.dropout(torch.ones(n, 40), 0.2),
    "gumbel_softmax": lambda n: torch.nn.functional.gumbel_softmax(torch.zeros(n, 40, 2)),
    "a number": lambda n: torch.randn(()),
    "another number of rows": lambda n: torch.rand(n + 2),
    "a permutation": lambda n: torch.randperm(n),
    "a generator of the model's own": lambda n: torch.randn(n, 4, generator=torch.Generator().manual_seed(8)),
}


def rows(function, n, size):
    """Call a function for n samples, at most `size` at a time, sample i from seed i."""
    parts = []
    for start in range(0, n, size):
        seeds = range(start, min(start + size, n))
        with SeededRows(seeds):
            parts.append(function(len(seeds)))
    return torch.cat(parts)


@pytest.mark.parametrize("name", DRAWS)
def test_row_depends_on_its_seed_alone(name):
    function, _ = DRAWS[name]
    together = rows(function, 7, 7)
    for size, global_seed in ((1, 1), (2, 2), (3, 3)):
        torch.manual_seed(global_seed)
        assert torch.equal(rows(function, 7, size), together)


@pytest.mark.parametrize("name", DRAWS)
def test_rows_are_of_the_distribution_shape_and_type_asked_for(name):
    function, (mean, deviation) = DRAWS[name]
    expected, drawn = function(500), rows(function, 500, 500)
    assert drawn.shape == expected.shape
    assert drawn.dtype == expected.dtype
    values = drawn.double().flatten()
    assert float(values.mean()) == pytest.approx(mean, abs=4.5 * deviation / math.sqrt(len(values)))
    assert float(values.std()) == pytest.approx(deviation, rel=0.12)
    assert values.unique().equal(expected.double().unique()) or len(values.unique()) > 1000
    assert len(drawn.view(500, -1)[:100].unique(dim=0)) > min(3, drawn.numel() // 500)  # rows differ


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
@pytest.mark.parametrize("function", [torch.randn, torch.rand])
def test_every_dtype_has_its_own_values(function, dtype):
    def draw_(n):
        return function(n, 2000, dtype=dtype)

    values = rows(draw_, 4, 4)
    assert values.dtype == dtype
    assert torch.equal(rows(draw_, 4, 1), values)
    if not dtype.is_complex and function is torch.rand:
        assert float(values.min()) >= 0
        assert float(values.max()) < 1  # rounding to 16 bits would reach 1, and a model takes log(1 - u)


def test_rows_are_drawn_into_a_leaf_that_requires_grad():
    with SeededRows([1, 2]):
        x = torch.randn(2, 3, requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf
    assert torch.equal(x.detach(), rows(lambda n: torch.randn(n, 3), 3, 1)[1:])


def test_generator_of_the_models_own_is_not_touched():
    expected = torch.randn(4, 3, generator=torch.Generator().manual_seed(8))
    with SeededRows(range(4)):
        found = torch.randn(4, 3, generator=torch.Generator().manual_seed(8))
        filled = torch.empty(4, 3).normal_(generator=torch.Generator().manual_seed(8))
    assert torch.equal(found, expected)
    assert torch.equal(filled, expected)


@pytest.mark.parametrize("name", OTHERS)
def test_other_draws_are_the_global_generators(name):
    torch.manual_seed(4)
    expected = OTHERS[name](3)
    torch.manual_seed(4)
    with SeededRows([0, 1, 2]):
        found = OTHERS[name](3)
    assert torch.equal(found, expected)


def test_nothing_to_draw_is_no_error():
    with SeededRows([0, 1]):
        assert torch.randn(0, 3).shape == (0, 3)
        assert torch.randn(2, 0).shape == (2, 0)


def test_no_generator_given_by_name_is_none():
    """As diffusers' `randn_tensor` passes it on."""
    draws = [
        lambda: torch.randn(2, 5, generator=None),
        lambda: torch.rand(2, 5, generator=None),
        lambda: torch.randint(9, (2, 5), generator=None),
        lambda: torch.empty(2, 5).normal_(generator=None),
    ]
    for draw in draws:
        with SeededRows([3, 4]):
            first = draw()
        with SeededRows([3, 4]):
            assert torch.equal(draw(), first)
