# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
import torch
from _helpers.runs import table_rows

from genmonitor import GaussianKernel
from genmonitor.cli import main
from genmonitor.cli.outputs import read_images
from genmonitor.functional import prompt_split
from genmonitor.report.run import MonitorRun

LABELS = torch.arange(36) % 3


@pytest.fixture(scope="module")
def found(classes):
    """What is found of `a` and `b`, whose fish differ, with their prompts; and the folder that is written."""
    out = classes / "disagreement"
    arguments = ["disagreement", classes / "a", classes / "b", "--prompts", classes / "prompts.csv", "--out", out]
    assert main([str(x) for x in (*arguments, "--sigma", "0.5", "--prompt-sigma", "0.5", "--json")]) == 0
    return out / "genmonitor"


def test_disagreement_ranks_the_prompt_that_differs_first(found):
    first, *_ = table_rows(found, "disagreement", "ranked prompts")
    assert first["prompt"] == "a fish"
    assert 0.6 < float(first["share"]) <= 1
    assert float(first["p"]) <= 0.05


def test_disagreement_has_the_values_of_the_function(classes, found):
    images, others = (read_images(str(classes / name)).flatten(1) for name in "ab")
    prompts, kernel = torch.eye(3)[LABELS], GaussianKernel.from_sigma(0.5)
    modes = prompt_split(images, prompts, others, prompts, output_kernel=kernel, prompt_kernel=kernel, num_modes=10)
    run = MonitorRun.read(found / "disagreement_run.json")
    (values,) = run.records
    assert values["total"] == pytest.approx(float(modes.total), rel=1e-5)
    largest = table_rows(found, "disagreement", "ranked modes")[0]
    assert float(largest["eigenvalue"]) == pytest.approx(float(modes.eigenvalues[0]), abs=6e-4)
    assert (largest["only in"], largest["prompts"]) == ("a", "a fish")
    assert all(name.endswith(".png (a fish)") for name in largest["a"].split("; "))


def test_disagreement_shows_both_sides_on_the_page(found):
    page = (found / "report.html").read_text()
    assert "What two models do differently" in page
    assert 'alt="modes"' in page


def test_disagreement_without_prompts_is_ken(genmonitor, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(20, 2))
    x[:10] += 9
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    arguments = (
        "disagreement",
        tmp_path / "x.npy",
        tmp_path / "y.npy",
        "--sigma",
        1,
        "--eta",
        2,
        "--out",
        tmp_path / "out",
    )
    status, said, complaint = genmonitor(*arguments, "--json")
    assert status == 0, complaint
    result = json.loads(said)
    gram = torch.exp(-torch.cdist(*2 * (torch.from_numpy(np.concatenate([x, y])),)).square() / 2)
    weights = torch.tensor([1 / 30] * 30 + [-2 / 20] * 20).double()
    eigenvalues = torch.linalg.eigvals(weights[:, None] * gram).real
    positive = eigenvalues[eigenvalues > 0]
    assert result["values"]["total"] == pytest.approx(
        float((positive * (positive.sum() / positive).log()).sum()), rel=1e-6
    )
    assert result["prompts"] == []
    assert {int(name.removeprefix("row ")) < 10 for name in result["modes"][0]["x.npy"]} == {True}
    total, p = result["values"]["total"], result["values"]["p"]
    assert result["finding"].startswith(f"Disagreement of x.npy with y.npy: total {total:.3g} (p = {p:.1g}; by chance ")
    assert p <= 0.01


@pytest.fixture
def one_generator(tmp_path):
    """Embeddings of five classes, as many of the same, and of four of them; with the classes of each."""
    rng = np.random.default_rng(0)
    centers, classes = 5 * np.eye(5), np.arange(200) % 5
    for name, of in {"a": classes, "b": classes, "fewer": classes % 4}.items():
        np.save(tmp_path / f"{name}.npy", (centers[of] + rng.normal(size=(200, 5))).astype("float32"))
    np.save(tmp_path / "classes.npy", classes)
    return tmp_path


