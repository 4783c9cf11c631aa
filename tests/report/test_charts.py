# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch
from _helpers.runs import COMPARED, LABELS, SPECS, changed, make_run, record, write_evaluation, write_notes

from genmonitor import PixelPartition
from genmonitor._formatting import LEAST_P
from genmonitor.evaluation.disagreement_findings import DisagreementValues
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.findings.values import ValueSpec
from genmonitor.report.charts import charts_of, map_of, region_rows, value_rows
from genmonitor.report.run import read_run


def read(folder):
    (monitor,) = read_run(folder).monitors
    return monitor


@pytest.fixture
def monitor(tmp_path):
    return read(make_run(tmp_path, evaluations=3))


def test_charts_asked_for_come_before_single_values(monitor):
    charts = {chart["title"]: chart for chart in charts_of(monitor)}
    assert {title: [s["name"] for s in chart["series"]] for title, chart in charts.items()} == {
        "CMS by region": ["cluster_1", "cluster_2", "constant"],
        "CMS of image and product": ["image", "product"],
        "Share of the loss": ["share_1", "share_2", "share_constant"],
        "Seconds per evaluation": ["sampling_seconds", "metric_seconds"],
        "dependent regions": ["dependent_regions"],
        "mmd": ["mmd"],
        "baseline image": ["baseline_image"],
    }
    kinds = {title: (chart["kind"], chart["scale"]) for title, chart in charts.items()}
    assert kinds["CMS by region"] == kinds["CMS of image and product"] == ("lines", "cms")
    assert kinds["Share of the loss"] == ("stack", "linear")
    assert kinds["mmd"] == ("lines", "linear")
    image, product = charts["CMS of image and product"]["series"]
    assert (image["line"], product["line"]) == ("", "dashed")


def test_series_have_values_region_and_baseline(monitor):
    one, two, constant = charts_of(monitor)[0]["series"]
    assert two["values"] == pytest.approx([record(n)["cluster_2"] for n in (1, 2, 3)], abs=1e-7)
    assert [s["region"] for s in (one, two, constant)] == [1, 2, 0]
    assert [s["band"] for s in (one, two, constant)] == [(0.95, 0.97, 0.99), (0.96, 0.97, 0.98), None]


def test_image_has_another_color_than_any_region(tmp_path):
    folder = make_run(tmp_path, evaluations=1)
    ratios = {"error_ratio_image": 2.0, "error_ratio_1": 1.0, "error_ratio_2": 1.0, "error_ratio_constant": 1.0}
    write_evaluation(folder, 1, evaluation=record(1, **ratios))
    colors = {s["name"]: s["color"] for chart in charts_of(read(folder)) for s in chart["series"]}
    assert len({colors[name] for name in ratios}) == len(ratios)


