# SPDX-License-Identifier: Apache-2.0
"""What README says is so: its snippets and commands run, and the files, keys, arguments and figures in it exist."""

import argparse
import importlib
import inspect
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
import yaml
from lightning import seed_everything
from PIL import Image

import genmonitor
from genmonitor.cli import main

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import dcgan  # noqa: E402
from data import ImageData  # noqa: E402
from dcgan import DCGAN  # noqa: E402

README = ROOT / "README.md"
TEXT = README.read_text() if README.exists() else ""
pytestmark = [
    pytest.mark.skipif(not README.exists(), reason="needs the repository: README.md is not beside the tests"),
    # Lightning's advice on workers and on validation, and the monitor's own on the latter, are what a reader would see
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
SNIPPETS = [block for kind, block in FENCED if kind == "python"]
COMMANDS = [
    line.partition(" #")[0].strip() for kind, block in FENCED if not kind for line in block.splitlines() if line.strip()
]
COMMANDS += re.findall(r"`(python [^`]+)`", TEXT)


def commands(program):
    return list(dict.fromkeys(command for command in COMMANDS if command.split()[0] == program))


def test_every_block_of_commands_is_looked_at():
    assert {command.split()[0] for command in COMMANDS} == {"make", "python", "genmonitor"}
    assert {kind for kind, _ in FENCED} == {"", "python", "yaml"}


# snippets


@pytest.fixture
def yours():
    """What the snippets take for the reader's own."""
    seed_everything(0, verbose=False)
    return {"model": DCGAN(latent_dim=8, generator_features=8, discriminator_features=8), "data": ImageData("digits")}


def run_snippet(with_name, yours):
    (code,) = [snippet for snippet in SNIPPETS if re.search(rf"^{with_name} = ", snippet, re.MULTILINE)]
    space = {"__name__": "snippet", **yours}
    exec(compile(code, f"README, {with_name}", "exec"), space)
    return space


def test_there_are_four_short_snippets():
    lines = [sum(bool(line.strip()) for line in snippet.splitlines()) for snippet in SNIPPETS]
    assert len(lines) == 4
    assert all(n <= most for n, most in zip(lines, (8, 11, 24, 7), strict=True))


def test_monitor_snippet_evaluates_writes_and_keeps_the_best(tmp_path, monkeypatch, yours):
    monkeypatch.chdir(tmp_path)
    space = run_snippet("monitor", yours)
    history = space["monitor"].history
    assert len(history) == 2
    assert all(0 <= record["image"] <= 1 for record in history)
    (folder,) = tmp_path.glob("**/genmonitor")
    assert {"cms_curves.png", "report.html"} < {path.name for path in folder.iterdir()}
    assert Path(space["best"].best_model_path).exists()


def test_metric_snippet_finds_the_dark_half(yours):
    assert run_snippet("cms", yours)["cms"].compute()["share_2"] > 0.9


def test_compare_snippet_finds_the_brighter_images(yours):
    found = run_snippet("found", yours)["found"]
    assert found.finding.startswith(
        "fake is closer to the real images than other in all 2 regions, most surely in cluster_2"
    )
    assert found.finding in str(found)


def test_snippet_of_ones_own_monitor_measures_the_brightness(tmp_path, monkeypatch, yours, capsys):
    monkeypatch.chdir(tmp_path)
    monitor, partition = run_snippet("brightness", yours)["brightness"], genmonitor.PixelPartition.grid((8, 8), 1, 2)
    last = monitor.history[-1]
    assert len(monitor.history) == 2
    assert str(last["cluster_1"]) in capsys.readouterr().out
    real = yours["data"].val_images.images
    every = torch.randperm(len(real), generator=torch.Generator().manual_seed(0))[:100]
    generated = monitor.evaluator.generated.mean(0)
    for index, (name, label) in enumerate(partition.regions().items()):
        of_real = real[every][..., partition.pixel_labels() == label].mean()
        assert last[name] == pytest.approx(float(generated[index] - of_real), abs=1e-5)
    (folder,) = tmp_path.glob("**/genmonitor")
    assert {"brightness_evaluation_00002.json", "report.html"} <= {path.name for path in folder.iterdir()}
    assert "cluster_1" in (folder / "report.html").read_text()


# commands


def test_make_has_the_commands():
    makefile = (ROOT / "Makefile").read_text()
    assert commands("make") == ["make demo", "make test", "make test-slow"]
    named = {command.split()[1] for command in [*commands("make"), *re.findall(r"`(make [\w-]+)`", TEXT)]}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named)


