# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from genmonitor.callbacks.checkpoints.setup import find_script, imported


def test_script_is_found_where_it_was_copied_with_its_run(tmp_path):
    then, now = (tmp_path / name / "runs" / "genmonitor" for name in ("then", "now"))
    now.mkdir(parents=True)
    where = f"{tmp_path / 'then' / 'train.py'}:Model"
    with pytest.raises(ValueError, match=r"no .*now/train.py, nor .*then/train.py\. .* --script FILE.py"):
        find_script(where, now, str(then))
    with pytest.raises(ValueError, match=r"there is no .*then/train.py\."):
        find_script(where, now, None)  # a manifest that does not name its folder
    (tmp_path / "then" / "train.py").parent.mkdir()
    (tmp_path / "then" / "train.py").touch()
    assert find_script(where, now, str(then)) == where
    (tmp_path / "now" / "train.py").touch()
    assert find_script(where, now, str(then)) == f"{tmp_path / 'now' / 'train.py'}:Model"
    assert find_script(where, now, str(then), tmp_path / "then" / "train.py") == where
    assert find_script("package.module:Model", now, str(then)) == "package.module:Model"


def test_imported_takes_a_script_with_its_folder_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_script.py").write_text("NUMBER = 7")
    (tmp_path / "a_script_of_a_run.py").write_text(
        "from beside_the_script import NUMBER\nclass Kind:\n    number = NUMBER"
    )
    assert imported(f"{tmp_path / 'a_script_of_a_run.py'}:Kind.number") == 7
    for name in ("a_script_of_a_run", "beside_the_script"):
        del sys.modules[name]


@pytest.mark.parametrize("where", ["nowhere.py:Kind", "json:nothing", "no.such.package:Kind", "json"])
def test_imported_says_what_it_expected(where):
    with pytest.raises(ValueError, match=rf"FILE\.py:NAME or package\.module:NAME, but got {where}: .* --setup"):
        imported(where)
