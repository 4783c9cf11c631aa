# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
pytestmark = [
    pytest.mark.skipif(not README.exists(), reason="needs the repository: README.md is not beside the tests"),
    # Lightning's advice on workers and on validation, and the monitor's own on the latter, are what a reader would see
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if README.exists() else []


@pytest.mark.parametrize("index", range(len(snippets())))
def test_each_snippet_runs(index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = snippets()[index]
    space = {"__name__": "snippet"}
    exec(compile(code, f"README snippet {index}", "exec"), space)
    if "monitor" in space:
        checks = space["monitor"].history
        assert len(checks) == 2
        assert all(0 <= check["image"] <= 1 for check in checks)
        assert (tmp_path / "genmonitor" / "cms_curves.png").exists()
    if "cms" in space:
        assert space["cms"].compute()["share_2"] > 0.9


def test_there_are_snippets():
    assert len(snippets()) == 2


def test_commands_exist():
    makefile = (README.parent / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE)
    assert commands
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)
