# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from genmonitor import PixelPartition
from genmonitor.evaluation.text.pixel_clusters import (
    ABOUT,
    charts,
    finding,
    message,
    most_different,
    region_findings,
    regressed,
    suffixed,
    table,
    verdicts,
)

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]))
BAD = {
    "image": 0.9,
    "product": 0.91,
    "cluster_1": 0.98,
    "cluster_2": 0.92,
    "constant": 1.0,
    "share_1": 0.2,
    "share_2": 0.8,
    "share_constant": 0.0,
    "error_ratio_image": 5.0,
    "error_ratio_1": 1.5,
    "error_ratio_2": 12.4,
    "error_ratio_constant": 1.0,
    "p_image": 0.005,
    "p_cluster_1": 0.32,
    "p_cluster_2": 0.005,
    "p_constant": 1.0,
}
GOOD = BAD | {"p_image": 0.4, "p_cluster_2": 0.21}


@pytest.mark.parametrize(("region", "name"), [("cluster_2", "share_2"), ("constant", "share_constant")])
def test_suffixed_names_the_value_of_a_region(region, name):
    assert suffixed("share", region) == name


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "cluster_2"),
        ({"p_cluster_2": 0.21}, None),
        ({"p_cluster_1": 0.005}, "cluster_2"),  # as small a p-value, but a smaller error
        ({"p_cluster_1": 0.005, "p_cluster_2": 0.01}, "cluster_1"),
        ({"p_cluster_2": 0.05}, "cluster_2"),
        ({"p_cluster_2": 0.055}, None),
    ],
)
def test_most_different_region(change, expected):
    assert most_different(BAD | change, PARTITION) == expected


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (BAD, "cluster_2 (upper right) differs from real images (p = 0.005, error 12 × that of real images)"),
        (
            BAD | {"p_cluster_1": 0.02},
            "cluster_2 (upper right) differs from real images (p = 0.005, error 12 × that of real images); "
            "2 of 3 regions differ",
        ),
        (GOOD, "No region differs from real images by more than chance (smallest p = 0.21)"),
        (
            GOOD | {"p_image": 0.01},
            "No region differs from real images by itself, but whole images do (p = 0.01)",
        ),
    ],
)
def test_finding_of_an_evaluation(record, expected):
    assert finding(record, PARTITION) == expected


def test_region_message_says_the_finding_first():
    said = message(BAD | {"epoch": 3.0}, PARTITION)
    assert said == (
        "cluster_2 (upper right) differs from real images (p = 0.005, error 12 × that of real images); "
        "image: CMS 0.9000 (p = 0.005, error 5.0 × that of real images), product of the regions 0.9100 (epoch 3)"
    )


def test_region_message_of_a_comparison_names_no_epoch():
    assert "epoch" not in message(BAD, PARTITION)


def test_regressed_says_what_when_and_against_what():
    alert = regressed("cms", "cluster_2", [BAD | {"epoch": 40.0}], p=2e-6, best=17.0, partition=PARTITION)
    assert alert.title == "cms: cluster_2 regressed"
    assert alert.text == (
        "cluster_2 (upper right) regressed: it is worse than at epoch 17, its best (p < 0.0001); at epoch 40 its error "
        "is 12 × that of real images."
    )


@pytest.mark.parametrize(("first", "since"), [(-4.0, 30), (-1.0, 35), (math.nan, 35)])
def test_regressed_says_since_which_evaluation_in_a_row(first, since):
    scores = {20.0: -9.0, 25.0: 0.5, 30.0: first, 35.0: -2.9, 40.0: -8.0}
    records = [BAD | {"epoch": epoch, "vs_best_cluster_2": score} for epoch, score in scores.items()]
    alert = regressed("cms", "cluster_2", records, p=2e-6, best=25.0, partition=PARTITION)
    assert f"regressed: since epoch {since} it is worse than at epoch 25, its best" in alert.text


def test_verdicts_of_a_first_evaluation_are_about_real_images_alone():
    assert verdicts([BAD], PARTITION) == {
        "cluster_1": "indistinguishable (p = 0.32)",
        "cluster_2": "differs (p = 0.005)",
        "constant": "indistinguishable (p = 1)",
    }


def test_a_large_error_that_may_be_chance_is_not_called_indistinguishable():
    large = BAD | {"p_cluster_2": 0.46, "error_ratio_2": 5.8}
    assert verdicts([large], PARTITION)["cluster_2"] == "may be chance (p = 0.46)"
    assert verdicts([large | {"error_ratio_2": 1.9}], PARTITION)["cluster_2"] == "indistinguishable (p = 0.46)"


def test_verdicts_say_what_is_worse_or_better_than_before():
    change = {"vs_best_cluster_1": 5.0, "vs_best_cluster_2": -3.0, "vs_best_constant": float("nan")}
    assert verdicts([BAD, BAD | change], PARTITION) == {
        "cluster_1": "indistinguishable (p = 0.32), better than ever before (p < 0.0001)",
        "cluster_2": "differs (p = 0.005), worse than at its best (p = 0.0027)",
        "constant": "indistinguishable (p = 1)",
    }


def rows(said):
    return [line.split() for line in said.splitlines() if line.startswith(("cluster_", "constant"))]


def test_region_table_has_the_most_different_first():
    assert [row[0] for row in rows(table([BAD], PARTITION))] == ["cluster_2", "cluster_1", "constant"]


def test_region_table_row():
    expected = [
        "cluster_1",
        "4",
        "0.9800",
        "1.5",
        "×",
        "20",
        "%",
        "left",
        "half",
        "indistinguishable",
        "(p",
        "=",
        "0.32)",
    ]
    assert rows(table([BAD], PARTITION))[1] == expected


@pytest.mark.parametrize(
    ("record", "of", "title"),
    [
        (BAD, "", "Regions"),
        (BAD, "9 images", "Regions, 9 images"),
        (BAD | {"epoch": 4.0}, "", "Regions, epoch 4"),
    ],
)
def test_region_table_title(record, of, title):
    assert table([record], PARTITION, of).splitlines()[1] == title


def test_region_charts_name_known_values():
    named = {name for names in charts(list(PARTITION.regions())).values() for name in names}
    later = {f"vs_best_{name}" for name in ("image", *PARTITION.regions())}
    assert named <= BAD.keys() | later | {"sampling_seconds", "metric_seconds"}


def test_region_values_are_all_explained():
    known = [name.removesuffix("…") for name in ABOUT]
    others = ["mmd", "violations", "baseline_image", "vs_best_cluster_1"]
    assert all(any(name.startswith(prefix) for prefix in known) for name in [*BAD, *others])


def test_findings_of_regions_are_plain_data():
    found = region_findings([BAD], PixelPartition(PARTITION.labels, patch_size=4))
    assert list(found) == ["cluster_2", "cluster_1", "constant"]
    assert found["cluster_2"] == {
        "label": 2,
        "sites": 1,
        "pixels": 16,
        "where": "upper right",
        "cms": 0.92,
        "error_ratio": 12.4,
        "share": 0.8,
        "p_value": 0.005,
        "differs": True,
        "verdict": "differs (p = 0.005)",
    }
    untested = region_findings([{name: value for name, value in BAD.items() if name[:2] != "p_"}], PARTITION)
    assert {(of["p_value"], of["differs"], of["verdict"]) for of in untested.values()} == {(None, None, "not tested")}
