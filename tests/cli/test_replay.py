# SPDX-License-Identifier: Apache-2.0
"""What `genmonitor replay` does before it trains anything; that values come again is tested with the callbacks."""

import pytest
from _helpers.runs import COMPARED, write_evaluation

from genmonitor.cli.replay import show


@pytest.mark.parametrize("content", [b'{"monitor": "Pixel', b"\xff\xfe\x00", b"[" * 100_000, b"[1, 2]", b"{}"])
def test_replay_names_a_broken_run(tmp_path, genmonitor, content):
    path = tmp_path / "cms_run.json"
    path.write_bytes(content)
    status, out, complaint = genmonitor("replay", path, "--checkpoint", tmp_path / "x.ckpt", "--setup", "x.py:f")
    assert (status, out) == (2, "")
    assert f"Expected the file of a run, but {path} is not" in complaint


def test_replay_refuses_a_comparison(tmp_path, genmonitor):
    write_evaluation(tmp_path, 1, **COMPARED)
    words = [tmp_path / "cms_run.json", "--checkpoint", tmp_path / "x.ckpt", "--setup", "x.py:f"]
    status, _, complaint = genmonitor("replay", *words)
    assert status == 2
    assert "cms_run.json lacks device, precision" in complaint


def test_replay_names_a_file_that_is_not_there(genmonitor):
    status, _, complaint = genmonitor("replay", "nowhere.json", "--checkpoint", "nowhere.ckpt", "--setup", "x.py:f")
    assert status == 2
    assert "nowhere.json" in complaint


@pytest.mark.parametrize("arguments", [["", "--checkpoint", "x"], ["x", "--checkpoint", ""]])
def test_replay_refuses_an_empty_path(genmonitor, arguments):
    status, _, complaint = genmonitor("replay", *arguments)
    assert status == 2
    assert "expected a path, but got an empty one" in complaint


def result(**changes):
    values = {"image": {"logged": 0.5, "replayed": 0.5}, "mmd": {"logged": 0.1, "replayed": 0.2}}
    found = {"values": values, "not_replayed": [], "same": False, "processes": 1}
    return found | {"other_versions": {}} | changes


def test_replay_says_which_value_differs():
    lines = show(result()).splitlines()
    assert lines[1].split() == ["image", "0.5", "the", "same"]
    assert lines[2].split() == ["mmd", "0.1", "0.2"]
    assert lines[-1] == "1 of 2 values differ."


def test_replay_says_that_all_is_the_same():
    values = {"image": {"logged": 0.5, "replayed": 0.5}}
    assert show(result(values=values, same=True)).endswith("The same to the last bit.")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"processes": 2}, "The run had 2 processes, which sum in another order."),
        ({"other_versions": {"torch": "2.6"}}, "The run used different versions: {'torch': '2.6'}."),
        ({"not_replayed": ["fid"]}, "Not replayed: fid."),
    ],
)
def test_replay_says_what_may_be_the_reason(changes, reason):
    assert reason in show(result(**changes))


@pytest.mark.parametrize("lacking", ["run", "checkpoint"])
def test_a_missing_file_is_named(genmonitor, tmp_path, lacking):
    (tmp_path / "run.json").write_text("{}")
    run = tmp_path / ("no.json" if lacking == "run" else "run.json")
    status, _, complaint = genmonitor("replay", run, "--checkpoint", tmp_path / "no.ckpt", "--setup", "a.py:f")
    assert status == 2
    assert "Errno" not in complaint
