# SPDX-License-Identifier: Apache-2.0
"""Files, classes, arguments and versions that README and docs/ name exist."""

import importlib
import inspect
import re
import sys
import tomllib

import pytest
import yaml
from _helpers.pages import PAGES, ROOT, fenced

import genmonitor

sys.path.insert(0, str(ROOT / "examples"))

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="needs the repository: README.md and docs/ are not beside the tests"),
]

TEXT = "\n".join(PAGES.values())
NO_METRICS = {"PixelPartition", "GaussianKernel", "LaplacianKernel", "CosineKernel", "LoopMonitor"}


def test_every_path_exists():
    """Whatever in code begins with a folder of the repository, and links of README; those of docs/ Sphinx follows."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", PAGES["README.md"]) if not link.startswith("http")]
    code = re.findall(r"[` ]((?:examples|benchmarks|docs|callbacks|genmonitor|tests)/[\w./-]*\w)", TEXT)
    named = {*links, *code} - {"genmonitor/report.html"}  # that is in a run's folder
    assert len(named) > 30
    assert sorted(path for path in named if not (ROOT / path.partition("#")[0]).exists()) == []


def test_yaml_block_names_classes_and_arguments_that_exist():
    (block,) = [block for text in PAGES.values() for kind, block in fenced(text) if kind == "yaml"]
    seen = []

    def check(node):
        if isinstance(node, dict) and "class_path" in node:
            path = node["class_path"]
            seen.append(path)
            if not path.startswith("my_module."):
                module, *names = re.match(r"((?:\w+\.)*?\w+)\.([A-Z]\w+)(?:\.(\w+))?$", path).groups()
                found = importlib.import_module(module)
                for name in filter(None, names):
                    found = getattr(found, name)
                assert node.get("init_args", {}).keys() <= inspect.signature(found).parameters.keys(), path
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            check(child)

    check(yaml.safe_load(block))
    assert len(seen) == 6


def test_classes_and_functions_in_the_table_exist():
    table = PAGES["docs/metrics/index.md"]
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \| ([^|]*) \| [^|]+ \| [^|]+ \|$", table, re.MULTILINE)
    classes = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    functions = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert classes == {name for name in genmonitor.__all__ if name[0].isupper()} - NO_METRICS
    assert functions <= set(genmonitor.functional.__all__)
    assert len(functions) >= 11


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_versions_and_extras_are_those_of_the_package(page):
    package = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = " ".join(PAGES[page].split())
    said = re.search(r"Python ([\d.]+), torch ([\d.]+), lightning ([\d.]+) and torchmetrics ([\d.]+) or newer", text)
    least = dict(zip(('requires-python = "', '"torch', '"lightning', '"torchmetrics'), said.groups(), strict=True))
    assert all(f'{name}>={version}"' in package for name, version in least.items())
    extras = set(re.findall(r"`(\w+)`", re.search(r"Extras: (.*?)\.", text)[1]))
    assert extras == tomllib.loads(package)["project"]["optional-dependencies"].keys() - {"dev"}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "genmonitor").rglob("*.py"))
    assert set(re.findall(r"genmonitor\[(\w+)\]", sources)) <= extras  # which errors advise to install


def test_every_metric_and_monitor_has_a_page():
    classes = {name for name in genmonitor.__all__ if name[0].isupper()}
    classes -= NO_METRICS
    metrics = "\n".join(text for page, text in PAGES.items() if page.startswith("docs/metrics/"))
    assert sorted(name for name in classes if f"`~genmonitor.metrics.{name}`" not in metrics) == []
    monitors = "\n".join(text for page, text in PAGES.items() if page.startswith("docs/monitors/"))
    shown = {"PixelClusterMonitor", "DiversityMonitor", "DisagreementMonitor"}
    assert sorted(name for name in shown if f"`~genmonitor.callbacks.{name}`" not in monitors) == []
