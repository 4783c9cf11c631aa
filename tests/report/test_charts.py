# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch
from _helpers.runs import LABELS, check, make_run, write_check

from genmonitor.report.charts import charts_of, map_of, region_rows
from genmonitor.report.run import read_run


@pytest.fixture
def monitored(tmp_path):
    ((found,), _) = read_run(make_run(tmp_path, checks=3))
    return found


def test_charts_are_those_the_monitor_asked_for_then_one_for_each_other_value(monitored):
    charts = {chart["title"]: chart for chart in charts_of(monitored)}
    assert {title: [s["name"] for s in chart["series"]] for title, chart in charts.items()} == {
        "CMS per cluster": ["cluster_1", "cluster_2", "constant"],
        "CMS of image and product": ["image", "product"],
        "Share of the loss": ["share_1", "share_2", "share_constant"],
        "Seconds per check": ["sampling_seconds", "metric_seconds"],
        "violations": ["violations"],
        "mmd": ["mmd"],
    }
    kinds = {title: (chart["kind"], chart["scale"]) for title, chart in charts.items()}
    assert kinds["CMS per cluster"] == kinds["CMS of image and product"] == ("lines", "cms")
    assert kinds["Share of the loss"] == ("stack", "linear")
    assert kinds["mmd"] == ("lines", "linear")
    assert charts["mmd"]["note"].endswith("lower is better")


def test_a_curve_carries_its_values_its_region_and_its_yardstick(monitored):
    one, two, constant = charts_of(monitored)[0]["series"]
    assert two["values"] == [check(n)["cluster_2"] for n in (1, 2, 3)]
    assert [s["region"] for s in (one, two, constant)] == [1, 2, 0]
    assert [s["band"] for s in (one, two, constant)] == [[0.95, 0.97, 0.99], [0.96, 0.97, 0.98], None]


def test_a_value_that_is_missing_or_not_finite_is_a_gap(tmp_path):
    folder = make_run(tmp_path, checks=2)
    write_check(folder, 1, check=check(1, cluster_1=float("nan")))
    without = {name: value for name, value in check(2).items() if name != "mmd"}
    write_check(folder, 2, check=without)
    write_check(folder, 3, check=check(3, fid=12.0))
    ((monitored,), _) = read_run(folder)
    charts = {chart["title"]: chart["series"][0]["values"] for chart in charts_of(monitored)}
    assert charts["CMS per cluster"] == [None, 0.9, 0.9]
    assert charts["mmd"][1] is None
    assert charts["fid"] == [None, None, 12.0]


def test_several_checks_in_an_epoch_are_drawn_by_step(tmp_path):
    folder = make_run(tmp_path, checks=2)
    write_check(folder, 3, check=check(3, epoch=1))
    ((monitored,), _) = read_run(folder)
    assert {(chart["by"], *chart["x"]) for chart in charts_of(monitored)} == {("step", 9, 19, 29)}


def test_the_map_covers_each_regions_sites_and_no_other(monitored):
    drawn = map_of(monitored)
    assert (drawn["height"], drawn["width"]) == (3, 4)
    for region in drawn["regions"]:
        mask = torch.zeros(3, 4, dtype=torch.bool)
        for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", region["path"]):
            mask[int(y), int(x) : int(x) + int(run)] = True
        assert torch.equal(mask, region["region"] == LABELS)
        x, y = map(int, region["at"])
        assert LABELS[y, x] == region["region"]


def test_the_table_puts_the_most_to_blame_first(monitored):
    rows = region_rows(monitored)
    shares = [row["share"] for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert {row["name"]: row["sites"] for row in rows} == {"cluster 1": 6, "cluster 2": 4, "constant": 2}
    (two,) = (row for row in rows if row["region"] == 2)
    assert (two["best"], two["best_epoch"]) == (check(3)["cluster_2"], 2)
