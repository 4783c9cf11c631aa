# SPDX-License-Identifier: Apache-2.0
"""Run by test_crashes.py: trainings in forked processes that are killed, each resumed from its last checkpoint.

A process dies by SIGKILL at a random moment, or in the middle of a file: the kernel stops it after a random number of
bytes, so that a file written in place would be left half. Every file in the folder is read after each death.

python crashes.py FOLDER KILLS
"""

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "examples")]

from _helpers.modules import Linear, digits, fit, loader, measured
from _helpers.presenters import present_with
from lightning.pytorch.callbacks import ModelCheckpoint

from genmonitor import PixelPartition
from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, PixelClusterMonitor

KINDS = {"figure": ".png", "manifest": ".json", "partition": ".npz", "checkpoint": "/tmp"}
"""What the path of a file that is being written contains; Lightning writes a checkpoint to a temporary file first."""
EPOCHS = 4


def quick(monitor):
    """Let a monitor draw small figures: what matters here is how they are written."""

    def fit_figures():
        return {name: Figure((1, 1)) for name in ("clusters", "cka")}

    def figures(*args):
        return {name: Figure((1, 1)) for name in ("curves", "samples")}

    present_with(monitor.evaluator, fit_figures=fit_figures, figures=figures)
    return monitor


class Shrinking(Linear):
    """Learns without random numbers, which Lightning's checkpoints do not hold; its samples fade."""

    def __init__(self):
        super().__init__(lr=0.05)
        torch.manual_seed(0)
        self.net.reset_parameters()

    def sample_prompts(self, labels):
        return self.sample(len(labels)) * (1 + labels.view(-1, 1, 1, 1)) / 5

    def training_step(self, batch, index):
        return self.net.weight.square().sum()


def train(folder, between_epochs):
    """Train to the end, from the last checkpoint if there is one, and write down what came out."""
    how = {"every_n_train_steps": 2} if between_epochs else {}
    clusters = quick(PixelClusterMonitor(3, n_samples=40, n_cluster_images=100, on_error="raise", **how))
    diversity = quick(DiversityMonitor(range(5), 40, on_error="raise", **how))
    disagreement = quick(DisagreementMonitor(range(5), 40, reference="previous", on_error="raise", **how))
    # never between steps at the end of an epoch: Lightning itself repeats steps when such a run is resumed twice
    often = {"every_n_train_steps": 5} if between_epochs else {"every_n_epochs": 1}
    keep = ModelCheckpoint(folder, save_last=True, filename="{step}", **often)
    data = {"train": loader(digits(0, 150), 50), "val": None if between_epochs else loader(digits(300, 400))}
    last = folder / "last.ckpt"
    settings = {"max_epochs": EPOCHS, "ckpt_path": last if last.exists() else None}
    _, module = fit(folder, clusters, diversity, disagreement, keep, module=Shrinking(), **data, **settings)
    outcome = {
        "curves": [measured(monitor) for monitor in (clusters, diversity, disagreement)],
        "clusters": clusters.partition.labels.tolist(),
        "baseline": clusters.baseline,
        "gamma": clusters.kernel.gamma,
        "weights": module.net.weight.tolist(),
    }
    (folder / "aside").write_text(json.dumps(outcome))
    (folder / "aside").rename(folder / "outcome")


def in_a_process(work):
    """Run work in a process of its own and return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def die_in(kind, number, size):
    """Let the kernel stop this process once it has written so many bytes of the n-th file of a kind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python's own choice is an error that could be caught
    left = [number]

    def watch(event, arguments):
        if event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            path = arguments[0]
            left[0] -= KINDS[kind] in path if kind != "checkpoint" else Path(path).name.startswith("tmp")
            if left[0] == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    sys.addaudithook(watch)


def kill(folder, between_epochs, kind, seconds, chance):
    """Train and be killed; return whether it came to that before the end."""
    number, size = 1 if kind == "partition" else chance.randint(1, 4), chance.randint(0, 200)

    def work():
        if kind != "time":
            die_in(kind, number, size)
        train(folder, between_epochs)

    pid = in_a_process(work)
    if kind == "time":
        time.sleep(chance.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"a resumed run failed by itself in {folder}")
    return os.WIFSIGNALED(status)


def read_everything(folder):
    """Read every file that goes by its final name; what is half written raises. Return how many there are."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".part")]
    for path in files:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".npz":
            PixelPartition.load(path)
        elif path.suffix == ".ckpt":
            torch.load(path, weights_only=True)
    return len(files)


def undisturbed(folder, between_epochs):
    """Return what comes out of a run that nobody kills, and how long it takes."""
    start = time.monotonic()
    status = os.waitpid(in_a_process(lambda: train(folder, between_epochs)), 0)[1]
    assert status == 0, "the run that nobody kills failed"
    return json.loads((folder / "outcome").read_text()), time.monotonic() - start


def main(folder, kills):
    """Kill so many times, in as many runs as it takes, and compare each run with the one that nobody killed."""
    chance = random.Random(0)
    left = [kind for _ in range(kills) for kind in ("time", *KINDS)][:kills]
    died, runs, files, different = dict.fromkeys(("time", *KINDS), 0), 0, 0, []
    expected = {way: undisturbed(folder / f"whole {way}", way) for way in (False, True)}
    while left:
        way = runs % 2 == 1
        place = folder / f"run {runs}"
        place.mkdir(parents=True)
        while not (place / "outcome").exists():
            kind = left.pop(0) if left else None
            if kind is None:
                os.waitpid(in_a_process(lambda: train(place, way)), 0)  # noqa: B023
            elif kill(place, way, kind, expected[way][1], chance):
                died[kind] += 1
            else:
                left.append("time")  # it had nothing of this kind left to write
            files += read_everything(place)
        outcome = json.loads((place / "outcome").read_text())
        different += [f"{place.name}: {part}" for part in outcome if outcome[part] != expected[way][0][part]]
        runs += 1
    print(json.dumps({"died": died, "runs": runs, "files read": files, "different": different}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
