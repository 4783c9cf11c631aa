# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from genmonitor.images.prompts import Prompts


def test_prompts_are_repeated_in_their_order():
    assert Prompts(["a", "b", "c"]).of(range(2, 7)) == ["c", "a", "b", "c", "a"]


def test_prompts_that_are_labels_come_as_int64():
    labels = Prompts(torch.tensor([4, 1])).of([0, 1, 2])
    assert labels.dtype == torch.int64
    assert labels.tolist() == [4, 1, 4]


@pytest.mark.parametrize("given", [[4, 1], (4, 1), np.array([4, 1]), torch.tensor([4, 1]), range(4, 0, -3)])
def test_prompts_of_any_kind_are_plain_python(given):
    values = Prompts(given).values
    assert values == [4, 1]
    assert all(type(value) is int for value in values)


@pytest.mark.parametrize("prompts", ["a cat", [], ["a", 1], [0.5], [True, False], 3, torch.zeros(2, 2), [None]])
def test_prompts_refuse_anything_else(prompts):
    with pytest.raises(ValueError, match="list of strings or of integer class labels"):
        Prompts(prompts)


def test_prompts_from_any_keeps_prompts():
    prompts = Prompts(["a"])
    assert Prompts.from_any(prompts) is prompts
    assert Prompts.from_any([3]).values == [3]


def test_prompts_numbers_count_distinct_ones():
    prompts = Prompts(["b", "a", "b"])
    assert prompts.distinct == ["b", "a"]
    assert prompts.numbers(torch.tensor([0, 1, 2, 4])).tolist() == [0, 1, 0, 1]


def test_prompts_name_each_sample():
    prompts = Prompts([7, 3])
    assert prompts.named(range(5)) == [7, 3, 7, 3, 7]
    assert prompts.text(3) == "3"
