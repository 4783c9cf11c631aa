# SPDX-License-Identifier: Apache-2.0
import io
import json
import math
import os
import re
import subprocess
import sys
import unicodedata
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from genmonitor.cli import main, processes
from genmonitor.cli import report as report_command

COMMANDS = ["compare", "diversity", "disagreement", "replay", "report", "sweep", "best"]


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
    assert "0 on success, 1 if a replayed value differs or a condition of --fail-if holds, 2 if an argument" in words


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
    monkeypatch.setattr(report_command, "run", lambda args: ({}, "Report: löß"))
    assert main(["report", "run"]) == 0
    sys.stdout.flush()
    assert terminal.getvalue() == b"Report: l\\xf6\\xdf\n"


def test_no_command_is_a_mistake(genmonitor):
    status, _, complaint = genmonitor()
    assert status == 2
    assert "COMMAND" in complaint


@pytest.mark.parametrize(
    ("arguments", "hint"), [(["comapre", "a"], "'compare'"), (["report", "a", "--jsno"], "--jsno")]
)
def test_a_typing_error_is_answered_with_the_usage(genmonitor, arguments, hint):
    status, said, complaint = genmonitor(*arguments)
    assert (status, said) == (2, "")
    assert complaint.startswith("usage: genmonitor [-h]")
    assert hint in complaint


def test_a_reader_that_leaves_early_is_no_crash(tmp_path):
    np.save(tmp_path / "images.npy", np.random.default_rng(0).random((40, 1, 4, 4)))
    words = ["-m", "genmonitor", "diversity", "images.npy"]
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as running:
        running.stdout.close()
        said = running.stderr.read()
    assert "BrokenPipe" not in said
    assert running.returncode == 0


def test_a_variable_that_a_library_refuses_is_wrong_input():
    environment = os.environ | {"MPLBACKEND": "bogus"}
    words = [sys.executable, "-m", "genmonitor", "compare", "a", "b"]
    found = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    assert "an environment variable or a settings file of a library is wrong: Key backend: 'bogus'" in found.stderr


def test_python_m_is_the_command():
    asked = [[sys.executable, "-m", "genmonitor", *rest] for rest in (["--version"], ["comapre"])]
    version_of, wrong = (subprocess.run(words, capture_output=True, text=True) for words in asked)
    assert version_of.stdout == f"genmonitor {version('genmonitor')}\n"
    assert wrong.returncode == 2


@pytest.mark.parametrize(
    ("result", "status"), [({"same": True}, 0), ({"same": False}, 1), ({}, 0), ({"failed": []}, 0)]
)
def test_exit_status_tells_a_differing_value(monkeypatch, capsys, result, status):
    monkeypatch.setattr(report_command, "run", lambda args: (result, "Report: page"))
    assert main(["report", "run"]) == status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("what"), 2),
        (FileNotFoundError("what"), 2),
        (ModuleNotFoundError("what"), 2),
        (KeyError("what"), 3),
        (RuntimeError("what"), 3),
        (RuntimeError("Expected a what, but got none."), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_status_tells_a_crash_from_wrong_input(monkeypatch, capsys, error, status):
    def fail(args):
        raise error

    monkeypatch.setattr(report_command, "run", fail)
    assert main(["report", "run"]) == status
    assert ("Traceback" in capsys.readouterr().err) is (status == 3)


HOSTILE = ["\x1b[2J", "a\rb", "\x07\x08\x7f", "\x9b31m", "\u202egnp.exe", "\ud83d", "\0"]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("words", [[], ["--json"], ["--quiet"], "fails"], ids=str)
def test_nothing_that_is_printed_moves_a_cursor(monkeypatch, capfd, text, words):
    def run(args):
        if words == "fails":
            raise ValueError(text)
        return {"report": text, text: [text]}, text

    monkeypatch.setattr(report_command, "run", run)
    main(["report", "run", *([] if words == "fails" else words)])
    said = "".join(capfd.readouterr()).replace("\n", "")
    assert said
    assert not {unicodedata.category(character) for character in said} & {"Cc", "Cf"}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_json_has_no_number_that_json_lacks(monkeypatch, capsys, number):
    result = {"report": Path("page"), "values": {"a": number, "b": (1.5, number)}}
    monkeypatch.setattr(report_command, "run", lambda args: (result, ""))
    assert main(["report", "run", "--json"]) == 0
    expected = {"report": "page", "values": {"a": None, "b": [1.5, None]}}
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == expected


def test_a_quiet_command_prints_its_finding_alone(monkeypatch, capsys):
    monkeypatch.setattr(report_command, "run", lambda args: ({}, "The finding.\nMore of it."))
    assert main(["report", "run", "--quiet"]) == 0
    assert capsys.readouterr() == ("The finding.\n", "")
    assert processes._shows  # to the next command of this process


OF_PROMPTS = [("diversity", o) for o in ("--prompt-sigma", "--text-encoder", "--rcond")]
OF_PROMPTS += [("disagreement", o) for o in ("--prompt-sigma", "--text-encoder", "--other-prompts")]


@pytest.mark.parametrize(("command", "option"), OF_PROMPTS)
def test_options_of_prompts_are_refused_without_prompts(classes, genmonitor, command, option):
    places = [classes / "a", classes / "b"][: 1 if command == "diversity" else 2]
    status, _, complaint = genmonitor(command, *places, option, 0.5)
    assert status == 2
    assert f"Expected --prompts with {option}, but got none. Leave {option} out." in complaint


@pytest.mark.parametrize("seed", [2**63, 2**70])
@pytest.mark.parametrize("command", ["compare", "diversity", "disagreement"])
def test_a_seed_beyond_int64_is_named(genmonitor, command, seed):
    status, _, complaint = genmonitor(command, "a", "b"[: command != "diversity"] or "--quiet", "--seed", seed)
    assert status == 2
    assert f"expected a whole number of at least 0 and below 2^63, but got {seed}" in complaint


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"MASTER_PORT": "abc"}, "but got MASTER_PORT=abc."),
        ({"RANK": "first", "WORLD_SIZE": "-2"}, "but got RANK=first, WORLD_SIZE=-2."),
        (
            {"MASTER_ADDR": "no.host.invalid"},
            "Expected MASTER_ADDR to name the host of the first process, but got 'no.",
        ),
        ({"RANK": "2"}, "Expected RANK below WORLD_SIZE, but got 2 and 2."),
    ],
)
def test_variables_of_a_launcher_that_are_no_numbers_are_named(genmonitor, monkeypatch, variables, says):
    launched = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29533"}
    for name, value in (launched | variables).items():
        monkeypatch.setenv(name, value)
    status, _, complaint = genmonitor("compare", "a", "b", "--distributed")
    assert status == 2
    assert says in complaint


def test_a_folder_of_prompts_and_a_model_that_is_not_there_are_named(classes, genmonitor):
    _, _, complaint = genmonitor("diversity", classes / "a", "--prompts", classes / "b")
    assert "is a folder; give `folders`" in complaint
    _, _, complaint = genmonitor("diversity", classes / "a", "--encoder", "nope")
    assert "Expected a model on this machine, but nope is none" in complaint


def test_images_of_one_pixel_are_compared(files, genmonitor, tmp_path):
    for name, seed in (("real", 0), ("fake", 1)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).random((60, 1, 1, 1)))
    status, _, complaint = genmonitor(
        "compare", tmp_path / "real.npy", tmp_path / "fake.npy", "--out", tmp_path / "out"
    )
    assert (status, "Traceback" in complaint) == (0, False)
