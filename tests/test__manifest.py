# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import sys
from importlib.metadata import version

import pytest

import genmonitor
from genmonitor._manifest import RegionRunManifest, RunManifest, read_manifest, versions, where_defined

PLAIN = {"str": "x", "int": 1, "dict": {}, "list": [], "bool": True, "float": 2}


def whole(kind):
    """Return a manifest with a value of the declared kind under every name."""
    names = {name: str(hint.__forward_arg__).split("[")[0].split(" ")[0] for name, hint in kind.__annotations__.items()}
    return {name: PLAIN[of] for name, of in names.items()}


@pytest.mark.parametrize("kind", [RunManifest, RegionRunManifest])
def test_manifest_that_lacks_a_name_is_refused(tmp_path, kind):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(whole(kind)))
    assert read_manifest(path, kind) == whole(kind)
    for name in kind.__annotations__:
        path.write_text(json.dumps({key: value for key, value in whole(kind).items() if key != name}))
        with pytest.raises(ValueError, match=f"but .*manifest.json lacks {name}[.]"):
            read_manifest(path, kind)


def test_manifest_with_a_value_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(whole(RunManifest) | {"seed": "0", "data": None, "prompts": {}}))
    with pytest.raises(ValueError, match=r"lacks seed, prompts\."):
        read_manifest(path, RunManifest)


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
