# SPDX-License-Identifier: Apache-2.0
import sys

import planted_differences
import pytest
from planted_differences import CHANGES, CONCERNED, found, sides


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_the_prompts_on_which_models_differ_come_first(name):
    right, size = found(CHANGES[name], per_prompt=20, seed=0)
    _, by_chance = found(lambda x, c, g: x, per_prompt=20, seed=0)
    assert right == 1
    assert size > 1.5 * by_chance


def test_only_those_prompts_differ():
    test, _, reference, _, numbers = sides(CHANGES["one fixed answer"], 30, seed=1)
    off = (test.view(20, 30, -1).mean(1) - reference.view(20, 30, -1).mean(1)).norm(dim=1)
    assert off[:CONCERNED].min() > 2 * off[CONCERNED:].max()
    assert numbers[:31] == [0] * 30 + [1]


def test_script_prints_a_row_for_each_difference_and_for_none(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["planted_differences.py", "--per-prompt", "4", "--draws", "2"])
    planted_differences.main()
    said = capsys.readouterr().out.splitlines()
    assert [line[:15].strip() for line in said[2:]] == ["another style", "more varied", "one fixed answe", "nothing"]
