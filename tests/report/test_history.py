# SPDX-License-Identifier: Apache-2.0
import csv

from _helpers.runs import add_diversity, make_run, record

from genmonitor.report import write_report
from genmonitor.report.run import read_run


def test_history_has_a_row_for_each_evaluation_of_any_monitor(tmp_path):
    folder = make_run(tmp_path, evaluations=3)
    add_diversity(folder, ["a cat"], evaluations=2)
    write_report(folder)
    with (folder / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "9"), ("1", "19"), ("2", "29")]
    assert [float(row["cms/cluster_2"]) for row in rows] == [record(number)["cluster_2"] for number in (1, 2, 3)]
    assert [row["diversity/vendi"] for row in rows] == ["6.0", "7.0", ""]


def test_history_is_no_table_of_the_page(tmp_path):
    folder = make_run(tmp_path)
    write_report(folder)
    assert (folder / "history.csv").is_file()
    assert read_run(folder).tables == []