class ParsedError(Exception):
    pass


@pytest.mark.parametrize("command", commands("python"))
def test_python_command_names_a_script_and_its_arguments(command, monkeypatch, capsys):
    script, *words = shlex.split(command)[1:]
    assert (ROOT / script).is_file()
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [script, *words])
    if Path(script).parts[0] == "benchmarks":  # test_benchmarks.py runs them
        return
    module = importlib.import_module(Path(script).stem)
    if script == "examples/train.py":
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
    parse("parse_known_args" if script == "examples/compare_seeds.py" else "parse_args")
    with pytest.raises(ParsedError):
        module.main()


@pytest.fixture(scope="module")
def after_the_demo(tmp_path_factory):
    """A folder where the demo ran for two epochs, with real and generated images beside."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["dcgan.py", "--epochs", "2"])
        dcgan.main()
    sets = {"real_images": ImageData("digits").val_images.images[:200], "generated_images": None, "other_images": None}
    for name, images in sets.items():
        (folder / name).mkdir()
        images = torch.rand(50, 1, 8, 8) if images is None else (images + 1) / 2
        for number, image in enumerate(images):
            Image.fromarray((255 * image[0]).byte().numpy()).save(folder / name / f"{number:03}.png")
    return folder


@pytest.mark.parametrize("command", commands("genmonitor"))
def test_genmonitor_command_runs(command, after_the_demo, monkeypatch, capsys):
    monkeypatch.chdir(after_the_demo)
    arguments = command.split()[1:]
    if arguments[0] == "replay":  # of the epoch that was best here
        epoch, evaluation = (int(re.search(r"(\d+)\.\w+$", arguments[i])[1]) for i in (3, 1))
        assert evaluation == epoch // (dcgan.DEFAULTS["digits"]["epochs"] // 15) + 1
        (best,) = Path(arguments[3]).parent.glob("best-epoch=*.ckpt")
        number = int(best.stem.rpartition("=")[2]) + 1
        arguments[3] = str(best)
        arguments[1] = re.sub(r"\d+(?=.json)", f"{number:05}", arguments[1])
    assert main(arguments) == 0
    said = capsys.readouterr().out
    expected = {
        "compare": "against real",
        "clusters": "cluster_5",
        "report": "report.html",
        "replay": "same to the last bit",
    }
    assert expected[arguments[0]] in said
    assert expected.keys() == {command.split()[1] for command in commands("genmonitor")}


@pytest.mark.parametrize("command", ["compare", "clusters", "report", "replay"])
def test_genmonitor_command_has_help_and_json(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert "--json" in capsys.readouterr().out


# names


def keys():
    """The log keys in README, without those that stand for several."""
    found = re.findall(r"`((?:cms|cms_5|diversity|disagreement|brightness)/[\w…]+)`", TEXT)
    return sorted({key for key in found if not key.endswith("/…")})


def test_keys_of_the_clusters_are_logged_or_drawn(after_the_demo):
    folder = after_the_demo / "runs/dcgan-digits/version_0/genmonitor"
    logged = json.loads((folder / "cms_evaluation_00002.json").read_text())["evaluation"]
    drawn = {path.stem.removeprefix("cms_") for path in folder.glob("cms_*.png")}
    named = [key.removeprefix("cms/") for key in keys() if key.startswith("cms/")]
    assert len(named) >= 7
    assert [name for name in named if name not in logged.keys() | drawn] == []
    assert {"cms", "brightness"} == {key.partition("/")[0] for key in keys()}


def test_every_path_exists():
    """Links, pictures and whatever in code begins with a folder of the repository."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if not link.startswith("http")]
    code = re.findall(r"\b(?:examples|benchmarks|docs|callbacks|genmonitor|tests)/[\w./-]*\w", TEXT)
    named = {*links, *(path for path in code if not re.search(rf"version_0/{path}", TEXT))}
    assert len(named) > 15
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_configurations_in_the_table_are_those_of_the_folder():
    rows = [line for line in TEXT.splitlines() if line.startswith(("| `dcgan-", "| `ddpm-"))]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    assert named == {path.stem for path in (ROOT / "examples" / "configs").glob("*.yaml")}


