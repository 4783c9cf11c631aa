# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from _helpers.modules import Linear, digits, loader, trainer
from _helpers.replayed import Digits, quiet

from genmonitor.callbacks.checkpoints.setup import Setup, make_setup, placed


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
    with pytest.raises(ValueError, match="`setup` or `config`, but got both"):
        make_setup(Linear, "config.yaml")


CONFIG = """
seed_everything: 3
ckpt_path: null
trainer: {devices: 4, strategy: ddp, accelerator: cpu, max_epochs: 7, logger: false}
model: {class_path: model_of_a_config.Model, init_args: {lr: 0.25}}
"""


def test_make_setup_reads_the_file_of_a_command_line(tmp_path):
    (tmp_path / "model_of_a_config.py").write_text(
        "from _helpers.modules import Linear\nclass Model(Linear):\n    def __init__(self, lr: float = 1.0):\n"
        "        super().__init__(lr)"
    )
    (tmp_path / "config.yaml").write_text(CONFIG)
    made = make_setup(config=tmp_path / "config.yaml", script=tmp_path / "train.py")
    assert (made.module.lr, made.data, made.monitors) == (0.25, None, [])
    assert (made.trainer.world_size, made.trainer.max_epochs, made.trainer.loggers) == (1, 7, [])
    sys.modules.pop("model_of_a_config")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1, 2]", "describes no model"),
        ("trainer: {}", "describes no model"),
        ("model: {class_path: nowhere.Model}", "Could not make what .* describes.* Give --script FILE.py"),
        ("model: {lr: 1}", "or --setup FILE.py:FUNCTION where its command line knows the classes by itself"),
    ],
)
def test_make_setup_refuses_other_files(tmp_path, content, said):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ValueError, match=said):
        make_setup(config=tmp_path / "config.yaml")
    with pytest.raises(FileNotFoundError):
        make_setup(config=tmp_path / "nowhere.yaml")


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
    settings = placed(None, None, None, "auto")
    assert (settings["devices"], settings["num_nodes"]) == expected


def test_torchrun_that_srun_started_says_how_many_processes_there_are(monkeypatch):
    by_srun = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "2"}
    by_torchrun = {"LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}
    for name, value in (by_srun | by_torchrun).items():
        monkeypatch.setenv(name, value)
    settings = placed(None, None, None, "auto")
    assert (settings["devices"], settings["num_nodes"]) == (4, 2)
