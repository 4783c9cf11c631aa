# SPDX-License-Identifier: Apache-2.0
import sys

import prompt_map
import pytest
import torch
from prompt_map import layout, strongest, table
from tinted_digits import CONCERNED, draw, split


@pytest.fixture(scope="module")
def compared():
    test, reference = draw(40, seed=0)
    return test, reference, split(test, reference)


def test_pairs_with_a_mode_are_those_on_which_the_models_differ(compared):
    test, reference, modes = compared
    names = [*test.prompts, *reference.prompts]
    colored = [name for name, mode in zip(names, strongest(modes).tolist(), strict=True) if mode >= 0]
    right = sum(name in CONCERNED for name in colored)
    assert right == len(colored) > 0.95 * sum(name in CONCERNED for name in names)
    assert all(prompt in CONCERNED for _, prompt in table(modes, test, reference))


def test_the_script_prints_the_modes_and_draws_the_map(monkeypatch, capsys, tmp_path):
    places = []
    monkeypatch.setattr(prompt_map, "layout", lambda *sides: places.append(layout(*sides)) or places[0])
    monkeypatch.setattr(sys, "argv", ["prompt_map.py", "--per-prompt", "5", "--out", str(tmp_path)])
    prompt_map.main()
    assert capsys.readouterr().out.count(" digit ") == 20
    assert places[0].shape == (200, 2)
    assert torch.isfinite(places[0]).all()
    assert (tmp_path / "prompt-map.png").stat().st_size > 10_000