@pytest.mark.parametrize("options", [["--prompts", "{place}/classes.npy"], []])
def test_two_sets_of_one_generator_give_no_evidence_of_a_difference(one_generator, genmonitor, options):
    arguments = ["disagreement", one_generator / "a.npy", one_generator / "b.npy", "--json", "--out", one_generator]
    _, said, _ = genmonitor(*arguments, *(option.format(place=one_generator) for option in options))
    result = json.loads(said)
    assert result["finding"].startswith("No evidence of a difference between a.npy and b.npy (p = ")
    assert result["values"]["total"] == pytest.approx(result["values"]["baseline_total"], rel=0.5)
    assert {mode["only in"] for mode in result["modes"]} == {"(chance)"}


@pytest.mark.parametrize("options", [["--prompts", "{place}/classes.npy"], []])
def test_a_class_that_one_set_lacks_is_found(one_generator, genmonitor, options):
    arguments = ["disagreement", one_generator / "a.npy", one_generator / "fewer.npy", "--json", "--out", one_generator]
    _, said, _ = genmonitor(*arguments, *(option.format(place=one_generator) for option in options))
    result = json.loads(said)
    assert result["values"]["p"] <= 0.01
    assert result["values"]["total"] > 1.2 * result["values"]["baseline_total"]
    assert result["modes"][0]["only in"] == "a.npy"


def test_disagreement_without_prompts_draws_images_of_both(classes, genmonitor, tmp_path):
    status, _, complaint = genmonitor("disagreement", classes / "a", classes / "b", "--out", tmp_path)
    assert status == 0, complaint
    assert (tmp_path / "genmonitor" / "disagreement_modes.png").is_file()


def test_disagreement_takes_prompts_of_either_side(classes, genmonitor, tmp_path):
    images = read_images(str(classes / "b"))[:20]
    np.save(tmp_path / "fewer.npy", images.numpy())
    (tmp_path / "own.txt").write_text("".join(f"{'a bird' if i % 3 == 2 else 'a cat'}\n" for i in range(20)))
    arguments = ("disagreement", classes / "a", tmp_path / "fewer.npy", "--prompts", classes / "prompts.txt", "--json")
    status, said, complaint = genmonitor(*arguments, "--other-prompts", tmp_path / "own.txt", "--out", tmp_path / "out")
    assert status == 0, complaint
    assert {row["prompt"] for row in json.loads(said)["prompts"]} >= {"a dog", "a bird"}


def test_disagreement_without_a_common_prompt_is_refused(classes, genmonitor, tmp_path):
    (tmp_path / "own.txt").write_text("a boat\n" * 36)
    arguments = ("disagreement", classes / "a", classes / "b", "--prompts", classes / "prompts.txt", "--out", tmp_path)
    status, _, complaint = genmonitor(*arguments, "--other-prompts", tmp_path / "own.txt")
    assert status == 2
    assert "Expected prompts that both sides have, but " in complaint
    assert "--text-encoder" in complaint


def test_disagreement_of_a_set_with_itself_is_none(classes, genmonitor, tmp_path):
    arguments = ("disagreement", classes / "a", classes / "a", "--prompts", classes / "prompts.txt", "--out", tmp_path)
    status, said, complaint = genmonitor(*arguments)
    assert status == 0, complaint
    assert said.startswith("No evidence of a difference between ")
    assert "in the order of their paths, 'a cat' to 00.png, 'a dog' to 01.png." in " ".join(said.split())


def test_disagreement_may_be_at_a_single_prompt(classes, genmonitor, tmp_path):
    (tmp_path / "one.txt").write_text("a cat\n" * 36)
    arguments = ("disagreement", classes / "a", classes / "b", "--prompts", tmp_path / "one.txt", "--json")
    status, said, complaint = genmonitor(*arguments, "--out", tmp_path / "out")
    assert status == 0, complaint
    assert [row["prompt"] for row in json.loads(said)["prompts"]] == ["a cat"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("{place}/a nothing", "there is no nothing"),
        ("{place}/a {place}/b --other-prompts {place}/prompts.txt", "Expected --prompts with --other-prompts"),
        ("{place}/a {place}/b --eta 0", "--eta: expected a number above 0"),
    ],
)
def test_disagreement_refuses_at_the_door(classes, genmonitor, arguments, complaint):
    status, said, complained = genmonitor("disagreement", *arguments.format(place=classes).split())
    assert (status, said) == (2, "")
    assert complaint in complained
