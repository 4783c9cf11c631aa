# SPDX-License-Identifier: Apache-2.0
"""Examples trained without a monitor and swept afterwards by the command."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from _helpers.runs import manifests as evaluations
from _helpers.slow import nightly_but
from train import command_line

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning"),
]
SMALL = {
    "dcgan-digits": {"generator_features": 8, "discriminator_features": 8},
    "ddpm-digits": {"widths": [8, 16], "sampling_steps": 5},
}
MONITOR = "genmonitor.callbacks.PixelClusterMonitor"
CHANGES = {"n_samples": 100, "n_cluster_images": 300, "every_n_epochs": 1}
KEEP = {
    "class_path": "lightning.pytorch.callbacks.ModelCheckpoint",
    "init_args": {"save_top_k": -1, "filename": "{epoch}", "save_last": True},
}
EPOCHS = 5
SETUP = """
import sys
sys.path.insert(0, '{examples}')
from train import command_line

def build():
    cli = command_line(["--config", '{config}'], run=False)
    return cli.trainer, cli.model, cli.datamodule
"""


def of_example(name, folder):
    """Return an example's file made small, with a checkpoint of each epoch, written with a monitor and without."""
    content = yaml.safe_load((EXAMPLES / "configs" / f"{name}.yaml").read_text())
    content["model"]["init_args"] |= SMALL[name]
    content["trainer"] |= {"max_epochs": EPOCHS, "limit_train_batches": 4, "enable_progress_bar": False}
    callbacks = content["trainer"]["callbacks"]
    for callback in callbacks:
        if callback["class_path"] == MONITOR:
            callback["init_args"] |= CHANGES
    paths = {}
    for kind in ("with", "without"):
        kept = [one for one in callbacks if kind == "with" or one["class_path"] != MONITOR]
        content["trainer"]["callbacks"] = [*kept, KEEP]
        content["trainer"]["logger"]["init_args"] = {"save_dir": str(folder), "name": kind, "version": "run"}
        paths[kind] = folder / f"{kind}.yaml"
        paths[kind].write_text(yaml.safe_dump(content))
    return paths


def train(config, *callbacks):
    cli = command_line(["--config", str(config)], run=False)
    cli.trainer.callbacks[:0] = callbacks
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)


@pytest.fixture
def sweep():
    """Start the command as a person does; what still runs at the end of the test is killed."""
    started = []

    def start(*arguments):
        started.append(_start(*arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _start(*arguments):
    command = "import sys; from genmonitor.cli import main; sys.exit(main())"
    words = ["sweep", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", command, *words], text=True, **pipes)


def manifests(run):
    """Return the evaluations of a run, none before its file is there."""
    path = run / "genmonitor" / "cms_run.json"
    return evaluations(path.parent) if path.exists() else []


def values(run):
    """Return all that the evaluations of a run found, without what the clock says."""
    records = [manifest["values"] for manifest in manifests(run)]
    return [{k: v for k, v in record.items() if "_seconds" not in k and k != "images_seen"} for record in records]


def wait_for(there):
    start = time.monotonic()
    while not there():
        assert time.monotonic() - start < 300, "nothing came"
        time.sleep(0.05)


@pytest.mark.parametrize("name", nightly_but(SMALL, "dcgan-digits"))
def test_a_swept_example_has_the_curves_of_a_monitored_one(tmp_path, sweep, name):
    if name == "ddpm-digits":
        pytest.importorskip("diffusers")
    configs = of_example(name, tmp_path)
    for config in configs.values():
        train(config)
    monitored, run = tmp_path / "with" / "run", tmp_path / "without" / "run"
    assert manifests(run) == []

    (tmp_path / "build.py").write_text(SETUP.format(examples=EXAMPLES, config=configs["with"]))
    setup = f"{tmp_path / 'build.py'}:build"
    killed = sweep(run, "--setup", setup)
    wait_for(lambda: len(manifests(run)) > 1)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert 1 < len(manifests(run)) < EPOCHS

    goes_on = sweep(run, "--setup", setup, "--json")
    out, complaint = goes_on.communicate()
    assert goes_on.returncode == 0, complaint
    result = json.loads(out)
    assert result["before"] > 0
    assert len(result["evaluated"]) + result["before"] == EPOCHS
    assert values(run) == values(monitored)
    assert len(values(run)) == EPOCHS
    assert (run / "genmonitor" / "report.html").is_file()
