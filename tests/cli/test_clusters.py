# SPDX-License-Identifier: Apache-2.0
import json
import re

import numpy as np
import pytest

from genmonitor import PixelPartition


@pytest.fixture
def out(files, genmonitor, tmp_path):
    """The exit status of finding two clusters, what was said, and the folder."""
    status, said, _ = genmonitor("clusters", files[0], "--n-clusters", 2, "--out", tmp_path / "out")
    return status, said, tmp_path / "out"


def test_clusters_says_how_many_sites_each_has(out):
    status, said, _ = out
    assert status == 0
    rows = [re.findall(r"(cluster_\d) +(\d+) +([\d.]+)  (.*)", line) for line in said.splitlines()]
    found = sorted(row[0][1:] for row in rows if row)
    assert found == [("12", "1.00", "left half"), ("12", "1.00", "right half")]


def test_clusters_draws_a_map_and_says_how_stable_they_are(out):
    lines = out[1].splitlines()
    assert lines[0] == "2 clusters by average linkage in 300 images."
    assert lines[1].startswith("Stability 1.00: ")
    left = lines[3][0]
    assert [line[:12] for line in lines[3:7]] == [6 * left + 6 * "21"[left == "2"]] * 4
    assert "lopsided" not in out[1]


def test_clusters_in_noise_are_warned_of(genmonitor, tmp_path):
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).random((60, 6, 6), dtype=np.float32))
    _, said, _ = genmonitor("clusters", tmp_path / "noise.npy", "--n-clusters", 3, "--out", tmp_path / "out")
    assert "The regions are unstable" in said or "regions are lopsided" in said
    assert "PixelPartition.grid" in said


def test_clusters_are_the_same_in_any_order_of_the_images(genmonitor, tmp_path, files):
    images = np.load(files[0])
    np.save(tmp_path / "turned.npy", images[::-1])
    said = [
        genmonitor("clusters", path, "--out", tmp_path / "out", "--json")[1]
        for path in (files[0], tmp_path / "turned.npy")
    ]
    first, second = map(json.loads, said)
    assert (first["labels"], first["stability"]) == (second["labels"], second["stability"])


def test_clusters_finds_the_halves(out):
    labels = PixelPartition.load(out[2] / "partition.npz").labels
    assert len(labels[:, :3].unique()) == len(labels[:, 3:].unique()) == 1


def test_clusters_writes_and_names_its_files(out):
    _, said, folder = out
    paths = {line for line in said.splitlines() if line.startswith(str(folder))}
    assert paths == {str(path) for path in folder.iterdir()}
    assert {path.suffix for path in folder.iterdir()} == {".npz", ".png"}


def test_clusters_as_json_holds_the_labels(files, genmonitor, tmp_path):
    _, said, _ = genmonitor("clusters", files[0], "--n-clusters", 2, "--out", tmp_path / "out", "--json")
    labels = PixelPartition.load(tmp_path / "out" / "partition.npz").labels
    assert json.loads(said)["labels"] == labels.tolist()


def test_clusters_takes_no_more_images_than_asked(files, genmonitor, tmp_path):
    options = ["--n-clusters", 2, "--n-images", 50, "--json"]
    _, said, _ = genmonitor("clusters", files[0], *options, "--out", tmp_path / "out")
    assert json.loads(said)["images"] == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-clusters", "99"], "`n_clusters` of at most 24"),
        (["--n-clusters", "0"], "--n-clusters: expected a whole number of at least 1, but got 0"),
        (["--patch-size", "4"], "`patch_size` to divide the size 4×6"),
        (["--patch-size", "0"], "--patch-size: expected a whole number of at least 1, but got 0"),
        (["--n-images", "-5"], "--n-images: expected a whole number of at least 4, but got -5"),
        (["--size", "0"], "--size: expected a whole number of at least 1, but got 0"),
        (["--out", ""], "--out: expected a path, but got an empty one"),
    ],
)
def test_clusters_refuses(files, genmonitor, tmp_path, options, message):
    status, said, complaint = genmonitor("clusters", files[0], "--out", tmp_path / "out", *options)
    assert (status, said) == (2, "")
    assert message in complaint
    assert not (tmp_path / "out").exists()


def test_clusters_refuses_an_empty_path(genmonitor):
    status, _, complaint = genmonitor("clusters", "")
    assert status == 2
    assert "argument IMAGES: expected a path, but got an empty one" in complaint


def test_clusters_as_json_says_how_large_and_where_each_region_is(files, genmonitor, tmp_path):
    _, said, _ = genmonitor(
        "clusters", files[0], "--n-clusters", 2, "--patch-size", 2, "--out", tmp_path / "out", "--json"
    )
    regions = json.loads(said)["regions"]
    assert list(regions) == ["cluster_1", "cluster_2"]
    assert [of["label"] for of in regions.values()] == [1, 2]
    assert sum(of["sites"] for of in regions.values()) == 6
    assert sum(of["pixels"] for of in regions.values()) == 24
    assert all(-1 <= of["stability"] <= 1 and of["where"] for of in regions.values())


def test_clusters_are_a_map_of_characters_with_a_line_for_each(files, genmonitor, tmp_path):
    status, said, _ = genmonitor("clusters", files[0], "--n-clusters", 2, "--out", tmp_path / "out")
    assert status == 0
    assert said.startswith("2 clusters by average linkage in 300 images.\n")
    assert re.search(r"cluster_1 +12 +1.00 +(left|right) half", said)
    assert re.search(r"^(1+2+|2+1+)  ", said, re.MULTILINE)
