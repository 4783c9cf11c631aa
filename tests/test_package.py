# SPDX-License-Identifier: Apache-2.0
"""What the package is made of: its public names, what importing it loads, and that a wheel holds all of it."""

import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import genmonitor
import genmonitor.callbacks
import genmonitor.functional
import genmonitor.metrics

PUBLIC = [
    "PRDC",
    "CosineKernel",
    "CosineMeanSimilarity",
    "GaussianKernel",
    "LaplacianKernel",
    "MaximumMeanDiscrepancy",
    "PixelCKA",
    "PixelPartition",
    "PromptSplit",
    "RKEScore",
    "ScendiScore",
    "VendiScore",
    "W1KPScore",
]
ROOT = Path(__file__).parents[1]
in_repository = pytest.mark.skipif(
    not (ROOT / "genmonitor" / "__init__.py").exists(),
    reason="compares what a wheel holds with the repository, and these tests were copied out of it",
)


def test_public_names_are_pinned():
    assert genmonitor.__all__ == PUBLIC


@pytest.mark.parametrize("package", ["", ".functional", ".metrics", ".callbacks"])
def test_what_is_exported_exists_and_is_sorted(package):
    module = sys.modules[f"genmonitor{package}"]
    # names in capitals first, as ruff sorts them
    assert module.__all__ == sorted(set(module.__all__), key=lambda name: (not name.isupper(), name))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_metrics_are_public_at_the_top():
    assert set(genmonitor.metrics.__all__) <= set(genmonitor.__all__)


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """What a fresh interpreter has newly loaded after each import in turn, the standard library left out."""
    code = """
import sys
for statement in ("torch, torchmetrics", "genmonitor", "genmonitor.callbacks"):
    before = set(sys.modules)
    exec("import " + statement)
    print(*{name.split(".")[0] for name in set(sys.modules) - before})
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = out.stdout.splitlines()
    assert len(lines) == 3
    return {
        name: set(line.split()) - sys.stdlib_module_names
        for name, line in zip(("torch", "genmonitor", "callbacks"), lines, strict=True)
    }


def test_importing_genmonitor_loads_nothing_beyond_torchmetrics(loaded):
    assert "torch" in loaded["torch"]
    assert not {"lightning", "pytorch_lightning"} & loaded["torch"]
    assert loaded["genmonitor"] == {"genmonitor"}


def test_lightning_would_be_noticed(loaded):
    assert "lightning" in loaded["callbacks"]


def settings() -> dict:
    tomllib = pytest.importorskip("tomllib", reason="reading pyproject.toml needs Python 3.11")
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def tree() -> set[str]:
    """The files that belong in a wheel, by the names that they have there."""
    places = {"genmonitor": ROOT / "genmonitor", "genmonitor/callbacks": ROOT / "callbacks"}
    files = {
        f"{name}/{path.relative_to(place).as_posix()}"
        for name, place in places.items()
        for path in place.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return files


@in_repository
def test_the_list_of_packages_is_complete():
    packages = {name.replace(".", "/") for name in settings()["packages"]}
    assert packages == {name.rpartition("/")[0] for name in tree()}
    assert packages == {name.removesuffix("/__init__.py") for name in tree() if name.endswith("__init__.py")}


@in_repository
def test_the_wheel_holds_the_whole_tree(tmp_path):
    try:
        found = int(version("setuptools").split(".")[0])
    except PackageNotFoundError:
        found = 0
    if found < 77:
        pytest.skip("building a wheel without a download needs setuptools >= 77 here; CI builds it apart")
    for name in ("pyproject.toml", "README.md", "LICENSE", "genmonitor", "callbacks"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path], check=True)  # building leaves files beside the sources
    build = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == tree()
