# SPDX-License-Identifier: Apache-2.0
"""A command is one process, whatever a launcher left in the environment, unless `--distributed` is given."""

import importlib
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from genmonitor.cli import main, processes
from genmonitor.cli.main import COMMANDS, SHARED

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_WORLD_SIZE": "2"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1"}
ENVIRONMENTS = {
    **{name: {name: "1"} for name in processes.LAUNCHED},
    "torchrun": TORCHRUN,
    "slurm": SLURM,
    "no numbers": dict.fromkeys([*TORCHRUN, *SLURM], "nobody"),
}
ARGUMENTS = {
    "compare": "real.npy fake.npy",
    "diversity": "fake.npy",
    "disagreement": "fake.npy real.npy",
    "replay": "manifest.json --checkpoint last.ckpt --setup train.py:build",
    "sweep": "run --setup train.py:build",
    "best": "run",
    "report": "run",
}


@pytest.fixture
def launched(monkeypatch):
    """Return a function that sets the variables of a launcher, and none but these."""
    for name in processes.LAUNCHED:
        monkeypatch.delenv(name, raising=False)

    def launch(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return launch


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_variable_silences_a_command_or_lets_it_wait(launched, genmonitor, monkeypatch, command, name):
    seen = {}

    def measure(args):
        seen.update(os.environ)
        return {"failed": [{"reason": "p_1 = 0.005"}]}, ""

    monkeypatch.setattr(importlib.import_module(f"genmonitor.cli.{command}"), "run", measure)
    launched(ENVIRONMENTS[name])
    status, out, told = genmonitor(command, *ARGUMENTS[command].split(), "--json")
    assert status == 1
    assert json.loads(out)["failed"]
    assert told == f"genmonitor {command}: failed: p_1 = 0.005\n"
    assert not seen.keys() & ENVIRONMENTS[name].keys()  # neither torch nor Lightning nor a child process sees them
    assert ENVIRONMENTS[name].items() <= os.environ.items()


@pytest.mark.parametrize("name", ["RANK", "torchrun", "slurm"])
def test_a_gate_fails_under_a_launcher_too(launched, files, genmonitor, tmp_path, name):
    launched(ENVIRONMENTS[name])
    words = ["--n-clusters", "2", "--fail-if", "p <= 1", "--out", tmp_path / "out"]
    status, out, told = genmonitor("compare", *files, *words)
    assert (status, "\ngenmonitor compare: failed:" in told) == (1, True)
    assert out.startswith("Right half")


@pytest.mark.parametrize("command", COMMANDS)
def test_which_commands_can_share_the_work(launched, genmonitor, command):
    launched({})
    status, out, told = genmonitor(command, *ARGUMENTS[command].split(), "--distributed")
    assert (status, out) == (2, "")
    assert ("neither RANK" in told) == (command in SHARED)
    assert ("unrecognized arguments: --distributed" in told) == (command not in SHARED)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


BY_HAND = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "False"}


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_says_that_it_waits_and_gives_up(launched, genmonitor, monkeypatch, rank):
    monkeypatch.setattr(processes, "TOLD_AFTER", 0.1)
    monkeypatch.setattr(processes, "JOINED_WITHIN", timedelta(seconds=1))
    launched(BY_HAND | {"RANK": rank, "MASTER_PORT": free_port()})
    status, out, told = genmonitor("diversity", "fake.npy", "--distributed")
    assert (status, out) == (2, "")
    first, second = told.splitlines()
    assert first == "genmonitor: waiting for 2 processes"
    assert second.startswith("genmonitor diversity: Expected 2 processes to run this command with --distributed, but")


def test_processes_with_other_arguments_are_refused(launched):
    launched(BY_HAND | {"MASTER_PORT": free_port()})

    def both(commands):
        with ThreadPoolExecutor(2) as pool:
            return [pool.submit(processes._meet, rank, 2, command) for rank, command in enumerate(commands)]

    for _ in range(2):  # a script under torchrun may run one command after the other
        errors = [str(found.exception()) for found in both([["compare", "a", "b"], ["compare", "a", "c"]])]
        assert errors[0] == errors[1]
        assert "process 0 got `compare a b` and process 1 got `compare a c`" in errors[0]
    assert [found.exception() for found in both([["compare", "a", "b"]] * 2)] == [None, None]


def test_main_puts_the_variables_back(launched):
    launched(TORCHRUN)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert TORCHRUN.items() <= os.environ.items()
