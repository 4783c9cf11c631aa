# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from _helpers.runs import found, make_run, manifests, write_evaluation

from genmonitor.evaluation.findings import Finding


def test_report_makes_the_page_again(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run")
    status, said, _ = genmonitor("report", tmp_path / "run")
    assert (status, said) == (0, f"Report: {folder / 'report.html'}\n")
    assert (folder / "report.html").is_file()


def test_report_as_json_holds_the_last_values(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run")
    _, said, _ = genmonitor("report", tmp_path / "run", "--json")
    result = json.loads(said)
    assert result["report"] == str(folder / "report.html")
    assert result["monitors"]["cms"]["values"] == manifests(folder)[-1]["values"]
    assert result["monitors"]["cms"]["evaluations"] == 3


def test_report_as_json_holds_the_findings_as_data(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run")
    write_evaluation(folder, 9, findings=found("cluster_2 got worse."))
    _, said, _ = genmonitor("report", tmp_path / "run", "--json")
    findings = json.loads(said)["monitors"]["cms"]["findings"]
    assert findings == found("cluster_2 got worse.")  # of the last evaluation, not of the ones before
    assert [Finding.from_dict(of).area.region for of in findings] == ["cluster_2", "cluster_2", "cluster_1", "constant"]


def test_report_as_json_of_a_run_without_findings(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run", evaluations=0)
    write_evaluation(folder, 1, findings=[])
    _, said, _ = genmonitor("report", tmp_path / "run", "--json")
    assert json.loads(said)["monitors"]["cms"]["findings"] == []


def test_report_merges_several_runs(tmp_path, genmonitor):
    for number in (1, 2):
        make_run(tmp_path / f"task_{number}", evaluations=0)
        write_evaluation(tmp_path / f"task_{number}" / "genmonitor", number)
    tasks = [tmp_path / "task_2", tmp_path / "task_1"]
    status, said, _ = genmonitor("report", *tasks, "--out", tmp_path / "merged", "--json")
    assert status == 0
    assert json.loads(said)["monitors"]["cms"]["evaluations"] == 2
    assert json.loads(said)["monitors"]["cms"]["values"]["step"] == 19
    assert (tmp_path / "merged" / "genmonitor" / "report.html").is_file()


@pytest.mark.parametrize("words", [["run", "other"], ["run", "--out", "merged"]])
def test_report_takes_out_with_several_runs_alone(genmonitor, words):
    status, said, complaint = genmonitor("report", *words)
    assert (status, said) == (2, "")
    assert "--out FOLDER is required when merging several runs" in complaint


def test_report_refuses_what_is_no_run(tmp_path, genmonitor):
    status, said, complaint = genmonitor("report", tmp_path)
    assert (status, said) == (2, "")
    assert "Expected the folder of a run" in complaint


def test_report_refuses_an_empty_path(genmonitor):
    status, _, complaint = genmonitor("report", "")
    assert status == 2
    assert "argument RUN: expected a path, but got an empty one" in complaint
