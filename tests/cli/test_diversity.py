# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import re

import numpy as np
import pytest
import torch
from _helpers.runs import manifests, table_rows
from PIL import Image

from genmonitor import GaussianKernel
from genmonitor.cli import main
from genmonitor.cli.outputs import read_images
from genmonitor.functional import precision_recall_density_coverage, scendi_score, vendi_score

LABELS = torch.arange(36) % 3


@pytest.fixture(scope="module")
def found(classes):
    """Output for `a` with its prompts, beside `b` as real images, and the folder that is written."""
    out = classes / "diversity"
    arguments = [
        "diversity",
        classes / "a",
        "--prompts",
        classes / "prompts.csv",
        "--real",
        classes / "b",
        "--out",
        out,
    ]
    assert main([str(x) for x in (*arguments, "--json")]) == 0
    return out / "genmonitor"


@pytest.fixture(scope="module")
def manifest(found):
    return manifests(found, "diversity")[0]


def test_diversity_has_the_values_of_the_functions(classes, manifest):
    images, real = (read_images(str(classes / name)).flatten(1) for name in "ab")
    expected = {"vendi": vendi_score(images), "real_vendi": vendi_score(real)}
    expected |= scendi_score(images, torch.eye(3)[LABELS]) | precision_recall_density_coverage(images, real)
    values = manifest["values"]
    assert {name: values[name] for name in expected} == pytest.approx(
        {n: float(x) for n, x in expected.items()}, rel=1e-5
    )


def test_diversity_says_a_collapsed_prompt_first(genmonitor, tmp_path):
    images = np.random.default_rng(0).random((120, 1, 8, 8), np.float32)
    images[::4] = images[0] + 0.01 * images[::4]
    np.savez(tmp_path / "outputs.npz", images=images, labels=np.arange(120) % 4)
    arguments = ("diversity", "outputs.npz:images", "--prompts", "outputs.npz:labels", "--out", tmp_path / "out")
    with contextlib.chdir(tmp_path):
        status, said, _ = genmonitor(*arguments)
    assert status == 0
    assert said.startswith("Prompts that vary far less than a typical one: '0' (spread ")


def test_diversity_says_the_finding_first(classes, genmonitor, terminal, tmp_path):
    arguments = ("diversity", classes / "a", "--prompts", classes / "prompts.txt", "--out", tmp_path / "out")
    status, said, _ = genmonitor(*arguments)
    assert status == 0
    assert said.startswith("3.")
    first, *rest = said.splitlines()
    assert re.search(r" ± 0\.\d+ modes in 36 images; the prompts explain 9", first)
    assert rest[1].split() == ["value", "±"]
    assert "Note: Each distinct prompt counts as a class of its own; --text-encoder compares what they say." in rest
    assert rest[-1] == f"Report: {tmp_path / 'out' / 'genmonitor' / 'report.html'}"


def test_diversity_shows_the_modes_on_the_page(found):
    modes = table_rows(found, "diversity", "ranked modes")
    assert len(modes) == 5
    assert modes[0]["one end"].count(".png (a ") == 3
    page = (found / "report.html").read_text()
    assert "a beside " in page
    assert 'alt="modes"' in page
    assert "Variety of the outputs" in page


def test_diversity_in_a_terminal_begins_with_the_finding(classes, genmonitor, terminal, tmp_path):
    _, said, _ = genmonitor("diversity", classes / "a", "--out", tmp_path)
    assert "modes in 36 images." in said.splitlines()[0]


def test_diversity_of_embeddings_takes_a_gaussian(genmonitor, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "x.npz", embeddings=x, labels=np.arange(40) % 2)
    options = ("--prompts", f"{tmp_path / 'x.npz'}:labels", "--sigma", 2, "--num-features", 100, "--json")
    status, said, complaint = genmonitor("diversity", tmp_path / "x.npz", *options, "--out", tmp_path / "out")
    assert status == 0, complaint
    expected = vendi_score(torch.from_numpy(x), kernel=GaussianKernel.from_sigma(2))
    assert json.loads(said)["values"]["vendi"] == pytest.approx(float(expected), rel=0.15)
    assert not list((tmp_path / "out" / "genmonitor").glob("*modes.png"))  # nothing to look at


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("nothing", "but there is no nothing"),
        ("{place}/a --real {place}/none", "there is no"),
        ("{place}/a --prompt-sigma 2", "Expected --prompts with --prompt-sigma"),
        ("{place}/a --prompts {place}/own.txt", "Expected --text-encoder for 36 distinct prompts of 36 outputs"),
        ("{place}/wide.npy", "at most 3072 features of each output, but got 3136"),
        ("{place}/a --sigma 0", "--sigma: expected a number between 1e-18 and 1e18, but got 0"),
        ("{place}/a --out {place}/own.txt", "Expected --out to be a folder that can be written, but"),
    ],
)
def test_diversity_refuses_at_the_door(classes, genmonitor, arguments, complaint):
    (classes / "own.txt").write_text("".join(f"prompt {i}\n" for i in range(36)))
    np.save(classes / "wide.npy", np.ones((3, 56, 56)))
    status, said, complained = genmonitor("diversity", *arguments.format(place=classes).split())
    assert (status, said) == (2, "")
    assert complaint in complained


def test_diversity_names_the_images_that_are_black(genmonitor, tmp_path):
    (tmp_path / "x").mkdir()
    for i in range(20):
        Image.new("L", (4, 4), 10 * (i != 7)).save(tmp_path / "x" / f"{i}.png")
    status, said, complaint = genmonitor("diversity", tmp_path / "x")
    assert (status, said) == (2, "")
    assert "but 1 of 20 of " in complaint
    assert "are all 0: 7.png. Leave them out, or give --encoder" in complaint


def test_images_that_are_all_the_same_are_one_mode_and_no_narrow_prompt(genmonitor, tmp_path):
    np.save(tmp_path / "same.npy", np.full((20, 1, 4, 4), 128, np.uint8))
    status, said, complaint = genmonitor("diversity", tmp_path / "same.npy", "--out", tmp_path / "out")
    assert status == 0
    assert said.startswith("1 ")
    assert "Prompts that vary" not in said
    assert "Warning" not in complaint
