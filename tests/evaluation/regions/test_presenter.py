# SPDX-License-Identifier: Apache-2.0

import pytest
import torch

from genmonitor import PixelPartition
from genmonitor.evaluation.regions.findings import RegionFindings
from genmonitor.evaluation.regions.presenter import plain_table, region_data

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]))
FINDINGS = RegionFindings.of(PARTITION)
BAD = {"image": 0.9, "product": 0.91, "p_image": 0.005, "error_ratio_image": 5.0}
for name, (p, error) in {"1": (0.32, 1.5), "2": (0.005, 12.4), "constant": (1.0, 1.0)}.items():
    BAD |= {f"p_{name}": p, f"error_ratio_{name}": error, f"share_{name}": 0.2 if name == "1" else 0.4}
BAD |= {"cluster_1": 0.98, "cluster_2": 0.92, "constant": 1.0}
UNTESTED = {name: value for name, value in BAD.items() if name[:2] != "p_"}


def found(record):
    return FINDINGS.find([record])


def rows(said):
    return [line.split() for line in said.splitlines() if line.startswith(("cluster_", "constant"))]


def test_table_has_the_most_different_first():
    assert [row[0] for row in rows(plain_table(found(BAD), BAD, PARTITION))] == ["cluster_2", "cluster_1", "constant"]


def test_table_row():
    _, said, constant = rows(plain_table(found(BAD), BAD, PARTITION))
    assert " ".join(said) == "cluster_1 4 0.9800 1.5 × 20 % left half no evidence of a difference (p = 0.32)"
    assert constant[3] == "–"  # no error ratio of pixels that never vary


@pytest.mark.parametrize(("record", "title"), [(BAD, "Regions"), (BAD | {"epoch": 4.0}, "Regions, epoch 4")])
def test_table_title(record, title):
    assert plain_table(found(record), record, PARTITION).splitlines()[1] == title


def test_regions_are_plain_data():
    data = region_data(found(BAD), BAD, PixelPartition(PARTITION.labels, patch_size=4))
    assert list(data) == ["cluster_2", "cluster_1", "constant"]
    assert data["cluster_2"] == {
        "label": 2,
        "sites": 1,
        "pixels": 16,
        "where": "upper right",
        "cms": 0.92,
        "error_ratio": 12.4,
        "share": 0.4,
        "p_value": 0.005,
        "differs": True,
        "verdict": "differs (p = 0.005)",
    }
    untested = region_data(found(UNTESTED), UNTESTED, PARTITION)
    assert {(of["p_value"], of["differs"], of["verdict"]) for of in untested.values()} == {(None, None, "not tested")}
