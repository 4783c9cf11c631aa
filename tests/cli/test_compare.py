# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import functools
import io
import json
import re
import shutil
from dataclasses import fields

import numpy as np
import pytest
import torch
from _helpers.evaluations import halves
from _helpers.runs import make_run, manifests, table_rows
from PIL import Image

from genmonitor import PixelPartition
from genmonitor.cli import main
from genmonitor.cli.compare import add_arguments
from genmonitor.evaluation import RegionSettings
from genmonitor.functional import cosine_mean_similarity
from genmonitor.kernels import GaussianKernel
from genmonitor.report.run import MonitorRun

NOT_OFFERED = {"kernel", "region_names"}
"""Settings of `genmonitor.compare` that its command leaves at their defaults."""


def test_compare_offers_every_setting_but_those_named():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    offered = {action.dest: action for action in parser._actions}
    declared = {field.name: field for field in fields(RegionSettings)}
    assert declared.keys() - offered == NOT_OFFERED
    for name in declared.keys() & offered:
        assert offered[name].default is None  # that of the settings holds
        assert offered[name].help.startswith(declared[name].metadata["help"])
    for name in ("n_samples", "seed"):
        assert f"(default: {declared[name].default})" in offered[name].help


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Files of real images, of generated ones whose right half is too dark, and of others without a fault."""
    place = tmp_path_factory.mktemp("sets")
    np.save(place / "real.npy", halves(300, 1).numpy())
    np.savez(place / "fake.npz", images=halves(120, 2, dark=0.6).numpy())
    np.save(place / "light.npy", halves(120, 3).numpy())
    PixelPartition.grid((4, 6), 1, 2).save(place / "columns.npz")
    return place


@pytest.fixture(scope="module")
def comparing(sets, tmp_path_factory):
    """Return a function that compares files of `sets`, once for the same words; it returns what is said, the folder."""

    @functools.cache
    def run(words, columns=200):
        out = tmp_path_factory.mktemp("compared")
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
            patch.chdir(sets)
            patch.setattr("genmonitor.findings.tables.terminal_width", lambda: columns)
            assert main(["compare", "real.npy", "fake.npz", *words.split(), "--out", str(out)]) == 0
        return said.getvalue(), out / "genmonitor"

    return run


@pytest.fixture(scope="module")
def compared(comparing):
    """What `compare` says of images whose right half is too dark, and the folder that it writes."""
    return comparing("--n-clusters 2")


@pytest.fixture(scope="module")
def as_json(comparing):
    """The same as JSON holds it, and the folder."""
    said, folder = comparing("--n-clusters 2 --json")
    return json.loads(said), folder


def test_compare_names_the_dark_half_first(compared):
    said, folder = compared
    partition = PixelPartition.load(folder / "cms_partition.npz")
    dark = int(partition.labels[0, 5])
    assert (partition.labels[:, 3:] == dark).all()
    finding, *rows = [line.split() for line in said.splitlines() if line.startswith("cluster_")]
    assert re.match(
        r"Right half, 3×4 px: contrast − [34]\d %; explains \d+ % of what is wrong there \(p = 0.001\)\.\n", said
    )
    assert re.search(
        rf"^cluster_{dark} \(right half\) differs from real images: error ratio [\d.]+ × \(p = 0.001\)", said, re.M
    )
    assert finding[0] == rows[0][0] == f"cluster_{dark}"
    assert float(rows[0][3]) > 1.5
    assert rows[0][7:9] == ["right", "half"]


def test_compare_says_which_images_served_for_what(compared):
    said, folder = compared
    split = "300 real images: 180 for the regions and the baseline, 120 compared with 120 generated ones."
    assert split in said.splitlines()[1:6]  # after the findings
    assert split in (folder / "report.html").read_text()


def test_compare_writes_the_report_and_says_where(compared):
    said, folder = compared
    assert f"Report: {folder / 'report.html'}\n" in said
    assert (folder / "report.html").is_file()


def test_compare_report_shows_pictures_and_names_both_sets(compared):
    page = (compared[1] / "report.html").read_text()
    assert not pictures_on(compared[1] / "report.html")  # the page draws all of them itself, in the dark too
    assert "the strangest samples" in page
    assert "real.npy" in page
    assert "fake.npz" in page


def test_compare_speaks_of_no_epoch(compared):
    said, folder = compared
    page = (folder / "report.html").read_text()
    shown = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.S)
    assert "epoch" not in said + shown


def test_compare_as_json_holds_the_metrics_own_values(as_json):
    result, folder = as_json
    assert result["n_samples"] == 120
    real = halves(300, 1)[torch.randperm(300, generator=torch.Generator().manual_seed(0))[:120]]
    values = cosine_mean_similarity(
        halves(120, 2, dark=0.6),
        real,
        kernel=GaussianKernel(result["gamma"]),
        partition=PixelPartition.load(folder / "cms_partition.npz"),
    )
    expected = {name: float(value) for name, value in values.items()}  # of images in another order: float32 rounds them
    expected["dependent_regions"] = expected.pop("violations")
    assert {name: result["values"][name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_compare_leaves_a_manifest_of_its_values(as_json):
    result, folder = as_json
    (manifest,) = manifests(folder)
    assert manifest["values"] == result["values"]
    assert manifest["monitor"] == "compare"


def test_compare_takes_a_partition(comparing, sets):
    PixelPartition.grid((4, 6), 2, 1).save(sets / "rows.npz")
    values = json.loads(comparing("--partition rows.npz --json")[0])["values"]
    assert values["share_1"] == pytest.approx(0.5, abs=0.1)  # upper and lower half are equally wrong


def pictures_on(page):
    return set(re.findall(r'<img[^>]* alt="([^"]+)"', page.read_text()))


def test_compare_removes_what_an_earlier_one_left(comparing, sets, genmonitor, tmp_path):
    _, earlier = comparing("light.npy --n-clusters 2")
    folder = shutil.copytree(earlier, tmp_path / "genmonitor")
    assert not pictures_on(folder / "report.html")
    assert table_rows(folder, "cms", "which is closer")
    names = [sets / name for name in ("real.npy", "fake.npz")]
    assert genmonitor("compare", *names, "--partition", sets / "columns.npz", "--out", tmp_path)[0] == 0
    assert "the strangest samples" in (folder / "report.html").read_text()
    assert MonitorRun.read(folder / "cms_run.json").tables == {}


def test_compare_does_not_write_over_a_training_run(files, genmonitor, tmp_path):
    folder = make_run(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    status, _, complaint = genmonitor("compare", *files, "--n-clusters", 2, "--out", tmp_path / "run")
    assert status == 2
    assert "holds a training run's files" in complaint
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.fixture
def places(files, tmp_path):
    """Files that do not go together, by name."""
    np.save(tmp_path / "other.npy", np.zeros((9, 1, 3, 3), dtype=np.float32))
    np.save(tmp_path / "scaled.npy", 255 * halves(50, 3).numpy())
    np.save(tmp_path / "one.npy", halves(1, 3).numpy())
    names = {name: tmp_path / f"{name}.npy" for name in ("other", "scaled", "one")}
    return {"real": files[0], "fake": files[1], **names}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing.npy {fake}", "there is no nothing.npy"),
        ("{real} {other}", "generated images of shape [1, 4, 6] like the real ones, but got [1, 3, 3]"),
        ("{real} {one}", "at least 5 real and 2 generated images, but got 300 and 1"),
        ("{real} {fake} --partition {fake}", "partition.npz of a run"),
        ("{real} {fake} --partition nothing.npz", "nothing.npz"),
        ("{real} {fake} --n-samples 1", "--n-samples: expected a whole number of at least 2, but got 1"),
        ("{real} {fake} --patch-size 0", "--patch-size: expected a whole number of at least 1, but got 0"),
        ("{real} {fake} --patch-size 4", "`patch_size` to divide the size 4×6"),
        ("{real} {fake} --seed -1", "--seed: expected a whole number of at least 0, but got -1"),
        ("{real} {scaled}", "in the value range of the real images"),
        ("{real} {fake} --paired", "Expected `other` with `paired`"),
        ("{real} {fake} {scaled}", "Expected `other` in the value range"),
        ("{real} {fake} {real} --paired", "`fake` and `other` to hold equally many samples"),
        ("{real} {fake} --partition {real}", "partition.npz of a run"),
    ],
)
def test_compare_refuses(places, genmonitor, tmp_path, arguments, message):
    status, said, complaint = genmonitor("compare", *arguments.format(**places).split(), "--out", tmp_path / "out")
    assert (status, said) == (2, "")
    assert message in complaint
    assert "genmonitor compare: " in complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["", "x.npy"], ["x.npy", " "], ["x.npy", "y.npy", "--partition", ""]])
def test_compare_refuses_an_empty_path(genmonitor, arguments):
    status, _, complaint = genmonitor("compare", *arguments)
    assert status == 2
    assert "expected a path, but got an empty one" in complaint


def test_compare_says_first_which_of_two_sets_is_closer(comparing):
    said, folder = comparing("light.npy --n-clusters 2")
    partition = PixelPartition.load(folder / "cms_partition.npz")
    dark, others = int(partition.labels[0, 5]), "; no evidence of a difference in the other"
    closer = r"light.npy is closer to the real images than fake.npz \(p [<=] 0.000\d+\)"
    assert re.match(rf"{closer}, in cluster_{dark} \(p < 0.0001\){others}.\n", said)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert said.splitlines()[0].replace("<", "&lt;") in page
    assert page.index('<table class="closer">') < page.index('<table class="regions" role="table">')
    assert '<th scope="col">light.npy against real</th>' in page
    assert "which is closer</h2>" not in page


@pytest.mark.parametrize("options", ["", " --paired"])
def test_compare_of_two_sets_as_json_holds_the_differences(comparing, options):
    result = json.loads(comparing(f"light.npy --json --partition columns.npz{options}")[0])
    assert result["names"] == ["fake.npz", "light.npy"]
    found = result["differences"]
    assert list(found) == ["image", "cluster_1", "cluster_2"]
    assert found["cluster_2"]["difference"] < -3 * found["cluster_2"]["standard_error"]
    assert found["cluster_2"]["p_value_adjusted"] < 0.001 < 0.05 < found["cluster_1"]["p_value_adjusted"]
    assert result["other_values"]["p_2"] > 0.05 >= result["values"]["p_2"]


def test_compare_tells_sets_of_one_file_name_apart(files, genmonitor, tmp_path):
    (tmp_path / "a").mkdir()
    np.savez(tmp_path / "a" / "fake.npz", images=halves(120, 4).numpy())
    status, said, _ = genmonitor("compare", *files, tmp_path / "a" / "fake.npz", "--out", tmp_path / "out")
    assert status == 0
    first = f"{tmp_path / 'a' / 'fake.npz'} is closer to the real images than {files[1]} (p "
    assert " ".join(said.split()).startswith(first)


ONE, TWO = "--n-clusters 2", "light.npy --n-clusters 2"


def test_compare_of_two_sets_in_a_terminal_says_which_is_closer(comparing):
    said = comparing(TWO, 200)[0]
    assert "light.npy is closer to the real images than fake.npz (p " in said
    assert re.search(r"cluster_\d +12 .*no evidence of a difference", said)


def words(text):
    return set(re.findall(r"[A-Za-z_]+", text))


@pytest.mark.parametrize("words_given", [ONE, TWO], ids=["one", "two"])
def test_compare_on_a_screen_of_70_columns_drops_columns_and_breaks_no_word(comparing, words_given):
    wide, narrow = (comparing(words_given, columns)[0] for columns in (200, 70))
    body = narrow[: narrow.index("Report:")]
    assert max(map(len, body.splitlines())) <= 70
    assert words(body) <= words(wide)  # a part of a word would be a new one
    header = next(line for line in narrow.splitlines() if line.startswith("region"))
    assert " sites" not in header
    assert " sites" in next(line for line in wide.splitlines() if line.startswith("region"))


def test_compare_in_a_pipe_has_a_line_per_region_with_columns_apart(compared):
    said, _ = compared
    lines = said.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("region"))
    assert [len(re.split(r"  +", line)) for line in lines[start : start + 3]] == [7, 7, 7]


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Folders of images by class, of which the generated ones of class b have too little contrast; their labels."""
    place = tmp_path_factory.mktemp("classes")
    for name, seed, count in (("real", 1, 240), ("fake", 2, 100)):
        for number, image in enumerate(halves(count, seed)[:, 0]):
            label = "ab"[number % 2]
            faint = 0.5 if (name, label) == ("fake", "b") else 1.0
            pixels = (255 * (image.mean() + faint * (image - image.mean()))).round().to(torch.uint8)
            (place / name / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.numpy()).save(place / name / label / f"{number}.png")
        np.save(place / f"{name}.npy", np.repeat([0, 1], count // 2))  # in the order of the paths
    return place


def of_classes(capsys, monkeypatch, classes, *words):
    monkeypatch.chdir(classes)
    status = main(["compare", "real", "fake", "--n-clusters", "2", "--out", "out", *words])
    return status, *capsys.readouterr()


def test_compare_names_the_class_that_is_wrong(capsys, monkeypatch, classes):
    status, said, _ = of_classes(capsys, monkeypatch, classes, "--labels", "folders", "--fail-if", "p_class < 0.01")
    assert status == 1
    assert re.match(
        r"Class b: contrast − \d\d % .*p = 0.00\d\)\. No evidence of a difference in the other class\s\(p = ", said
    )
    page = (classes / "out" / "genmonitor" / "report.html").read_text()
    for shown in (said, page):
        assert "Class b: contrast − " in shown
        assert "against real images of the class" in shown


def test_compare_takes_labels_from_files(capsys, monkeypatch, classes):
    words = ("--labels", "fake.npy", "--real-labels", "real.npy", "--json")
    found = json.loads(of_classes(capsys, monkeypatch, classes, *words)[1])
    assert found["finding"].startswith("Class 1: contrast − ")
    assert {label: of["differs"] for label, of in found["classes"].items()} == {"1": True, "0": False}
    assert any("'0' to a/0.png" in note for note in found["notes"])


def test_compare_refuses_labels_of_two_kinds(capsys, monkeypatch, classes):
    status, _, error = of_classes(capsys, monkeypatch, classes, "--labels", "fake.npy", "--real-labels", "folders")
    assert status == 2
    assert "prompts of one kind on both sides" in error


def test_compare_names_copied_training_images(capsys, monkeypatch, tmp_path):
    train, real, fake = torch.rand(900, 1, 4, 6, generator=torch.Generator().manual_seed(0)).split([300, 400, 200])
    fake[50:75] = train[100:125] + 0.001
    for name, images in {"train": train, "real": real, "fake": fake}.items():
        np.save(tmp_path / f"{name}.npy", images.numpy())
    monkeypatch.chdir(tmp_path)
    words = ("--train", "train.npy", "--n-clusters", "2", "--out", "out", "--fail-if", "copied > 0.05")
    assert main(["compare", "real.npy", "fake.npy", *words]) == 1
    said = capsys.readouterr().out
    assert re.match(
        r"Whole image: 1\d % of the images are near copies of the \d+ training images searched \(p < 0.0001\)\.\s"
        r"Copied training images: ",
        said,
    )
    assert "training images searched" in (tmp_path / "out" / "genmonitor" / "report.html").read_text()


@pytest.mark.parametrize(
    ("form", "first", "row"),
    [
        ("csv", "region,sites,CMS,", "cluster_"),
        ("markdown", "| region | sites | CMS |", "| cluster_"),
        ("latex", r"\begin{tabular}{lllllll}", r"cluster\_"),
    ],
)
def test_tables_are_printed_for_other_programs(files, genmonitor, tmp_path, form, first, row):
    arguments = ["compare", *files, "--n-clusters", 2, "--out", tmp_path / "out"]
    status, said, _ = genmonitor(*arguments, "--format", form)
    assert (status, said.startswith(first)) == (0, True)
    assert sum(line.startswith(row) for line in said.splitlines()) == 2
    assert "Report" not in said
