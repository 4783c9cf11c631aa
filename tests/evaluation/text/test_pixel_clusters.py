# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor import PixelPartition
from genmonitor.evaluation.text.pixel_clusters import (
    ABOUT,
    charts,
    largest_contributor,
    message,
    regressed,
    share_name,
    table,
)

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]))
BASELINE = dict.fromkeys(("image", "product", "cluster_1", "cluster_2", "constant"), (0.97, 0.98, 0.99))
BAD = {
    "image": 0.9,
    "product": 0.91,
    "cluster_1": 0.98,
    "cluster_2": 0.92,
    "constant": 1.0,
    "share_1": 0.2,
    "share_2": 0.8,
    "share_constant": 0.0,
}


@pytest.mark.parametrize(("region", "share"), [("cluster_2", "share_2"), ("constant", "share_constant")])
def test_share_name_is_that_of_its_region(region, share):
    assert share_name(region) == share


def test_largest_contributor_has_the_largest_share():
    assert largest_contributor(BAD, PARTITION) == ("cluster_2", 0.8)


def test_region_message_says_the_finding_first():
    said = message(BAD | {"epoch": 3.0}, PARTITION, BASELINE)
    assert said.startswith(
        "cluster_2 (upper right) contributes 80 % of the loss: CMS 0.9200, baseline 0.9700 or more; image: CMS 0.9"
    )
    assert said.endswith("product of the regions 0.9100 (epoch 3)")


def test_region_message_of_a_comparison_names_no_epoch():
    assert "epoch" not in message(BAD, PARTITION, BASELINE)


def test_region_message_says_that_all_is_well():
    good = BAD | dict.fromkeys(("image", "cluster_1", "cluster_2"), 0.98)
    assert message(good, PARTITION, BASELINE).startswith("Every region reaches its baseline; image: CMS 0.98")


def test_regressed_says_what_when_and_against_what():
    alert = regressed("cms", "cluster_2", BAD | {"epoch": 40.0}, (0.997, 0.998, 1.0), PARTITION)
    assert alert.title == "cms: cluster_2 regressed"
    assert alert.text == "cluster_2 (upper right) regressed: CMS 0.9200 at epoch 40, baseline 0.9970 or more."


def rows(said):
    return [line.split() for line in said.splitlines() if line.startswith(("cluster_", "constant"))]


def test_region_table_has_the_largest_contributor_first():
    assert [row[0] for row in rows(table([BAD], PARTITION, BASELINE))] == ["cluster_2", "cluster_1", "constant"]


def test_region_table_counts_sites_and_names_the_band():
    assert rows(table([BAD], PARTITION, BASELINE))[1] == [
        *("cluster_1", "4", "0.9800", "0.9700..0.9900"),
        *("left", "half", "20", "%"),
    ]


def test_region_table_says_when_each_was_best():
    history = [BAD | {"epoch": 0.0, "cluster_2": 0.95}, BAD | {"epoch": 1.0}]
    assert rows(table(history, PARTITION, BASELINE))[0][-4:] == ["0.9500", "at", "epoch", "0"]


@pytest.mark.parametrize(
    ("record", "of", "title"),
    [
        (BAD, "", "CMS by region (largest"),
        (BAD, "9 images", "CMS by region, 9 images (largest"),
        (BAD | {"epoch": 4.0}, "", "CMS by region, epoch 4 (largest"),
    ],
)
def test_region_table_title(record, of, title):
    assert table([record], PARTITION, BASELINE, of).splitlines()[1].startswith(title)


def test_region_charts_name_known_values():
    named = {name for names in charts(list(PARTITION.regions())).values() for name in names}
    assert named <= BAD.keys() | {"sampling_seconds", "metric_seconds"}


def test_region_values_are_all_explained():
    known = [name.removesuffix("…") for name in ABOUT]
    assert all(
        any(name.startswith(prefix) for prefix in known) for name in [*BAD, "mmd", "violations", "baseline_image"]
    )
