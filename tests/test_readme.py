# SPDX-License-Identifier: Apache-2.0
import re
import sys
from pathlib import Path

import pytest
import torch
from lightning import Trainer, seed_everything
from PIL import Image

from genmonitor.cli import main

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

import dcgan  # noqa: E402
from data import ImageData  # noqa: E402
from dcgan import DCGAN  # noqa: E402

README = Path(__file__).parent.parent / "README.md"
pytestmark = [
    pytest.mark.skipif(not README.exists(), reason="needs the repository: README.md is not beside the tests"),
    # Lightning's advice on workers and on validation, and the monitor's own on the latter, are what a reader would see
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if README.exists() else []


def commands(name: str) -> list[str]:
    return re.findall(rf"^{name} .*$", README.read_text(), re.MULTILINE) if README.exists() else []


@pytest.fixture
def yours():
    """What the snippets take for the reader's own."""
    seed_everything(0, verbose=False)
    return {"model": DCGAN(latent_dim=8, generator_features=8, discriminator_features=8), "data": ImageData("digits")}


@pytest.mark.parametrize("index", range(len(snippets())))
def test_each_snippet_runs(index, tmp_path, monkeypatch, yours):
    monkeypatch.chdir(tmp_path)
    code = snippets()[index]
    space = {"__name__": "snippet", **yours}
    exec(compile(code, f"README snippet {index}", "exec"), space)
    if "monitor" in space:
        history = space["monitor"].history
        assert len(history) == 2
        assert all(0 <= record["image"] <= 1 for record in history)
        (folder,) = tmp_path.glob("**/genmonitor")
        assert {"cms_curves.png", "report.html"} < {path.name for path in folder.iterdir()}
        assert Path(space["best"].best_model_path).exists()
    if "brightness" in space:
        Trainer(max_epochs=1, callbacks=[space["brightness"]], logger=False, enable_checkpointing=False).fit(
            yours["model"], datamodule=yours["data"]
        )
        assert -1 <= space["brightness"].history[-1]["mean"] <= 1
    if "cms" in space:
        assert space["cms"].compute()["share_2"] > 0.9


def test_there_are_snippets():
    assert len(snippets()) == 3
    assert all(sum(bool(line.strip()) for line in snippet.splitlines()) <= 12 for snippet in snippets())


def test_make_has_the_commands():
    makefile = (README.parent / "Makefile").read_text()
    assert len(commands("make")) == 2
    assert all(re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE) for command in commands("make"))


@pytest.fixture(scope="module")
def after_the_demo(tmp_path_factory):
    """A folder where the demo ran for two epochs, with real and generated images beside."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["dcgan.py", "--epochs", "2"])
        dcgan.main()
    for name, images in (("real_images", ImageData("digits").val_images.images[:200]), ("generated_images", None)):
        (folder / name).mkdir()
        images = torch.rand(50, 1, 8, 8) if images is None else (images + 1) / 2
        for number, image in enumerate(images):
            Image.fromarray((255 * image[0]).byte().numpy()).save(folder / name / f"{number:03}.png")
    return folder


@pytest.mark.parametrize("command", commands("genmonitor"))
def test_each_command_runs(command, after_the_demo, monkeypatch, capsys):
    monkeypatch.chdir(after_the_demo)
    arguments = command.split()[1:]
    if arguments[0] == "replay":  # of the epoch that was best here
        (best,) = Path("runs/dcgan-digits/version_0/checkpoints").glob("best-epoch=*.ckpt")
        number = int(best.stem.rpartition("=")[2]) + 1
        arguments[3] = str(best)
        assert re.sub(r"\d+(?=.json)", f"{number:05}", arguments[1]) != arguments[1]
        arguments[1] = re.sub(r"\d+(?=.json)", f"{number:05}", arguments[1])
    assert main(arguments) == 0
    said = capsys.readouterr().out
    expected = {"compare": "share", "clusters": "cluster_5", "report": "report.html", "replay": "same to the last bit"}
    assert expected[arguments[0]] in said


def test_there_are_commands():
    assert [command.split()[1] for command in commands("genmonitor")] == ["compare", "clusters", "report", "replay"]


WORDS = ("yardstick", "perfect generator", "to blame", "_check_")


@pytest.mark.parametrize("word", WORDS)
def test_old_words_are_gone(word):
    assert word not in README.read_text()


@pytest.mark.parametrize(
    "name",
    sorted(set(re.findall(r"[\w/-]+/[\w.-]+\.(?:py|png|md|yaml)", README.read_text()))) if README.exists() else [],
)
def test_files_that_are_named_exist(name):
    assert (README.parent / name).exists() or name.startswith("runs/")
