# SPDX-License-Identifier: Apache-2.0
import re
import sys

import theorem_1


def test_product_of_the_true_regions_approaches_the_image_and_that_of_a_grid_does_not():
    table, distances = theorem_1.measure((50, 500), draws=2, unbiased=False)
    few, many = distances["true regions"]
    assert many < few / 2
    assert distances["2 × 2 grid"][1] > 1.5 * many
    assert [row[table.columns.index("violations")] for row in table.rows] == ["0 of 2", "0 of 2"]


def test_the_spoiled_region_has_the_largest_share():
    shares = {name: x for name, x in theorem_1.values(200, 0, False)["true regions"].items() if name[:5] == "share"}
    assert max(shares, key=shares.get) == "share_3"


def test_script_prints_both_estimators_and_draws(monkeypatch, capsys, tmp_path):
    figure = tmp_path / "there" / "theorem.png"
    monkeypatch.setattr(sys, "argv", ["theorem_1.py", "--counts", "20", "40", "--draws", "1", "--out", str(figure)])
    theorem_1.main()
    said = capsys.readouterr().out
    assert re.search("plug-in\nimages +CMS", said)
    assert re.search("unbiased norms\nimages +CMS", said)
    assert figure.exists()
