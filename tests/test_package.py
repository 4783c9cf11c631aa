# SPDX-License-Identifier: Apache-2.0
"""What the package is made of: its public names, its version, what a wheel holds, and which tools check it."""

import copy
import pickle
import re
import subprocess
import sys
import tomllib
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
    "Authenticity",
    "ConditionalVendiScore",
    "CosineKernel",
    "CosineMeanSimilarity",
    "DiscrepancyMap",
    "GaussianKernel",
    "LaplacianKernel",
    "LoopMonitor",
    "MaximumMeanDiscrepancy",
    "PixelCKA",
    "PixelPartition",
    "PromptSplit",
    "RKEScore",
    "ScendiScore",
    "TwoSampleTest",
    "VendiScore",
    "W1KPScore",
    "compare",
    "diagnose",
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


def test_public_names_are_found_when_they_are_first_used():
    code = """
import genmonitor
for name in genmonitor.__all__:
    assert name in dir(genmonitor) and name not in vars(genmonitor)
    assert getattr(genmonitor, name).__name__ == vars(genmonitor)[name].__name__ == name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_public_name_is_the_class_itself():
    """Pickled files name the module that defines a class, and old ones may name the package."""
    assert genmonitor.PixelCKA is genmonitor.metrics.PixelCKA
    assert pickle.loads(pickle.dumps(genmonitor.PixelCKA)) is genmonitor.PixelCKA
    assert pickle.loads(b"cgenmonitor\nPixelCKA\n.") is genmonitor.PixelCKA
    kernel = genmonitor.GaussianKernel(0.5)
    assert pickle.loads(pickle.dumps(kernel)) == copy.deepcopy(kernel) == kernel


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="'genmonitor' has no attribute 'PixelCKS'"):
        _ = genmonitor.PixelCKS
    with pytest.raises(ImportError, match="PixelCKS"):
        from genmonitor import PixelCKS  # noqa: F401


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@in_repository
def test_there_is_one_version():
    stated = project()["project"]["version"]
    assert genmonitor.__version__ == version("genmonitor") == stated
    assert re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE) == [stated]


@in_repository
def test_the_map_for_contributors_names_what_exists():
    named = re.findall(
        r"`((?:genmonitor|callbacks|tests|benchmarks|\.ci)/[^`]*)`", (ROOT / "CONTRIBUTING.md").read_text()
    )
    assert len(named) > 30
    assert [name for name in named if not list(ROOT.glob(re.sub("<.*>", "[!_]*", name)))] == []


@in_repository
def test_all_that_lint_use_one_version_of_ruff():
    """`make lint` and CI take it from constraints.txt, pre-commit from its own file."""
    (pinned,) = re.findall(r"^ruff==.+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert hooks.count(f"[{pinned}]") == hooks.count("additional_dependencies:") == hooks.count("entry: ruff ") == 2
    assert version("ruff") == pinned.removeprefix("ruff==")


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
    listed = set(project()["tool"]["setuptools"]["packages"])
    holding = {name.rpartition("/")[0].replace("/", ".") for name in tree()}
    found = {name.removesuffix("/__init__.py").replace("/", ".") for name in tree() if name.endswith("/__init__.py")}
    assert sorted(holding - found) == [], "these folders need an __init__.py"
    assert sorted(found - listed) == [], "add these to `packages` in pyproject.toml"
    assert sorted(listed - found) == [], "remove these from `packages` in pyproject.toml"


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
