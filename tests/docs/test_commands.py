# SPDX-License-Identifier: Apache-2.0
"""The commands on README and in docs/ run, or parse where they take minutes; their scripts and targets exist."""

import argparse
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

import numpy as np
import pytest
import torch
from _helpers.pages import PAGES, ROOT, commands
from _helpers.runs import manifests
from _helpers.slow import nightly_but
from PIL import Image

from genmonitor.cli import main

sys.path.insert(0, str(ROOT / "examples"))

import dcgan
from data import ImageData

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="needs the repository: README.md and docs/ are not beside the tests"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

COMMANDS = list(dict.fromkeys(command for text in PAGES.values() for command in commands(text)))


def of(program):
    return [command for command in COMMANDS if command.split()[0] == program]


@pytest.mark.parametrize("command", [*of("torchrun"), *of("srun")])
def test_launched_command_parses(command, monkeypatch):
    words = shlex.split(command)
    assert words[words.index("-m") + 1] == "genmonitor"
    monkeypatch.setattr(sys.modules["genmonitor.cli.main"], "_run", lambda *_: 0)
    assert main(words[words.index("-m") + 2 :]) == 0


def test_make_has_the_commands():
    makefile = (ROOT / "Makefile").read_text()
    assert {"make demo", "make test", "make docs"} <= set(of("make"))
    assert all(re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE) for command in of("make"))


