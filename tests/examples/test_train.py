# SPDX-License-Identifier: Apache-2.0
import functools
import inspect
from pathlib import Path

import fid_beside_cms
import numpy as np
import pytest
import torch
import yaml
from _helpers.changed_settings import CHANGED
from PIL import Image
from train import command_line

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel, PixelPartition, callbacks
from genmonitor.callbacks import GenerativeMonitor
from genmonitor.functional import calibrate

CONFIGS = Path(__file__).parents[2] / "examples" / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
pytestmark = [
    pytest.mark.filterwarnings(line)
    for line in (
        "ignore:.*LeafSpec",
        "ignore:.*does not have many workers",
        "ignore:PixelClusterMonitor.*(baseline|only|p-values)",
        "ignore:The number of training batches",
        "ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning",  # Lightning's
        "ignore:LightningCLI's args parameter is intended to run from within Python",
    )
]


def of(class_path, **init_args):
    return {"class_path": class_path, "init_args": init_args}


def config(name):
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())


def monitors(trainer):
    return [callback for callback in trainer.callbacks if isinstance(callback, GenerativeMonitor)]


def written(folder, content):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def made(path):
    return command_line(["--config", path], run=False)


# One epoch of each configuration on a tiny data set of its format


def photos(folder):
    generator = np.random.default_rng(0)
    for i in range(60):
        Image.fromarray(generator.integers(0, 255, (90, 70, 3), dtype=np.uint8)).save(folder / f"{i:06}.jpg")
    return folder


def chests(folder):
    generator = np.random.default_rng(0)
    splits = {
        f"{name}_images": generator.integers(0, 255, (n, 28, 28), dtype=np.uint8)
        for name, n in (("train", 60), ("val", 30), ("test", 30))
    }
    np.savez(folder / "chestmnist.npz", **splits, train_labels=np.zeros((60, 14), dtype=np.uint8))
    return folder / "chestmnist.npz"


DATA = {"folder": photos, "medmnist": chests}


SELDOM = {"ddpm-chestmnist", "ddpm-celeba64"}  # CI has the model with digits, and the data with the other model


def marks(name):
    return [pytest.mark.slow] * ("digits" not in name) + [pytest.mark.nightly] * (name in SELDOM)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in NAMES])
