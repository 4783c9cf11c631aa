# SPDX-License-Identifier: Apache-2.0
"""`make docs` executes the notebook; here: what is committed of it."""

import json

import pytest
from _helpers.pages import PAGES, ROOT

pytestmark = pytest.mark.skipif(not PAGES, reason="needs the repository: docs/ is not beside the tests")


def test_no_outputs_are_committed():
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 6
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