def test_make_says_that_python_is_too_old_before_it_installs(tmp_path):
    for name in ("Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    declared = (ROOT / "pyproject.toml").read_text()
    future = re.sub('^requires-python = ">=.*"$', 'requires-python = ">=99.1"', declared, flags=re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(future)
    command = ["make", "demo", f"BIN={Path(sys.executable).parent}"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    has = ".".join(map(str, sys.version_info[:3]))
    assert ran.stderr.startswith(
        f"genmonitor needs Python 99.1 or newer, but .venv has {has}. Run: make clean; make demo PYTHON=python99.1\n"
    )
    assert ran.returncode == 2


READERS = {"--data.path", "chestmnist.npz", "img_align_celeba"}
"""Words that name files of the reader's."""


class ParsedError(Exception):
    pass


@pytest.mark.parametrize("command", of("python"))
def test_python_command_names_a_script_and_its_arguments(command, monkeypatch, capsys):
    script, *words = shlex.split(command)[1:]
    assert (ROOT / script).is_file()
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [script, *words])
    if Path(script).parts[0] != "examples":  # test_benchmarks.py and test_pictures.py run the others
        return
    monkeypatch.syspath_prepend(ROOT / Path(script).parent)
    module = importlib.import_module(Path(script).stem)
    if script == "examples/train.py":
        words = [word for word in words if word not in READERS]
        monkeypatch.setattr(sys, "argv", [script, *words, "--print_config"])
        with pytest.raises(SystemExit, match="0"):
            module.command_line()
        assert "class_path: genmonitor.callbacks.PixelClusterMonitor" in capsys.readouterr().out
        return

    def parse(name):
        original = getattr(argparse.ArgumentParser, name)

        def stop(self, *args, **kwargs):
            original(self, *args, **kwargs)
            raise ParsedError

        monkeypatch.setattr(argparse.ArgumentParser, name, stop)

    if not words:
        assert callable(module.main)
        return
    parse("parse_known_args" if Path(script).stem == "compare_seeds" else "parse_args")
    with pytest.raises(ParsedError):
        module.main()


BUILD = """
from data import ImageData
from dcgan import DCGAN

from genmonitor.callbacks import PixelClusterMonitor


def build():
    data = ImageData("digits")
    module = DCGAN(data.image_shape, generator_features=32, discriminator_features=32)
    return module, data, PixelClusterMonitor(n_clusters=3, n_samples=100)


def demo():
    data = ImageData("digits")
    images = min(2000, len(data.train_images))
    module = DCGAN(data.image_shape, generator_features=32, discriminator_features=32)
    return module, data, PixelClusterMonitor(n_clusters=5, n_cluster_images=images, n_samples=500)
"""
"""Functions such as `genmonitor sweep` and `replay` take."""


@pytest.fixture(scope="module")
def after_the_demo(tmp_path_factory):
    """A folder with two runs of the demo, of two epochs, and real and generated images beside."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["dcgan.py", "--epochs", "2"])
        dcgan.main()
        shutil.copytree("runs/dcgan-digits/version_0", "runs/dcgan-digits/version_1")
        for task, other in ((0, 2), (1, 1)):  # each with one of the two evaluations
            copied = shutil.copytree("runs/dcgan-digits/version_0/genmonitor", f"swept/task_{task}/genmonitor")
            content = json.loads((Path(copied) / "cms_run.json").read_text())
            del content["evaluations"][other - 1]
            (Path(copied) / "cms_run.json").write_text(json.dumps(content))
    (folder / "build.py").write_text(BUILD)
    real, training = (
        images.images[:200] for images in (ImageData("digits").val_images, ImageData("digits").train_images)
    )
    noise = dict.fromkeys(("generated_images", "other_images", "generated_classes"))
    for name, images in {"real_images": real, "real_classes": real, "training_images": training, **noise}.items():
        images = torch.rand(50, 1, 8, 8) if images is None else (images + 1) / 2
        for number, image in enumerate(images):
            place = folder / name / (f"class_{number % 2}" if name.endswith("classes") else "")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((255 * image[0]).byte().numpy()).save(place / f"{number:03}.png")
    shutil.copytree(folder / "real_images", folder / "real")
    for name in ("prepared", "reconstructed", "saved", "a", "b"):
        shutil.copytree(folder / "generated_images", folder / name)
    prompts = [f"the digit {number % 10}" for number in range(50)]
    (folder / "prompts.txt").write_text("\n".join(prompts))
    rows = [f"{number:03}.png,{prompt}" for number, prompt in enumerate(prompts)]
    (folder / "prompts.csv").write_text("\n".join(["file_name,prompt", *rows]))
    for name in ("generated", "other"):
        np.savez(folder / f"{name}.npz", embeddings=np.random.default_rng(0).normal(size=(50, 8)))
    return folder


RUN = [command for command in of("genmonitor") if len(command.split()) > 2]


def first_of_each_kind(commands):
    """Return the first command of each name and first option."""
    first = {}
    for command in commands:
        option = re.search(" --[a-z-]+", command)
        first.setdefault((command.split()[1], option and option[0]), command)
    return first.values()


@pytest.mark.slow
@pytest.mark.parametrize("command", nightly_but(RUN, *first_of_each_kind(RUN)))
def test_genmonitor_command_runs(command, after_the_demo, monkeypatch, capsys):
    monkeypatch.chdir(after_the_demo)
    arguments = [x for word in shlex.split(command)[1:] for x in (sorted(glob(word)) if "*" in word else [word])]
    if arguments[0] == "replay":  # of the epoch that was best here
        (arguments[3],) = map(str, Path(arguments[3]).parent.glob("best-epoch=*.ckpt"))
    assert main(arguments) == (1 if "--fail-if" in arguments else 0)  # the generated images are noise
    assert EXPECTED[arguments[0]] in " ".join(capsys.readouterr().out.split())  # wherever lines break


EXPECTED = {
    "compare": "against real",
    "diversity": " modes in ",
    "disagreement": "by chance ",
    "report": "Report: ",
    "best": "best-epoch=",
    "replay": "same to the last bit",
    "sweep": "Evaluated 1 checkpoint",
}


def test_every_genmonitor_command_is_shown():
    assert EXPECTED.keys() == {command.split()[1] for command in RUN}


@pytest.mark.parametrize("command", EXPECTED)
def test_genmonitor_command_has_help_and_json(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert "--json" in capsys.readouterr().out


@pytest.mark.slow
def test_keys_of_the_clusters_are_logged_or_drawn(after_the_demo):
    folder = after_the_demo / "runs/dcgan-digits/version_0/genmonitor"
    # the first is diagnosed, the second compared with it
    logged = {key for manifest in manifests(folder) for key in manifest["values"]}
    drawn = {path.stem.removeprefix("cms_") for path in folder.glob("cms_*.png")}
    named = set(re.findall(r"`cms/(\w+)`", "\n".join(PAGES.values())))
    assert len(named) >= 12
    by_name = {"eyes", "p_eyes"}  # of a region that the page named
    of_prompts = {"p_class"}  # which the demo has none of
    assert named - logged - drawn == by_name | of_prompts
