# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from genmonitor.callbacks.training_setup import imported


def test_imported_takes_a_script_with_its_folder_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_script.py").write_text("NUMBER = 7")
    (tmp_path / "a_script_of_a_run.py").write_text(
        "from beside_the_script import NUMBER\nclass Kind:\n    @staticmethod\n    def number():\n        return NUMBER"
    )
    assert imported(f"{tmp_path / 'a_script_of_a_run.py'}:Kind.number")() == 7
    for name in ("a_script_of_a_run", "beside_the_script"):
        del sys.modules[name]


@pytest.mark.parametrize("where", ["nowhere.py:Kind", "json:nothing", "no.such.package:Kind", "json"])
def test_imported_says_what_it_expected(where):
    wanted = rf"FILE\.py:NAME or package\.module:NAME, but importing {where} raised .* --setup"
    with pytest.raises(ValueError, match=wanted):
        imported(where)
