# SPDX-License-Identifier: Apache-2.0
import json

from _helpers.runs import found, make_run, manifests, write_evaluation

from genmonitor.findings.finding import Finding


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


def test_report_refuses_what_is_no_run(tmp_path, genmonitor):
    status, said, complaint = genmonitor("report", tmp_path)
    assert (status, said) == (2, "")
    assert "Expected the folder of a run" in complaint


def test_report_refuses_an_empty_path(genmonitor):
    status, _, complaint = genmonitor("report", "")
    assert status == 2
    assert "argument RUN: expected a path, but got an empty one" in complaint
