# SPDX-License-Identifier: Apache-2.0
import json
import re

import pytest
from _helpers.replayed import Digits, quiet
from _helpers.runs import changed, found, make_run, manifests, write_evaluation
from _helpers.swept import measured_in, new, train

from genmonitor import PixelPartition
from genmonitor.cli.report import NOTE
from genmonitor.findings.finding import Finding
from genmonitor.report.run import read_run


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


@pytest.fixture
def tasks(tmp_path):
    """Three runs: of evaluations 1 and 4, of 2, and of 3."""
    make_run(tmp_path / "task_0", evaluations=1)
    write_evaluation(tmp_path / "task_0" / "genmonitor", 4)
    for task, number in ((1, 2), (2, 3)):
        make_run(tmp_path / f"task_{task}", evaluations=0)
        write_evaluation(tmp_path / f"task_{task}" / "genmonitor", number)
    return [tmp_path / f"task_{task}" for task in range(3)]


def test_report_merges_several_runs_in_the_order_of_their_steps(tasks, tmp_path, genmonitor):
    status, said, _ = genmonitor("report", *tasks[::-1], "--out", tmp_path / "merged", "--json")
    folder = tmp_path / "merged" / "genmonitor"
    (merged,) = read_run(folder).monitors
    assert (status, [record["step"] for record in merged.records]) == (0, [9, 19, 29, 39])
    assert json.loads(said)["monitors"]["cms"]["values"]["step"] == 39
    assert merged.notes[-1].text == NOTE
    assert merged.partition is not None
    assert len((folder / "history.csv").read_text().splitlines()) == 5
    assert (folder / "report.html").is_file()


def _settings(run, tmp_path):
    changed(run / "genmonitor", settings="another")


def _regions(run, tmp_path):
    PixelPartition.grid((3, 4), rows=1, columns=2).save(run / "genmonitor" / "cms_partition.npz")


def _step(run, tmp_path):
    (run / "genmonitor" / "cms_run.json").unlink()
    write_evaluation(run / "genmonitor", 3)


def _damage(run, tmp_path):
    (run / "genmonitor" / "cms_run.json").write_text('{"evaluations": [{"st')


def _out(run, tmp_path):
    (tmp_path / "merged" / "genmonitor").mkdir(parents=True)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_settings, "task_1 and .*task_2 differ in settings"),
        (_regions, "task_1 and .*task_2 differ in partition"),
        (_step, "task_1 and .*task_2 both evaluated step 29. Leave one out"),
        (_damage, "task_1.*cms_run.json is not: .* It was edited or damaged"),
        (_out, "Expected --out to be a new folder, but .*merged holds a run"),
    ],
)
def test_report_refuses_runs_that_make_no_history(tasks, tmp_path, genmonitor, spoil, says):
    spoil(tasks[1], tmp_path)
    status, said, complaint = genmonitor("report", *tasks, "--out", tmp_path / "merged")
    assert (status, said) == (2, "")
    assert re.search(says, complaint)
    assert not (tmp_path / "merged" / "genmonitor" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tasks_of_an_array_job_give_the_history_of_one_sweep(tmp_path, genmonitor):
    from genmonitor.callbacks.checkpoints.sweep import sweep

    def build():
        return new(), Digits(), quiet()

    train(tmp_path / "run", new(), Digits(), max_epochs=3)
    expected = measured_in(sweep(tmp_path / "run", build, out=tmp_path / "all"))
    checkpoints = sorted((tmp_path / "run").rglob("*.ckpt"))
    tasks = [tmp_path / f"task_{number}" for number in range(3)]
    for checkpoint, task in zip(checkpoints, tasks, strict=True):
        sweep(checkpoint, build, out=task)
    assert genmonitor("report", *tasks, "--out", tmp_path / "merged")[0] == 0
    found = read_run(tmp_path / "merged" / "genmonitor").monitors[0].records
    for record, of_one in zip(found, expected, strict=True):
        compared = {key for key in of_one if "vs_best" not in key}
        assert {key: record[key] for key in compared} == {key: of_one[key] for key in compared}


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
