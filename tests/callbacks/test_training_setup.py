# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from _helpers.modules import Linear, digits, loader, trainer
from _helpers.replayed import Digits, quiet

from genmonitor.callbacks.training_setup import Setup, imported, make_setup, placed


def test_setup_takes_each_part_by_its_place(tmp_path):
    module, data, first, second = Linear(), Digits(), quiet(), quiet(prefix="second")
    runner = trainer(tmp_path, first)
    assert Setup.of((runner, module, data)) == Setup(module, data, [first], runner)
    assert Setup.of((module, data)) == Setup(module, data, [])
    assert Setup.of((module, data, first)) == Setup(module, data, [first])
    assert Setup.of((runner, module, data, [first, second])) == Setup(module, data, [first, second], runner)
    assert Setup.of(module) == Setup(module, None, [])
    assert Setup.of((module, None)) == Setup(module, None, [])


def test_setup_takes_loaders_in_a_list():
    module, train, val = Linear(), loader(digits(0, 10)), loader(digits(10, 20))
    assert Setup.of((module, [train, val])).data == [train, val]
    assert Setup.of((module, train)).data is train


@pytest.mark.parametrize(
    "made", [None, (), (Linear(), Linear()), (Digits(), quiet()), (Linear(), 1, 2), (Digits(), Linear())]
)
def test_setup_refuses_parts_of_another_order(made):
    with pytest.raises(ValueError, match=r"Expected the setup to return \(trainer, module, data\)"):
        Setup.of(made)


def test_make_setup_calls_a_function_here_or_in_a_file(tmp_path):
    assert isinstance(make_setup(Linear).module, Linear)
    (tmp_path / "of_a_setup.py").write_text("from _helpers.modules import Linear as build")
    assert isinstance(make_setup(f"{tmp_path / 'of_a_setup.py'}:build").module, Linear)
    sys.modules.pop("of_a_setup")
    with pytest.raises(ValueError, match=r"Expected FILE.py:NAME or package.module:NAME"):
        make_setup("nowhere.py:build")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("build = 1", "to be a function, but it is int"),
        ("def build(:", "raised SyntaxError: invalid syntax"),
        ("raise RuntimeError('no GPU')", r"raised RuntimeError: no GPU \(.*no_setup.py, line 1\)"),
        (
            "import argparse\nargparse.ArgumentParser().parse_args(['-x'])",
            r"raised SystemExit: 2 \(.*no_setup.py, line 2\)",
        ),
    ],
)
def test_a_file_without_the_function_is_refused_by_its_name(tmp_path, content, why):
    (tmp_path / "no_setup.py").write_text(content)
    with pytest.raises(ValueError, match=rf"no_setup\.py:build {why}.*Give --setup FILE.py:FUNCTION"):
        make_setup(f"{tmp_path / 'no_setup.py'}:build")
    sys.modules.pop("no_setup", None)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (1, 1)),
        ({"LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}, (4, 2)),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS_PER_NODE": "4", "SLURM_NNODES": "2"}, (4, 2)),
    ],
)
def test_a_trainer_takes_the_processes_that_were_started(monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = placed(None)
    assert (settings["devices"], settings["num_nodes"]) == expected


def test_torchrun_that_srun_started_says_how_many_processes_there_are(monkeypatch):
    by_srun = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "2"}
    by_torchrun = {"LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}
    for name, value in (by_srun | by_torchrun).items():
        monkeypatch.setenv(name, value)
    settings = placed(None)
    assert (settings["devices"], settings["num_nodes"]) == (4, 2)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:0", "cuda:1"])
def test_a_device_that_is_none_or_of_one_process_alone_is_refused(monkeypatch, device):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=rf"Expected `device` to be cpu, .* but got '{device}'"):
        placed(device)


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError('no data')",
        "import not_there",
        "assert 0",
        "return build(1)",
        "raise SystemExit('no data')",
        "__import__('json').loads('{')",
    ],
)
def test_a_setup_that_raises_is_named_with_the_line(tmp_path, body):
    (tmp_path / "raises.py").write_text(f"def build():\n    {body}\n")
    with pytest.raises(ValueError, match=r"Expected the setup to return .* but it raised \w+: .*raises.py, line 2\)"):
        make_setup(f"{tmp_path / 'raises.py'}:build")
    sys.modules.pop("raises")


def test_exactly_the_named_file_is_run_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "which_setup.py").write_text("def number(): return 0")
    for number, name in enumerate(["which_setup", "01_train-gan", "json"]):
        for folder in ("first", "second"):
            file = tmp_path / folder / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"def number(): return ({number}, {folder!r})")
            assert imported(f"{file}:number")() == (number, folder)
            assert imported(f"{file}:number") is imported(f"{file}:number")
    with pytest.raises(ValueError, match=r"importing .*which_setup.py:number raised FileNotFoundError"):
        imported(f"{tmp_path / 'none' / 'which_setup.py'}:number")
    assert "first" not in sys.modules["json"].__file__
    for name in [name for name in sys.modules if name in ("which_setup", "01_train-gan") or str(tmp_path) in name]:
        del sys.modules[name]