def test_classes_and_functions_in_the_table_exist():
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \| ([^|]*) \| [^|]+ \| [^|]+ \|$", TEXT, re.MULTILINE)
    classes = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    functions = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    others = {"PixelPartition", "GaussianKernel", "LaplacianKernel", "CosineKernel"}
    assert classes == {name for name in genmonitor.__all__ if name[0].isupper()} - others
    assert functions <= set(genmonitor.functional.__all__)
    assert len(functions) >= 11


def test_yaml_block_names_classes_and_arguments_that_exist():
    (block,) = [block for kind, block in FENCED if kind == "yaml"]
    seen = []

    def check(node):
        if isinstance(node, dict) and "class_path" in node:
            path = node["class_path"]
            seen.append(path)
            if not path.startswith("my_module."):
                module, *names = re.match(r"((?:\w+\.)*?\w+)\.([A-Z]\w+)(?:\.(\w+))?$", path).groups()
                found = importlib.import_module(module)
                for name in filter(None, names):
                    found = getattr(found, name)
                assert node.get("init_args", {}).keys() <= inspect.signature(found).parameters.keys(), path
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            check(child)

    check(yaml.safe_load(block))
    assert len(seen) == 6


def test_versions_and_extras_are_those_of_the_package():
    package = (ROOT / "pyproject.toml").read_text()
    said = re.search(r"Python ([\d.]+), torch ([\d.]+), lightning ([\d.]+) and torchmetrics ([\d.]+) or newer", TEXT)
    least = dict(zip(('requires-python = "', '"torch', '"lightning', '"torchmetrics'), said.groups(), strict=True))
    assert all(f'{name}>={version}"' in package for name, version in least.items())
    assert re.search(r"the examples\s+lightning 2\.6\.", TEXT)
    assert '"lightning>=2.6"' in package
    extras = re.findall(r"`(\w+)`", re.search(r"\(extras:(.*?)\)", TEXT, re.DOTALL)[1])
    assert all(re.search(rf"^{extra} = \[", package, re.MULTILINE) for extra in extras)
    assert len(extras) == 4


# words and figures


@pytest.mark.parametrize("word", ["yardstick", "perfect generator", "blame", "_check_", "check", "colour", "learnt"])
def test_old_words_are_gone(word):
    assert not re.search(rf"\b{word}\b" if word.isalpha() else word, TEXT)


COSTS = {
    "an evaluation of the DCGAN on digits": ("overhead", "DCGAN digits", "measuring s"),
    "the clusters of 64×64×3": ("cka", "clusters of 64x64x3", "seconds"),
    "the clusters of 256×256×3": ("cka", "clusters of 256x256x3 in 4x4 patches", "seconds"),
    "CKA of 28×28×1, 1000 images": ("cka", "full batch 28x28x1", "seconds"),
    "CKA of 28×28×1, 100,000 images": ("cka", "streamed 28x28x1", "seconds"),
    "CMS of 64×64×3": ("cms", "image and 5 clusters", "seconds"),
    "Vendi, cosine, 50,000": ("entropy", "Vendi 50000 against score dual", "seconds"),
    "Scendi, 2 × 500": ("entropy", "Scendi 5000 by 2x500 frequencies", "seconds"),
    "PromptSplit, exact, 10,000": ("promptsplit", "exact 10000", "seconds"),
    "PromptSplit, 1,000 frequency pairs": ("promptsplit", "features 30000 1000", "seconds"),
    "PRDC, 5000": ("two_sample", "PRDC 5000", "seconds"),
    "MMD, 5000": ("two_sample", "MMD 5000", "seconds"),
}
"""The row of a committed table that each row of README's is taken from."""


def table(name):
    lines = [line for line in (ROOT / "benchmarks" / f"{name}.md").read_text().splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def costs():
    block = TEXT.partition("| what | seconds | beside | peak GiB |\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()[1:]]


@pytest.mark.parametrize("start", COSTS)
def test_cost_is_that_of_a_committed_table(start):
    (row,) = [row for row in costs() if row[0].startswith(start)]
    name, case, column = COSTS[start]
    measured = table(name)[case]
    assert float(row[1]) == pytest.approx(float(measured[column]), rel=0.06)
    assert float(row[3]) == pytest.approx(float(measured["peak GiB"]), abs=0.06)


def test_every_cost_is_looked_up():
    assert len(costs()) == len(COSTS)
