# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of a monitor. IPython itself is a stand-in: nothing else here needs it."""

import html
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader, plain

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.diversity_findings import DiversityPresenter
from genmonitor.findings.finding import Area, Finding

pytestmark = LIGHTNING_SAYS


@pytest.fixture(scope="module")
def monitor(tmp_path_factory):
    """A monitor after two evaluations."""
    found = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200, on_error="raise")
    fit(tmp_path_factory.mktemp("run"), found, val=loader(digits(300, 400)), max_epochs=2)
    return found


def test_a_new_monitor_says_that_nothing_was_evaluated():
    new = plain(n_samples=60)
    assert repr(new) == "Plain(prefix='cms', n_samples=60, evaluations=0)"
    assert "evaluations=0" in new._repr_html_()


def test_a_notebook_shows_the_report(monitor):
    shown = monitor._repr_html_()
    assert repr(monitor).endswith("evaluations=2)")
    (page,) = re.findall(r'<iframe title="PixelClusterMonitor cms" sandbox="[^"]*" [^>]* srcdoc="([^"]*)"', shown)
    assert html.unescape(page) == monitor.publisher.page.read_text()
    assert str(monitor.publisher.page) in shown


def test_a_monitor_from_a_checkpoint_shows_its_values(monitor):
    loaded = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200)
    loaded.load_state_dict(monitor.state_dict())
    assert f"{monitor.history[-1]['image']:.6g}" in loaded._repr_html_()


def test_a_run_without_files_shows_the_table(tmp_path):
    trial = plain()
    fit(tmp_path, trial, val=loader(digits(300, 400)), fast_dev_run=True)
    assert "error_ratio_image: " in trial._repr_html_()
    assert "Report" not in trial._repr_html_()


def test_show_prints_outside_of_a_notebook(monitor, capsys):
    monitor.show()
    said = capsys.readouterr().out
    assert "against real images" in said
    assert said.endswith(f"Report: {monitor.publisher.page}\n")


@pytest.mark.parametrize(("shell", "shown"), [(SimpleNamespace(kernel=object()), True), (SimpleNamespace(), False)])
def test_show_displays_in_a_notebook_but_not_in_a_terminal(monitor, monkeypatch, capsys, shell, shown):
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    displayed = []
    ipython.get_ipython, display.display = lambda: shell, displayed.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monitor.show()
    assert displayed == ([monitor] if shown else [])
    assert ("Report:" in capsys.readouterr().out) is not shown


def test_other_evaluators_show_their_summary_as_it_is():
    values = {
        "vendi": 2.0,
        "rke": 1.5,
        "scendi": 1.2,
        "scendi_prompt": 1.1,
        "prompt_share": 0.4,
        "one_prompt_share": 0.3,
    }
    history = [{"epoch": 0.0, "step": 1, **values}]
    presenter, found = DiversityPresenter(None, None), [Finding("Taken by <prompt>.", Area("samples"), "", None)]
    said = presenter.summary(found, history)
    assert "<prompt>" in said


@pytest.mark.parametrize("verbose", [True, False])
def test_verbose_says_what_a_monitor_prints(tmp_path, capsys, caplog, verbose):
    with caplog.at_level("INFO"):
        fit(tmp_path, plain(verbose=verbose), val=loader(digits(300, 400)))
    assert ("Report: " in capsys.readouterr().out) is verbose
    assert any("× real" in line for line in caplog.messages) is verbose
    assert any("stability" in line for line in caplog.messages) is verbose


def test_verbose_is_yes_or_no():
    with pytest.raises(TypeError, match="`verbose`"):
        plain(verbose=2)
