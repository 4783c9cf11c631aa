# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
import torch

from genmonitor.functional import calibrate, w1kp_score

LABELS = torch.arange(30) % 3


@pytest.fixture
def outputs(tmp_path):
    """A file of embeddings of which those of one prompt hardly vary, and one with their prompts."""
    x = np.random.default_rng(0).normal(size=(30, 4))
    x[2::3] *= 0.1
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "p.txt").write_text("".join(f"{('a cat', 'a dog', 'a fish')[i % 3]}\n" for i in range(30)))
    return [tmp_path / "x.npy", "--prompts", tmp_path / "p.txt", "--out", tmp_path / "out"]


def test_w1kp_names_the_least_varied_prompt_first(outputs, genmonitor):
    status, said, complaint = genmonitor("w1kp", *outputs)
    assert status == 0, complaint
    assert said.startswith("'a fish' varies least (W1KP 0.8")
    rows = [line.split()[1] for line in said.splitlines() if line.startswith("a ")]
    assert rows[0] == "fish"
    assert "Note: Calibrated on these outputs themselves" in said
    assert "similarity" not in said.splitlines()[0]


def test_w1kp_with_a_calibration_has_levels_and_the_values_of_the_function(outputs, genmonitor, tmp_path):
    others = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).double()
    calibrate(others).save(tmp_path / "c.pt")
    status, said, complaint = genmonitor("w1kp", *outputs, "--calibration", tmp_path / "c.pt", "--json")
    assert status == 0, complaint
    result = json.loads(said)
    x = torch.from_numpy(np.load(outputs[0]))
    expected = w1kp_score(x, LABELS, calibration=calibrate(others))
    assert result["values"]["w1kp"] == pytest.approx(float(expected["w1kp"]))
    first = result["prompts"][0]
    assert (first["prompt"], first["outputs"], first["level"]) == ("a fish", 10, "high")
    assert first["reusability"] >= 1
    assert all(int(name.removeprefix("row ")) % 3 == 2 for name in first["closest_pair"])
    assert result["notes"] == []


def test_w1kp_keeps_a_calibration_for_others(outputs, genmonitor, tmp_path):
    assert genmonitor("w1kp", *outputs, "--save-calibration", tmp_path / "c.pt")[0] == 0
    status, said, _ = genmonitor("w1kp", *outputs, "--calibration", tmp_path / "c.pt")
    assert status == 0
    assert "Note" not in said


def test_w1kp_reads_the_authors_file_of_two_arrays(outputs, genmonitor, tmp_path):
    torch.save((np.linspace(0, 50, 9), np.linspace(0, 1, 9)), tmp_path / "cdf-xy.pt")
    status, said, complaint = genmonitor("w1kp", *outputs, "--calibration", tmp_path / "cdf-xy.pt")
    assert status == 0, complaint
    assert "similarity)" in said.splitlines()[0]


def test_w1kp_of_prompts_that_vary_alike_names_none(outputs, genmonitor):
    np.save(outputs[0], np.random.default_rng(1).normal(size=(30, 4)))
    status, said, _ = genmonitor("w1kp", *outputs)
    assert status == 0
    assert said.startswith("No evidence that some prompts vary less than others (p = 0.")


@pytest.mark.parametrize("content", [b"hello", b"", b"prompt,x\n1,2\n", b"\x80\x02}q\x00."])
def test_w1kp_refuses_a_calibration_that_is_none_before_it_encodes(outputs, genmonitor, tmp_path, monkeypatch, content):
    monkeypatch.setattr("genmonitor.cli.results.encode", None)
    (tmp_path / "c.pt").write_bytes(content)
    status, said, complaint = genmonitor("w1kp", *outputs, "--calibration", tmp_path / "c.pt")
    assert (status, said) == (2, "")
    assert "Expected --calibration to be a file of --save-calibration or the authors' cdf-xy.pt, but" in complaint


def test_w1kp_refuses_a_calibration_of_other_contents(outputs, genmonitor, tmp_path):
    torch.save({"distances": "x", "heights": None, "dim": "4"}, tmp_path / "c.pt")
    status, _, complaint = genmonitor("w1kp", *outputs, "--calibration", tmp_path / "c.pt")
    assert status == 2
    assert "Expected --calibration to be" in complaint


def test_w1kp_shows_images_of_the_least_varied_prompts(classes, genmonitor, tmp_path):
    status, said, _ = genmonitor("w1kp", classes / "a", "--prompts", classes / "prompts.txt", "--out", tmp_path)
    assert status == 0
    assert (tmp_path / "genmonitor" / "w1kp_least_varied.png").is_file()
    page = (tmp_path / "genmonitor" / "report.html").read_text()
    assert "Likeness of the outputs of a prompt" in page
    assert said.splitlines()[0].partition("'")[2][:5] in page
    assert "in the order of their paths, 'a cat' to 00.png, 'a dog' to 01.png." in said


def test_w1kp_says_which_prompts_have_no_score(outputs, genmonitor, tmp_path):
    prompts = (tmp_path / "p.txt").read_text().splitlines()
    (tmp_path / "p.txt").write_text("\n".join(["a bird", *prompts[1:]]))
    _, said, _ = genmonitor("w1kp", *outputs)
    assert "1 prompts with a single output have no score" in said


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--prompts", ""], "expected a path, but got an empty one"),
        (["--calibration", "none.pt"], "there is none at none.pt"),
        (["--save-calibration", "nofolder/c.pt"], "in a folder that exists, but there is no nofolder"),
        (
            ["--calibration", "x", "--save-calibration", "y"],
            "not allowed with argument --calibration",
        ),
    ],
)
def test_w1kp_refuses_at_the_door(outputs, genmonitor, monkeypatch, options, complaint):
    monkeypatch.setattr("genmonitor.cli.results.encode", None)
    status, said, complained = genmonitor("w1kp", *outputs, *options)
    assert (status, said) == (2, "")
    assert complaint in complained


def test_w1kp_needs_prompts_and_two_outputs_of_one(outputs, genmonitor, tmp_path):
    assert "Expected --prompts for" in genmonitor("w1kp", outputs[0])[2]
    (tmp_path / "p.txt").write_text("".join(f"{i}\n" for i in range(30)))
    assert "Expected two outputs of some prompt" in genmonitor("w1kp", *outputs)[2]