def test_missing_and_nan_values_are_gaps(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    write_evaluation(folder, 1, evaluation=record(1, cluster_1=float("nan")))
    write_evaluation(folder, 2, evaluation={name: value for name, value in record(2).items() if name != "mmd"})
    write_evaluation(folder, 3, evaluation=record(3, fid=12.0, image=float("inf")))
    charts = {chart["title"]: chart["series"][0]["values"] for chart in charts_of(read(folder))}
    assert charts["CMS by region"] == [None, 0.9, 0.9]
    assert charts["CMS of image and product"][1:] == [record(2)["image"], None]
    assert charts["mmd"][1] is None
    assert charts["fid"] == [None, None, 12.0]


def test_several_evaluations_in_an_epoch_are_drawn_by_step(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    write_evaluation(folder, 3, evaluation=record(3, epoch=1))
    assert {(chart["by"], *chart["x"]) for chart in charts_of(read(folder))} == {("step", 9, 19, 29)}


def test_evaluations_without_step_are_counted(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    write_evaluation(folder, 3, evaluation=record(3, epoch=None, step=None))
    write_notes(folder, [(2, "cluster_2 got worse")])
    charts = charts_of(read(folder))
    assert {(chart["by"], *chart["x"]) for chart in charts} == {("evaluation", 1, 2, 3)}
    assert charts[0]["alerts"] == []  # nothing says which of them


def test_map_covers_each_regions_sites_and_no_other(monitor):
    drawn = map_of(monitor)
    assert (drawn["height"], drawn["width"]) == (3, 4)
    for region in drawn["regions"]:
        mask = torch.zeros(3, 4, dtype=torch.bool)
        for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", region["path"]):
            mask[int(y), int(x) : int(x) + int(run)] = True
        assert torch.equal(mask, region["region"] == LABELS)
        x, y = map(int, region["at"])
        assert LABELS[y, x] == region["region"]


def test_region_rows_are_in_the_order_of_the_findings(monitor):
    rows = region_rows(monitor)
    assert [row["region"] for row in rows] == [2, 1, 0]
    assert {row["name"]: row["sites"] for row in rows} == {"cluster 1": 6, "cluster 2": 4, "constant": 2}
    assert [row["verdict"] for row in rows] == [f"verdict on {x}" for x in ("cluster_2", "cluster_1", "constant")]
    assert rows[0]["cells"]["CMS"] == {"value": "0.8333", "baseline": "0.9600 to 0.9800"}
    assert list(rows[0]["cells"]) == ["CMS", "error ratio", "share"]


def test_region_rows_say_where_and_how_stable_each_is(tmp_path):
    folder = make_run(tmp_path, evaluations=1)
    plain = region_rows(read(folder))
    assert [row["where"] for row in plain] == [read(folder).partition.location(row["region"]) for row in plain]
    assert {row["stability"] for row in plain} == {None}
    stability = {"overall": 0.9, "cluster_1": 0.8}
    write_evaluation(folder, 1, evaluation=record(1), stability=stability)
    assert {row["region"]: row["stability"] for row in region_rows(read(folder))} == {0: None, 1: 0.8, 2: None}


def test_region_rows_of_changed_regions_have_gaps(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    PixelPartition(torch.tensor([[1, 2, 3, 3]])).save(folder / "cms_partition.npz")
    rows = {row["region"]: row for row in region_rows(read(folder))}
    assert set(rows) == {1, 2, 3}
    assert (rows[3]["cells"], rows[3]["verdict"]) == ({}, "")
    assert rows[2]["cells"]["CMS"]["value"] == "0.7500"


def test_value_rows_are_those_of_whole_images(tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    values = {name: value for name, value in record(1).items() if name not in ("epoch", "step", "images_seen")}
    write_evaluation(folder, 1, evaluation=values, **COMPARED)
    monitor = read(folder)
    assert monitor.compared
    rows = {row["name"]: row for row in value_rows(monitor)}
    assert {"image", "product", "dependent_regions", "mmd"} <= set(rows)
    assert not set(rows) & {"cluster_1", "share_1"}
    assert (rows["image"]["value"], rows["image"]["baseline"]) == ("0.4500", "0.9800 to 0.9950")
    assert (rows["mmd"]["baseline"], rows["image"]["about"]) == ("", SPECS[0].about)


def test_baseline_of_a_cosine_ends_at_one(tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    bands = {"cluster_1": [0.99, 0.995, 1.02], "image": [0.98, 0.99, 1.01], "mmd": [-1.0, 0.0, 2.0]}
    write_evaluation(folder, 1, evaluation=record(1), baseline=bands, **COMPARED)
    monitor = read(folder)
    whole = {row["name"]: row["baseline"] for row in value_rows(monitor)}
    assert (whole["image"], whole["mmd"]) == ("0.9800 to 1", "-1 to 2")


def test_values_are_drawn_as_they_are_declared(tmp_path):
    """Nothing is read off a key: one that is called p_… or share_… is drawn as any other unless it says what it is."""
    folder = make_run(tmp_path, evaluations=0)
    scales = {"a": "log", "b": "p", "c": "signed", "d": "cms", "e": "share", "f": "linear"}
    changed(
        folder,
        declared=[spec.to_dict() for spec in [ValueSpec(f"my_{key}", scale=scale) for key, scale in scales.items()]],
    )
    plain = {"p_mine": 0.5, "share_mine": 0.5, "cluster_mine": 3.0, "error_ratio_mine": 2.0}
    write_evaluation(folder, 1, evaluation=record(1, **{f"my_{key}": 0.5 for key in scales}, **plain))
    charts = {chart["title"]: (chart["kind"], chart["scale"], chart["rule"]) for chart in charts_of(read(folder))}
    assert [charts[f"my {key}"] for key in scales] == [
        ("lines", "log", None),
        ("lines", "log", 0.05),
        ("lines", "signed", None),
        ("lines", "cms", None),
        ("stack", "linear", None),
        ("lines", "linear", None),
    ]
    assert {charts[key.replace("_", " ")] for key in plain} == {("lines", "linear", None)}


def test_curves_of_one_measure_have_the_names_of_their_places(tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    measured = {f"{measure}_{name}": 0.5 for measure in ("p", "structure") for name in ("image", "1", "constant")}
    write_evaluation(folder, 1, evaluation=record(1, **measured))
    changed(folder, declared=[spec.to_dict() for spec in RegionValues(["cluster_1", "constant"]).specs])
    labels = {curve["name"]: curve["label"] for chart in charts_of(read(folder)) for curve in chart["series"]}
    assert {name: labels[name] for name in measured} == {
        f"{measure}_{key}": place
        for measure in ("p", "structure")
        for key, place in (("image", "image"), ("1", "cluster 1"), ("constant", "constant"))
    }
    assert (labels["image"], labels["product"], labels["cluster_1"]) == ("image", "product", "cluster 1")


def test_a_tiny_p_value_does_not_flatten_its_chart(tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    write_evaluation(folder, 1, evaluation=record(1, p=1e-171, mmd=1e-171))
    changed(folder, declared=[spec.to_dict() for spec in RegionValues(["cluster_1"]).specs])
    values = {curve["name"]: curve["values"] for chart in charts_of(read(folder)) for curve in chart["series"]}
    assert (values["p"], values["mmd"]) == ([LEAST_P], [1e-171])


def test_no_chart_has_two_curves_of_one_name(tmp_path):
    specs = RegionValues(["cluster_1", "cluster_2", "constant"]).specs
    folder = make_run(tmp_path, evaluations=0)
    write_evaluation(folder, 1, evaluation=record(1, **{spec.key: 0.5 for spec in specs}))
    changed(folder, declared=[spec.to_dict() for spec in specs])
    for chart in charts_of(read(folder)):
        names = [curve["label"] for curve in chart["series"]]
        assert len({*names}) == len(names), chart["title"]


def test_curves_have_the_declared_labels(tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    write_evaluation(folder, 1, evaluation=record(1, top_1=0.2, bottom_3=-0.1))
    changed(folder, declared=[spec.to_dict() for spec in DisagreementValues(3, "data").specs])
    labels = {curve["name"]: curve["label"] for chart in charts_of(read(folder)) for curve in chart["series"]}
    assert labels["top_1"] == "largest mode of the model alone"
    assert labels["bottom_3"] == "3rd largest mode of the reference alone"
