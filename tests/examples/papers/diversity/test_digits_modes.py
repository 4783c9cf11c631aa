# SPDX-License-Identifier: Apache-2.0
import sys

import digits_modes
import torch
from digits_modes import by_classes, copied, digits, novel


def test_script_prints_four_tables_and_draws(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "modes.png"
    monkeypatch.setattr(sys, "argv", ["digits_modes.py", "--n", "300", "--frequencies", "60", "--out", str(picture)])
    digits_modes.main()
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said if line and line.split()[0].isdigit()][:4] == ["1", "2", "5", "10"]
    assert any(line.startswith("  100%          0.000") for line in said)
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_more_classes_have_more_modes():
    rows = by_classes(*digits(0), 120)
    for column in (1, 2):
        values = [row[column] for row in rows]
        assert values == sorted(values)


def test_what_the_reference_lacks_is_novel():
    x, classes = (side[:800] for side in digits(0))
    known = torch.tensor([c for c in range(10) if c not in digits_modes.NOVEL])
    total, _, found = novel(x, classes, 3.0, known)
    assert torch.isin(found, torch.tensor(digits_modes.NOVEL)).double().mean() > 0.8
    assert total > 1.2 * novel(x, classes, 3.0, torch.arange(10))[0]


def test_copies_are_found():
    x, _ = digits(0)
    values = [copied(x[:400], share) for share in (0.0, 0.5, 1.0)]
    assert values[2] == (0.0, 200)
    assert values[1][1] == 100
    assert values[0][0] > values[1][0] > 0.1
