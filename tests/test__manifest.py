# SPDX-License-Identifier: Apache-2.0
import importlib.util
import sys
from importlib.metadata import version

import genmonitor
from genmonitor._manifest import versions, where_defined


def test_versions_are_those_of_what_is_installed():
    found = versions()
    assert found["genmonitor"] == version("genmonitor")
    assert {"torch", "torchmetrics", "numpy", "scipy"} <= found.keys()


def test_where_defined_names_the_module_of_a_package():
    assert where_defined(genmonitor.PixelPartition) == "genmonitor.partition:PixelPartition"


def test_where_defined_names_the_file_of_a_script(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("class Model:\n    class Part: pass\n")
    spec = importlib.util.spec_from_file_location("train", script)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train", module)
    spec.loader.exec_module(module)
    assert where_defined(module.Model.Part) == f"{script.resolve()}:Model.Part"
