# SPDX-License-Identifier: Apache-2.0
import json
from types import SimpleNamespace

import pytest
import torch

from genmonitor import PixelPartition
from genmonitor.evaluation.data.images import fingerprint
from genmonitor.evaluation.regions.clustering import Stability
from genmonitor.evaluation.regions.saved import SKETCH, SavedRegions, load_partition, save_regions, saved_regions

COLUMNS = PixelPartition.grid((4, 6), 1, 2)
SETTINGS = {"n_clusters": 2, "gamma": None, "kernel": "GaussianKernel"}


def saved(folder, linkage="average"):
    stability = {"overall": 0.9, "cluster_1": 0.8, "cluster_2": 0.7}
    told = {"stability_by_name": lambda: stability, "sketch": ("a", "b")}
    regions = SimpleNamespace(partition=COLUMNS, linkage=linkage, **told)
    save_regions(regions, SETTINGS, folder / "cms_partition.npz")
    return folder / "cms_partition.npz"


def test_saved_regions_are_read_again(tmp_path):
    path = saved(tmp_path)
    again = saved_regions(path)
    assert (again.partition, again.linkage, again.path) == (COLUMNS, "average", path)
    assert again.stability == Stability(0.9, {1: 0.8, 2: 0.7})
    assert again.sketch == ("a", "b")


def sketch_of(numbers):
    return tuple(sorted(fingerprint(torch.tensor([number])) for number in numbers)[:SKETCH])


@pytest.mark.parametrize(
    ("numbers", "size", "fits"),
    [
        (range(800), (4, 6), True),
        (range(200, 1000), (4, 6), True),  # another split of the same data
        (range(800, 1600), (4, 6), False),
        (range(800), (6, 4), False),
        ([], (4, 6), False),
    ],
)
def test_saved_regions_fit_splits_of_the_same_data(tmp_path, numbers, size, fits):
    earlier = SavedRegions(tmp_path, SETTINGS, COLUMNS, "average", None, sketch_of(range(800)))
    assert earlier.fits(sketch_of(numbers), size, SETTINGS) == fits


@pytest.mark.parametrize("settings", [SETTINGS | {"n_clusters": 3}, SETTINGS | {"gamma": 1.0}, {}])
def test_saved_regions_of_other_settings_do_not_fit(tmp_path, settings):
    earlier = saved_regions(saved(tmp_path))
    assert earlier.fits(("a", "b"), (4, 6), SETTINGS)
    assert not earlier.fits(("a", "b"), (4, 6), settings)


def test_regions_that_were_given_are_not_taken_for_found_ones(tmp_path):
    assert saved_regions(saved(tmp_path, linkage=None)) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": 3}', '{"linkage": "average", "stability": 1}'])
def test_damaged_regions_are_left(tmp_path, content):
    path = saved(tmp_path)
    path.with_suffix(".json").write_text(content)
    assert saved_regions(path) is None
    path.with_suffix(".json").write_text(
        json.dumps({"settings": SETTINGS, "linkage": "average", "stability": {}, "images": []})
    )
    assert saved_regions(path).stability is None
    path.write_bytes(b"no partition")
    assert saved_regions(path) is None


def test_load_partition_takes_a_file_or_a_runs_folder(tmp_path):
    (tmp_path / "genmonitor").mkdir()
    path = saved(tmp_path / "genmonitor")
    assert load_partition(path) == load_partition(str(tmp_path)) == load_partition(path.parent) == COLUMNS


def test_load_partition_refuses_none_and_several(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is none at"):
        load_partition(tmp_path / "missing.npz")
    with pytest.raises(ValueError, match=r"a folder with one partition\.npz, but .* has none"):
        load_partition(tmp_path)
    COLUMNS.save(tmp_path / "a_partition.npz")
    COLUMNS.save(tmp_path / "b_partition.npz")
    with pytest.raises(ValueError, match=r"a_partition\.npz, .*b_partition\.npz"):
        load_partition(tmp_path)
