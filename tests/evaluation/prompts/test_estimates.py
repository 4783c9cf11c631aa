# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor import CosineKernel
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.estimates import ALL, PromptDistances, PromptGroups, spread_by_prompt
from genmonitor.functional import mmd_influence
from genmonitor.kernels.means import kernel_dispersion


def features(n, seed=0):
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(seed))


def test_groups_are_the_samples_of_a_prompt():
    groups = PromptGroups(Prompts(["x", "y", "x"]), 24)
    rows = groups.split(torch.arange(24))
    assert rows["x"].tolist() == [i for i in range(24) if i % 3 != 1]
    assert rows["y"].tolist() == [i for i in range(24) if i % 3 == 1]
    assert groups.by_prompt
    assert groups.note() == ""


def test_groups_leave_out_prompts_with_few_samples():
    groups = PromptGroups(Prompts(["x", "y", "x"]), 12)
    assert groups.split(torch.arange(12)).keys() == {"x"}
    assert groups.note() == (
        "1 of 2 prompts have fewer than 8 samples, too few for alerts about them; alerts are about the others"
    )


def test_groups_are_one_where_all_prompts_have_few_samples():
    groups = PromptGroups(Prompts(range(10)), 20)
    assert groups.split(torch.arange(20))[ALL].tolist() == list(range(20))
    assert not groups.by_prompt
    assert groups.note().endswith("alerts are about all together")


def test_groups_are_none_with_few_samples():
    groups = PromptGroups(Prompts(range(3)), 6)
    assert groups.split(torch.arange(6)) == {}
    assert groups.note().endswith("alerts are about none")


def test_groups_need_enough_samples_on_both_sides():
    assert not PromptGroups(Prompts(range(3)), 24, 12).by_prompt


def test_spread_is_that_of_the_prompts_samples():
    x = features(24)
    found = spread_by_prompt(x, PromptGroups(Prompts(range(3)), 24), CosineKernel())
    expected = kernel_dispersion(x[1::3], CosineKernel())
    assert (found["1"].value, found["1"].error) == (float(expected.value), float(expected.standard_error))
    assert found["1"].samples == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_distance_is_that_of_the_prompts_samples(dtype):
    fake, real = features(24).to(dtype), features(30, 1).to(dtype)
    found = PromptDistances(real, PromptGroups(Prompts(range(3)), 24, 30)).measure(fake)
    expected = mmd_influence(fake[2::3], real[2::3])
    assert found["2"].value == pytest.approx(float(expected.mmd))
    error = (expected.fake.var() / 8 + expected.real.var() / 10).sqrt()
    assert found["2"].error == pytest.approx(float(error))
    assert found["2"].samples == 8
