# SPDX-License-Identifier: Apache-2.0
from _helpers.runs import make_run

from genmonitor.report import write_report
from genmonitor.tensorboard_plugin.pages import find_pages


def page_of(run):
    run.joinpath("genmonitor").mkdir(parents=True)
    page = run / "genmonitor" / "report.html"
    page.write_text("page")
    return page


def test_pages_are_found_by_the_names_that_tensorboard_gives_to_runs(tmp_path):
    pages = {name: page_of(tmp_path / name) for name in (".", "gan/version_0", "genmonitor/runs/version_1")}
    (tmp_path / "gan" / "version_2" / "genmonitor").mkdir(parents=True)  # has not evaluated yet
    assert find_pages(tmp_path) == pages
    assert find_pages(tmp_path / "missing") == {}


def test_the_page_that_a_run_writes_is_found(tmp_path):
    written = write_report(make_run(tmp_path / "run"))
    assert find_pages(tmp_path) == {"run": written}


def test_what_is_hidden_or_a_link_out_of_the_run_is_no_page(tmp_path):
    page_of(tmp_path / ".trash" / "run")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "run" / "genmonitor").mkdir(parents=True)
    (tmp_path / "run" / "genmonitor" / "report.html").symlink_to(secret)
    assert find_pages(tmp_path) == {}


def test_linked_folders_are_looked_through_once(tmp_path):
    elsewhere = page_of(tmp_path / "elsewhere" / "version_0")
    logdir = tmp_path / "logdir"
    logdir.mkdir()
    (logdir / "linked").symlink_to(elsewhere.parents[2])
    (logdir / "round").symlink_to(logdir)
    assert list(find_pages(logdir)) == ["linked/version_0"]
