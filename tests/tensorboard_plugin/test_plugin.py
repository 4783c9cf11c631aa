# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from genmonitor.tensorboard_plugin.plugin import ReportTab


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
    code = "import sys, genmonitor.tensorboard_plugin.plugin; print({'torch', 'matplotlib'} & set(sys.modules))"
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
