# SPDX-License-Identifier: Apache-2.0
import shutil

import pytest
from _helpers.replayed import Digits, quiet
from _helpers.runs import changed, make_run, write_evaluation
from _helpers.swept import measured_in, new, train

from genmonitor import PixelPartition
from genmonitor.report.merge import NOTE, merge_runs
from genmonitor.report.run import read_run


@pytest.fixture
def tasks(tmp_path):
    """Three runs: of evaluations 1 and 4, of 2, and of 3."""
    make_run(tmp_path / "task_0", evaluations=1)
    write_evaluation(tmp_path / "task_0" / "genmonitor", 4)
    for task, number in ((1, 2), (2, 3)):
        make_run(tmp_path / f"task_{task}", evaluations=0)
        write_evaluation(tmp_path / f"task_{task}" / "genmonitor", number)
    return [tmp_path / f"task_{task}" for task in range(3)]


def test_evaluations_are_in_the_order_of_their_steps(tasks, tmp_path):
    page = merge_runs(tasks[::-1], tmp_path / "merged")
    (found,) = read_run(page.parent).monitors
    assert [record["step"] for record in found.records] == [9, 19, 29, 39]
    assert found.notes[-1].text == NOTE
    assert len((page.parent / "history.csv").read_text().splitlines()) == 5


def test_merging_again_replaces_what_was_merged(tasks, tmp_path):
    merge_runs(tasks, tmp_path / "merged")
    page = merge_runs(tasks[:2], tmp_path / "merged")
    assert [x["step"] for x in read_run(page.parent).monitors[0].records] == [9, 19, 39]


def test_a_step_that_two_runs_evaluated_is_refused(tasks, tmp_path):
    shutil.copytree(tasks[1], tmp_path / "again")
    with pytest.raises(ValueError, match=r"task_1 and .*again both evaluated step 19. Leave one out"):
        merge_runs([*tasks, tmp_path / "again"], tmp_path / "merged")


@pytest.mark.parametrize("name", ["settings", "seed", "module"])
def test_runs_with_other_settings_are_refused(tasks, tmp_path, name):
    changed(tasks[1] / "genmonitor", **{name: "another"})
    with pytest.raises(ValueError, match=rf"with the same settings, but .*task_0 and .*task_1 differ in {name}"):
        merge_runs(tasks, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_run_is_not_merged_into_itself(tasks):
    with pytest.raises(ValueError, match=r"`--out` apart from the runs, but got .*task_1"):
        merge_runs(tasks, tasks[1])


def test_a_folder_without_evaluations_is_named(tasks, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"a monitor evaluated, but got .*empty"):
        merge_runs([*tasks, tmp_path / "empty"], tmp_path / "merged")


@pytest.mark.parametrize("written", ['{"evaluations": [{"st', '{"evaluations": []}', "[1]"])
def test_a_damaged_run_is_named(tasks, tmp_path, written):
    (tasks[1] / "genmonitor" / "cms_run.json").write_text(written)
    with pytest.raises(ValueError, match=r"task_1.*cms_run.json is none: .* It was edited or damaged"):
        merge_runs(tasks, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_runs_with_other_regions_are_refused(tasks, tmp_path):
    PixelPartition.grid((3, 4), rows=1, columns=2).save(tasks[2] / "genmonitor" / "cms_partition.npz")
    with pytest.raises(ValueError, match=r"task_1 and .*task_2 differ in partition"):
        merge_runs(tasks, tmp_path / "merged")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tasks_of_an_array_job_give_the_history_of_one_sweep(tmp_path):
    from genmonitor.callbacks.checkpoints.sweep import sweep

    def build():
        return new(), Digits(), quiet()

    train(tmp_path / "run", new(), Digits(), max_epochs=3)
    expected = measured_in(sweep(tmp_path / "run", build, out=tmp_path / "all"))
    checkpoints = sorted((tmp_path / "run").rglob("*.ckpt"))
    tasks = [tmp_path / f"task_{number}" for number in range(3)]
    for checkpoint, task in zip(checkpoints, tasks, strict=True):
        sweep(checkpoint, build, out=task)
    page = merge_runs(tasks, tmp_path / "merged")
    found = read_run(page.parent).monitors[0].records
    for record, of_one in zip(found, expected, strict=True):
        compared = {key for key in of_one if "vs_best" not in key}
        assert {key: record[key] for key in compared} == {key: of_one[key] for key in compared}
