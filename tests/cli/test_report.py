# SPDX-License-Identifier: Apache-2.0
import json

from _helpers.runs import make_run, record, write_evaluation


def test_report_makes_the_page_again(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run")
    status, said, _ = genmonitor("report", tmp_path / "run")
    assert (status, said) == (0, f"Report: {folder / 'report.html'}\n")
    assert (folder / "report.html").is_file()


def test_report_as_json_holds_the_last_values(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run")
    last = max(folder.glob("cms_evaluation_*.json"))
    _, said, _ = genmonitor("report", tmp_path / "run", "--json")
    found = json.loads(said)
    assert found["report"] == str(folder / "report.html")
    assert found["monitors"]["cms"]["values"] == json.loads(last.read_text())["evaluation"]
    assert found["monitors"]["cms"]["evaluations"] == int(last.stem[-5:])
    assert "regions" not in found["monitors"]["cms"]  # of a run that has no error ratios


def test_report_as_json_holds_the_regions_as_data(tmp_path, genmonitor):
    names = {"1": "cluster_1", "2": "cluster_2", "constant": "constant"}
    more = {f"error_ratio_{short}": 2.0 for short in names} | {f"p_{name}": 0.4 for name in names.values()}
    more["p_cluster_2"] = 0.005
    folder = make_run(tmp_path / "run")
    write_evaluation(folder, 9, evaluation=record(9, **more))
    _, said, _ = genmonitor("report", tmp_path / "run", "--json")
    regions = json.loads(said)["monitors"]["cms"]["regions"]
    assert {name: (of["pixels"], of["p_value"], of["differs"]) for name, of in regions.items()} == {
        "cluster_2": (4, 0.005, True),
        "cluster_1": (6, 0.4, False),
        "constant": (2, 0.4, False),
    }


def test_report_refuses_what_is_no_run(tmp_path, genmonitor):
    status, said, complaint = genmonitor("report", tmp_path)
    assert (status, said) == (2, "")
    assert "Expected the folder of a run" in complaint


def test_report_refuses_an_empty_path(genmonitor):
    status, _, complaint = genmonitor("report", "")
    assert status == 2
    assert "argument RUN: expected a path, but got an empty one" in complaint


def test_report_of_two_runs_writes_a_page_of_its_own(tmp_path, genmonitor):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    status, said, _ = genmonitor("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both.html")
    assert (status, said) == (0, f"Report: {tmp_path / 'both.html'}\n")
    assert "<title>a and b" in (tmp_path / "both.html").read_text()
    assert not (tmp_path / "a" / "genmonitor" / "report.html").exists()


def test_report_of_one_run_stays_in_its_folder(tmp_path, genmonitor):
    make_run(tmp_path / "a")
    status, _, complaint = genmonitor("report", tmp_path / "a", "--out", tmp_path / "page.html")
    assert status == 2
    assert "Expected --out with two runs only" in complaint
