# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from _helpers.runs import make_run
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from genmonitor import tensorboard_plugin
from genmonitor.report import write_report
from genmonitor.tensorboard_plugin import ReportTab, find_pages


def write_page(run, text="<p>a page</p>"):
    run.joinpath("genmonitor").mkdir(parents=True)
    (run / "genmonitor" / "report.html").write_text(text)


@pytest.fixture
def tab(tmp_path):
    write_page(tmp_path / "runs" / "version_0")
    (tmp_path / "genmonitor").mkdir()
    (tmp_path / "genmonitor" / "report.html").write_text("beside the logdir")
    return ReportTab(TBContext(logdir=str(tmp_path / "runs")))


def ask(tab, route, **given):
    return Client(tab.get_plugin_apps()[route]).get(route, query_string=given)


def test_tensorboard_finds_the_plugin():
    (found,) = [point for point in entry_points(group="tensorboard_plugins") if point.name == "genmonitor"]
    assert found.load() is ReportTab


def test_loading_it_loads_no_torch():
    code = "import sys, genmonitor.tensorboard_plugin; print({'torch', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_its_script_and_style_are_served(tab):
    assert tab.frontend_metadata().es_module_path in tab.get_plugin_apps()
    assert b"export async function render" in ask(tab, "/tab.js").data
    assert ask(tab, "/tab.js").mimetype == "text/javascript"
    assert ask(tab, "/tab.css").mimetype == "text/css"


def test_runs_are_listed_with_the_time_at_which_their_page_was_written(tab, tmp_path):
    page = tmp_path / "runs" / "version_0" / "genmonitor" / "report.html"
    assert tab.is_active()
    runs = [{"name": "version_0", "written": page.stat().st_mtime}]
    assert ask(tab, "/runs").json == {"logdir": str(tmp_path / "runs"), "runs": runs}
    page.unlink()
    assert not tab.is_active()
    assert ask(tab, "/runs").json["runs"] == []


def test_every_run_in_a_folder_is_listed(tab, tmp_path):
    run = tmp_path / "runs" / "version_0"
    for name in ("genmonitor-v1", "genmonitor-v12", "genmonitor-validate"):
        (run / name).mkdir()
        (run / name / "report.html").write_text(f"<p>{name}</p>")
    listed = [one["name"] for one in ask(tab, "/runs").json["runs"]]
    assert listed == ["version_0", "version_0 (v1)", "version_0 (v12)"]
    assert ask(tab, "/page", run="version_0 (v1)").data.startswith(b"<p>genmonitor-v1</p>")


def test_a_page_is_served_as_it_is_now(tab, tmp_path):
    assert ask(tab, "/page", run="version_0").data.startswith(b"<p>a page</p><script>")
    (tmp_path / "runs" / "version_0" / "genmonitor" / "report.html").write_text("<p>the next</p>")
    assert ask(tab, "/page", run="version_0").data.startswith(b"<p>the next</p><script>")


def test_a_page_runs_in_an_origin_of_its_own_and_reaches_nothing(tab):
    policy = dict(part.split(" ", 1) for part in ask(tab, "/page", run="version_0").headers[POLICY].split("; "))
    assert "allow-same-origin" not in policy["sandbox"]
    assert policy["default-src"] == "'none'"
    assert "connect-src" not in policy


POLICY = "Content-Security-Policy"
OUTSIDE = ["..", "../", "version_0/..", "version_0/../..", "%2e%2e", "version_0/", "/etc", "", "version_0\x00"]


@pytest.mark.parametrize("run", OUTSIDE)
def test_only_names_on_the_list_are_looked_up(tab, tmp_path, run):
    for name in (run, str(tmp_path), f"{tmp_path}/runs/version_0"):
        assert ask(tab, "/page", run=name).status_code == 404


def test_without_a_logdir_there_is_nothing_to_show():
    tab = ReportTab(TBContext())
    assert not tab.is_active()
    assert ask(tab, "/runs").json == {"logdir": "", "runs": []}
    assert ask(tab, "/page").status_code == 404


def test_page_that_is_removed_meanwhile_is_not_found(tab, tmp_path, monkeypatch):
    pages = {"gone": tmp_path / "gone.html", **find_pages(tmp_path / "runs")}
    monkeypatch.setattr(tensorboard_plugin, "find_pages", lambda logdir: pages)
    answer = ask(tab, "/page", run="gone")
    assert (answer.status_code, answer.text) == (404, "This run has no report, or it was removed.")
    assert [run["name"] for run in ask(tab, "/runs").json["runs"]] == ["version_0"]


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
