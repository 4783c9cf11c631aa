# SPDX-License-Identifier: Apache-2.0
import io
import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from genmonitor.cli import main
from genmonitor.cli import report as report_command

COMMANDS = ["compare", "diversity", "disagreement", "w1kp", "clusters", "replay", "report", "sweep"]


def test_help_names_the_commands_without_loading_lightning():
    code = """
import sys
from genmonitor.cli import main
try:
    main(["--help"])
finally:
    print("lightning" in sys.modules, "torch" in sys.modules)
"""
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment).stdout
    assert all(re.search(rf"^    {name}\b", out, re.MULTILINE) for name in COMMANDS)
    assert out.endswith("False False\n")


def test_version_is_that_of_the_package(genmonitor):
    assert genmonitor("--version") == (0, f"genmonitor {version('genmonitor')}\n", "")


def test_version_is_said_without_loading_torch():
    code = (
        "import sys; from genmonitor.cli import main\ntry: main(['--version'])\nfinally: print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert out.endswith("\nFalse\n")


def test_help_explains_each_exit_status(genmonitor):
    status, said, _ = genmonitor("--help")
    assert status == 0
    words = " ".join(said.split())
    assert "0 on success, 1 if a replayed value differs, 2 if an argument or a file is wrong, 3 after a crash" in words


def test_help_says_how_pictures_are_read(genmonitor):
    _, said, _ = genmonitor("--help")
    assert "transparent parts over white" in said


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=["genmonitor", *COMMANDS])
def test_help_is_plain_ascii(command, genmonitor):
    status, said, _ = genmonitor(*command, "--help")
    assert status == 0
    assert said.isascii()


def test_help_of_a_command_says_what_it_takes(genmonitor):
    for command in COMMANDS:
        _, said, _ = genmonitor(command, "--help")
        assert f"usage: genmonitor {command}" in said
        assert "--json" in said


def test_output_reaches_an_ascii_terminal(monkeypatch):
    terminal = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(terminal, encoding="ascii"))
    monkeypatch.setattr(report_command, "run", lambda args: {"report": "löß"})
    assert main(["report", "run"]) == 0
    sys.stdout.flush()
    assert terminal.getvalue() == b"Report: l\\xf6\\xdf\n"


def test_no_command_is_a_mistake(genmonitor):
    status, _, complaint = genmonitor()
    assert status == 2
    assert "COMMAND" in complaint


@pytest.mark.parametrize(("result", "status"), [({"same": True}, 0), ({"same": False}, 1), ({}, 0)])
def test_exit_status_tells_a_differing_value(monkeypatch, capsys, result, status):
    monkeypatch.setattr(report_command, "run", lambda args: {"report": "page", **result})
    assert main(["report", "run"]) == status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("what"), 2),
        (FileNotFoundError("what"), 2),
        (ModuleNotFoundError("what"), 2),
        (KeyError("what"), 3),
        (RuntimeError("what"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_status_tells_a_crash_from_wrong_input(monkeypatch, capsys, error, status):
    def fail(args):
        raise error

    monkeypatch.setattr(report_command, "run", fail)
    assert main(["report", "run"]) == status
    assert ("Traceback" in capsys.readouterr().err) is (status == 3)