def test_each_configuration_runs_a_short_epoch(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = config(name)
    for callback in content["trainer"]["callbacks"]:
        small = {"n_samples": 8, "n_cluster_images": 20, "block_size": 4, "batch_estimator": 10}
        callback["init_args"] |= {key: small[key] for key in small.keys() & callback["init_args"]}
        if "Monitor" in callback["class_path"]:
            callback["init_args"]["on_error"] = "raise"
            if "celeba" in name:
                callback["init_args"]["patch_size"] = 8
    model = content["model"]["init_args"]
    if "widths" in model:
        model |= {"widths": [8 * (i + 1) for i in range(len(model["widths"]))], "sampling_steps": 2}
    else:
        model |= {"generator_features": 4, "discriminator_features": 4}
    data = content["data"]["init_args"]
    data["batch_size"] = 20
    words = [f"--data.path={DATA[data['name']](tmp_path)}"] if data["name"] in DATA else []
    words += ["--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.accelerator=cpu"]
    quiet = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
    trainer = command_line(["fit", "--config", written(tmp_path, content), *words, *quiet]).trainer
    (monitor,) = monitors(trainer)
    assert len(monitor.history) == 1
    assert 0 < monitor.history[0]["image"] <= 1
    assert (tmp_path / "runs" / name / "version_0" / "genmonitor" / "cms_clusters.png").exists()


@pytest.mark.filterwarnings("ignore:Metric `")
def test_metrics_of_a_file_go_to_the_monitor(monkeypatch):
    monkeypatch.setattr(fid_beside_cms, "train_classifier", lambda data: (fid_beside_cms.DigitFeatures(), None, 0))
    words = ["--config", str(CONFIGS / "dcgan-digits.yaml"), "--metrics", str(CONFIGS / "metrics" / "digits.yaml")]
    (monitor,) = monitors(command_line(words, run=False).trainer)
    assert [type(metric).__name__ for metric in monitor.evaluator.extra_metrics.values()] == [
        "FrechetInceptionDistance"
    ]


# Every argument of every monitor from a file

GAUSSIAN = of("genmonitor.GaussianKernel", gamma=0.25)
BASE = {
    "n_samples": (120, 120),
    "every_n_epochs": (2, 2),
    "every_n_train_steps": (7, 7),
    "prompts": ([0, 1, 2], [0, 1, 2]),
    "sample_fn": ("planted.planted_images", lambda found: found.__name__ == "planted_images"),
    "sample_batch_size": (32, 32),
    "real_images": (of("data.FolderImages", files=["a.png"], size=8), lambda found: found.size == 8),
    "image_key": ("picture", "picture"),
    "seed": (3, 3),
    "weights": ("raw", "raw"),
    "on_error": ("raise", "raise"),
    "on_alert": ("builtins.print", print),
    "verbose": (False, False),
    "log": ("all", "all"),
    "evaluate_on": ("cpu", "cpu"),
    "prefix": ("other", "other"),
}
PROMPTED = {
    "output_encoder": (of("torch.nn.Flatten"), lambda found: isinstance(found, torch.nn.Flatten)),
    "prompt_encoder": ("drawn_scenes.bag_of_words", lambda found: found.__name__ == "bag_of_words"),
    "kernel": (GAUSSIAN, GaussianKernel(0.25)),
    "prompt_kernel": (of("genmonitor.CosineKernel"), CosineKernel()),
    "num_features": (50, 50),
}
ARGUMENTS = {
    "PixelClusterMonitor": BASE
    | {name: (value, value) for name, value in CHANGED.items() if isinstance(value, (int, str))}
    | {
        "partition": (
            of("genmonitor.PixelPartition.load", path="partition.npz"),
            lambda found: isinstance(found, PixelPartition) and found.num_clusters == 2,
        ),
        "kernel": (of("genmonitor.LaplacianKernel", gamma=0.5), LaplacianKernel(0.5)),
        "extra_metrics": (
            {"fid": of("torchmetrics.image.fid.FrechetInceptionDistance", feature=of("tests_features.Means"))},
            lambda found: type(found["fid"]).__name__ == "FrechetInceptionDistance",
        ),
        "fault_models": ([], []),
        "readings": ([], []),
        "region_names": ({"cluster_1": "left"}, {"cluster_1": "left"}),
        "site_encoder": (of("torch.nn.AvgPool2d", kernel_size=2), lambda found: found.kernel_size == 2),
        "reuse": (None, None),
        "reuse_key": ("left", "left"),
    },
    "DiversityMonitor": BASE
    | PROMPTED
    | {
        "rcond": (1e-3, 1e-3),
        "extra_metrics": (
            {"prdc": of("genmonitor.PRDC", k=3)},
            lambda found: type(found["prdc"]).__name__ == "PRDC",
        ),
        "calibration": (
            of("genmonitor.functional.W1KPCalibration.load", path="calibration.pt"),
            lambda found: found.dim == 3,
        ),
    },
    "DisagreementMonitor": BASE
    | PROMPTED
    | {
        "reference": ("start", "start"),
        "num_modes": (3, 3),
        "eta": (0.5, 0.5),
        "prompt_key": ("caption", "caption"),
        "prompt_kernel": (GAUSSIAN, GaussianKernel(0.25)),
    },
}
EITHER_OR = {"PixelClusterMonitor": [{"n_clusters"}, {"partition"}]}


def test_all_monitors_are_known_here():
    public = {name: getattr(callbacks, name) for name in callbacks.__all__}
    monitors = {n for n, x in public.items() if inspect.isclass(x) and issubclass(x, GenerativeMonitor)}
    assert monitors - {"GenerativeMonitor"} == set(ARGUMENTS)


@pytest.fixture
def received(monkeypatch):
    """A function that returns a dictionary of what the constructor of a monitor is called with."""

    def record(cls):
        made, original = {}, cls.__init__

        @functools.wraps(original)
        def init(self, *args, **kwargs):
            bound = inspect.signature(original).bind(self, *args, **kwargs).arguments
            made.update(bound.pop("options", {}) | bound)
            original(self, *args, **kwargs)

        monkeypatch.setattr(cls, "__init__", init)
        return made

    return record


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_argument_fits_a_file_and_survives_print_config(name, tmp_path, monkeypatch, capsys, received):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tests_features.py").write_text(
        "import torch\n\n\nclass Means(torch.nn.Module):\n    num_features = 3\n\n"
        "    def forward(self, images):\n        return images.float().mean((2, 3))\n"
    )
    PixelPartition.grid((8, 8), 1, 2).save(tmp_path / "partition.npz")
    calibrate(torch.rand(20, 3)).save(tmp_path / "calibration.pt")
    own = inspect.signature(getattr(callbacks, name)).parameters.keys() - {"options"}
    known = own | callbacks.MonitorOptions.__annotations__.keys()
    assert known == ARGUMENTS[name].keys()
    arguments = received(getattr(callbacks, name))
    for left_out in EITHER_OR.get(name, [set()]):
        given = {key: ARGUMENTS[name][key][0] for key in known - left_out}
        content = config("dcgan-digits")
        content["trainer"]["callbacks"] = [of(f"genmonitor.callbacks.{name}", **given)]
        with pytest.raises(SystemExit):
            command_line(["fit", "--config", written(tmp_path, content), "--print_config"])
        printed = yaml.safe_load(capsys.readouterr().out)
        printed = {key: printed[key] for key in content}  # the others are arguments of `fit`
        arguments.clear()
        assert len(monitors(made(written(tmp_path, printed)).trainer)) == 1
        for key in given:
            expected = ARGUMENTS[name][key][1]
            found = arguments[key]
            good = expected(found) if inspect.isfunction(expected) else found == expected
            assert good, f"{key}: {found}"
