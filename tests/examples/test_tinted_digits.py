# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
import tinted_digits
import torch
from tinted_digits import CONCERNED, PROMPTS, disagreement, draw, split, tint

from genmonitor.functional import rank_prompts


def test_colored_is_colored_and_gray_is_gray():
    digits = torch.rand(20, 8, 8, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    colored, gray = tint(digits, True, generator), tint(digits, False, generator)
    assert colored.shape == gray.shape == (20, 3, 8, 8)
    assert torch.equal(gray[:, 0], gray[:, 2])
    assert (colored.amax(1) - colored.amin(1)).mean() > 0.2
    assert 0 <= colored.min() <= colored.max() <= 1


def test_both_models_answer_every_prompt_and_stray_as_planned():
    test, reference = draw(4, seed=0)
    assert test.prompts == reference.prompts == [prompt for prompt in PROMPTS for _ in range(4)]
    for answers, strays in ((test, "colored"), (reference, "gray")):
        colorful = (answers.images.amax(1) - answers.images.amin(1)).flatten(1).mean(1) > 0.05
        for prompt, found in zip(answers.prompts, colorful.tolist(), strict=True):
            wrong = prompt in CONCERNED and prompt.startswith(strays)
            assert found == (prompt.startswith("colored") != wrong)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_exactly_the_ten_prompts_come_first(seed):
    test, reference = draw(40, seed)
    modes = split(test, reference)
    ranking = disagreement(modes, test, reference)
    assert set(list(ranking)[:10]) == set(CONCERNED)
    values = list(ranking.values())
    assert values[9] > 20 * values[10]
    assert int((modes.eigenvalues > 0).sum()) == 10
    tops = [rank_prompts(modes.scores[:, mode], test.prompts)[0][0] for mode in range(10)]
    tops += [rank_prompts(modes.reference_scores[:, mode], reference.prompts)[0][0] for mode in range(10, 20)]
    assert set(tops) == set(CONCERNED)


@pytest.mark.slow
def test_every_mode_is_above_those_of_models_that_agree(monkeypatch):
    differing = split(*draw(40, seed=0)).eigenvalues.abs()
    monkeypatch.setattr(tinted_digits, "CONCERNED", [])
    agreeing = split(*draw(40, seed=0)).eigenvalues.abs()
    assert differing.min() > 1.2 * agreeing.max()


def test_more_answers_than_digits_are_refused():
    with pytest.raises(ValueError, match=r"`per_prompt` within 2\.\.43, but got 44"):
        draw(44, seed=0)


@pytest.mark.slow
def test_script_prints_the_ranking_and_draws_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["tinted_digits.py", "--per-prompt", "16", "--out", str(tmp_path)])
    tinted_digits.main()
    said = capsys.readouterr().out
    ranking = [line for line in said.splitlines() if " digit " in line]
    assert ["(the models differ)" in line for line in ranking] == [True] * 10 + [False] * 10
    assert str(tmp_path / "prompts.png") in said
    assert (tmp_path / "prompts.png").stat().st_size > 10_000
