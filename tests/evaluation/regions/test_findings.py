# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor import PixelPartition
from genmonitor.evaluation.regions.findings import UNTESTED, RegionFindings
from genmonitor.evaluation.regions.presenter import region_data
from genmonitor.findings.finding import Area, FaultKind, Finding, verdict_of

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]))
FINDINGS = RegionFindings.of(PARTITION)
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
    "p_1": 0.32,
    "p_2": 0.005,
    "p_constant": 1.0,
    "structure_image": 20.0,
    "structure_1": 1.0,
    "structure_2": 50.0,
    "structure_constant": 0.0,
}
GOOD = BAD | {"p_image": 0.4, "p_2": 0.21}


def verdicts(records):
    found = FINDINGS.find(records)
    return {name: verdict_of(found, name) for name in PARTITION.regions()}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "cluster_2"),
        ({"p_2": 0.21}, None),
        ({"p_1": 0.005}, "cluster_2"),  # as small a p-value, but a smaller error
        ({"p_1": 0.001}, "cluster_2"),  # the surer, but of a smaller error
        ({"p_1": 0.005, "p_2": 0.06}, "cluster_1"),  # the only one that differs
        ({"p_2": 0.05}, "cluster_2"),
        ({"p_2": 0.055}, None),
    ],
)
def test_most_different_region(change, expected):
    first = FINDINGS.find([BAD | change])[0]
    assert (first.area.name if first.measure != "image" else None) == expected


@pytest.mark.parametrize(
    ("record", "fine", "area", "expected"),
    [
        (
            BAD,
            False,
            "cluster_2",
            "cluster_2 (upper right) differs from real images: error ratio 12 × (p = 0.005).",
        ),
        (
            BAD | {"p_1": 0.02},
            False,
            "cluster_2",
            "cluster_2 (upper right) differs from real images: error ratio 12 × (p = 0.005). 2 of 3 regions differ.",
        ),
        (
            BAD | {"p_1": 0.02, "p_constant": 0.01},
            False,
            "cluster_2",
            "cluster_2 (upper right) differs from real images: error ratio 12 × (p = 0.005). All 3 regions differ.",
        ),
        (
            GOOD | {"p_constant": 0.005, "error_ratio_constant": 0.01},  # of the image's error, which says little here
            False,
            "constant",
            "constant (pixels that never vary) differs from real images (p = 0.005).",
        ),
        (GOOD, True, "image", "No evidence of a difference from real images in any region (smallest p = 0.21)."),
        (GOOD | {"p": 0.4}, True, "image", "No evidence of a difference from real images in any region (p = 0.4)."),
        (
            GOOD | {"p": 1e-9, "p_finding": 1e-10},  # of copies, say
            True,
            "image",
            "No evidence of a difference from real images in any region (smallest p = 0.21).",
        ),
        (
            GOOD | {"p_image": 0.01},
            False,
            "image",
            "Whole images differ from real ones (p = 0.01), though there is no evidence of a difference in any one "
            "region.",
        ),
        ({name: value for name, value in BAD.items() if name[:2] != "p_"}, None, "image", UNTESTED),
    ],
)
def test_verdict_on_an_evaluation(record, fine, area, expected):
    found = FINDINGS.find([record])[0]
    assert (str(found), found.fine, found.area.region) == (expected, fine, area)


@pytest.mark.parametrize(("p", "since"), [(0.3, " since epoch 2"), (0.01, " at every evaluation so far")])
def test_verdict_says_since_when(p, since):
    records = [BAD | {"epoch": float(epoch), "p_2": p if epoch < 2 else 0.005} for epoch in range(4)]
    found = FINDINGS.find(records)[0]
    assert str(found).startswith(f"cluster_2 (upper right) differs from real images{since}: ")
    assert found.since == (2.0 if p == 0.3 else 0.0)


def test_verdicts_of_a_first_evaluation_are_about_real_images_alone():
    assert verdicts([BAD]) == {
        "cluster_1": "no evidence of a difference (p = 0.32)",
        "cluster_2": "differs (p = 0.005)",
        "constant": "no evidence of a difference (p = 1)",
    }


def test_nothing_differs_where_all_tests_together_claim_nothing():
    """The headline, the rows of the table and their order agree."""
    record = BAD | {"p": 0.066, "p_1": 0.022, "p_2": 0.3, "p_constant": 0.9}
    found = FINDINGS.find([record])
    assert [x.fine for x in found] == [True] * 4
    assert [x.area.region for x in found[1:]] == ["cluster_2", "cluster_1", "constant"]
    assert verdicts([record])["cluster_1"] == "no evidence of a difference (p = 0.022)"
    data = region_data(found, record, PARTITION)
    assert {name: of["differs"] for name, of in data.items()} == dict.fromkeys(data, False)


def test_findings_of_regions_have_the_most_different_first():
    found = [x.area.region for x in FINDINGS.find([BAD])[1:]]
    assert found == ["cluster_2", "cluster_1", "constant"]


def test_findings_are_plain_data():
    kinds = (FaultKind("blurred", 1.1, "px", 0.77),)
    found = Finding("Blurred.", Area("image"), "blurred", None, False, 0.005, 3.0, kinds, (1, 4))
    assert Finding.from_dict(found.to_dict()) == found
    assert all(Finding.from_dict(x.to_dict()) == x for x in FINDINGS.find([BAD]))
