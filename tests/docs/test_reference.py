# SPDX-License-Identifier: Apache-2.0
"""Each public name has a page, and each logged value a row."""

import importlib
import sys

import pytest
import torch
from _helpers.pages import PAGES, ROOT

from genmonitor.evaluation import RegionSettings, compare
from genmonitor.partition import PixelPartition

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

pytestmark = pytest.mark.skipif(not PAGES, reason="needs the repository: docs/ is not beside the tests")


def test_every_public_name_has_a_page_that_a_list_links_to():
    import api_pages

    asked = {module for text in PAGES.values() for module in api_pages.PLACE.findall(text)}
    assert asked == set(api_pages.MODULES)
    for module in ("genmonitor.callbacks", "genmonitor.metrics", "genmonitor.functional", "genmonitor.evaluation"):
        listed = api_pages.listed(module)
        for name in set(importlib.import_module(module).__all__) - {name for _, name in api_pages.ELSEWHERE}:
            assert f"[`{name}`](objects/{module}.{name}.md)" in listed
    assert ".. autoclass:: genmonitor.metrics.PRDC\n   :members:" in api_pages.page("genmonitor.metrics", "PRDC")


def test_every_value_that_is_measured_has_a_row_with_its_meaning():
    import value_table

    table = value_table.tables()
    images = torch.rand(400, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    found = compare(
        real=images[:300], fake=images[300:], settings=RegionSettings(partition=PixelPartition.grid((4, 4), 1, 2))
    )
    declared = {spec.key for specs in value_table.declared().values() for spec in specs}
    assert found.values.keys() <= declared
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert all(len(row.split(" | ")) == 5 and row.split(" | ")[1] for row in rows)
    (p,) = [row for row in rows if "`p_image`" in row]
    assert "0 to 1" in p
    (w1kp,) = [row for row in rows if "`w1kp`" in row]  # measured with a calibration alone
    assert " | 0 to 1 | " in w1kp
    (scendi,) = [row for row in rows if "`scendi`" in row]
    assert " | at least 1 | " in scendi
    assert "`diversity/…`" in table
    assert "`disagreement/…`" in table
