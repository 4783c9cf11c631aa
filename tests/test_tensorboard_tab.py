# SPDX-License-Identifier: Apache-2.0
"""The tab as a person sees it: TensorBoard's own server with the plugin installed, and a real browser."""

import os
import time
from contextlib import contextmanager

import pytest
from _helpers.browser import browser, inaccessible
from _helpers.runs import make_run, write_evaluation
from _helpers.tensorboard import tensorboard

from genmonitor.report import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """Three runs, of which the second wrote its page last."""
    folder = tmp_path_factory.mktemp("runs")
    for seconds, name in ((20, "gan/version_1"), (10, "gan/version_10"), (0, "gan/version_2")):
        page = write_report(make_run(folder / name))
        os.utime(page, times=(time.time() - seconds,) * 2)
    return folder


@pytest.fixture(scope="module")
def address(logdir, tmp_path_factory):
    with tensorboard(logdir, tmp_path_factory.mktemp("server") / "said") as url:
        yield url


@pytest.fixture(params=[False, True], ids=["light", "dark"])
def dark(request):
    return request.param


@contextmanager
def tab(folder, address, dark=False):
    """Open the tab in TensorBoard's light or dark theme, in a browser that prefers the other."""
    with browser(folder, dark=not dark, width=1300) as chromium:
        chromium.get(f"{address}?darkMode={str(dark).lower()}#genmonitor")
        enter(chromium)
        yield chromium


def enter(chromium):
    """Go from the window into the tab."""
    chromium.switch_to.default_content()
    chromium.switch_to.frame(wait(lambda: find(chromium, "iframe")[0]))
    wait(lambda: chromium.execute_script("return document.querySelector('select')?.value"))


def enter_page(chromium, number=0):
    """Go from the window into one of the pages."""
    enter(chromium)
    chromium.switch_to.frame(find(chromium, "iframe")[number])
    wait(lambda: chromium.execute_script("return document.readyState === 'complete' && location.search"))


def test_tab_is_accessible(tmp_path, address, dark):
    with tab(tmp_path, address, dark) as chromium:
        assert inaccessible(chromium) == []


def find(chromium, selector):
    return [node for node in chromium.find_elements("css selector", selector) if node.is_displayed()]


def values(chromium):
    return [node.get_property("value") for node in find(chromium, "select")]


def wait(until, seconds=30):
    """Return what a function gives once it gives something."""
    end, said = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            if found := until():
                return found
        except Exception as error:
            said = error
        time.sleep(0.1)
    raise TimeoutError(said)


def test_the_latest_page_is_shown_and_the_runs_are_offered_in_order(tmp_path, address):
    with tab(tmp_path, address) as chromium:
        assert values(chromium) == ["gan/version_2"]
        names = [option.text for option in find(chromium, "select")[0].find_elements("css selector", "option")]
        assert names == ["gan/version_1", "gan/version_2", "gan/version_10"]
        enter_page(chromium)
        assert "gan/version_2" in find(chromium, "h1")[0].text
        assert find(chromium, ".chart svg"), "the page's own scripts draw its charts"


def test_two_runs_stand_side_by_side_and_stay_when_the_browser_reloads(tmp_path, address):
    with tab(tmp_path, address) as chromium:
        find(chromium, "button")[0].click()
        assert values(chromium) == ["gan/version_2", "gan/version_10"]
        find(chromium, "select")[1].send_keys("gan/version_1")
        for reload in (False, True):
            if reload:
                chromium.refresh()
                enter(chromium)
            wait(lambda: values(chromium) == ["gan/version_2", "gan/version_1"])
            left, right = [frame.rect for frame in find(chromium, "iframe")]
            assert (left["y"], left["width"]) == (right["y"], pytest.approx(right["width"], abs=2))
            assert left["x"] + left["width"] <= right["x"]
        for number, name in enumerate(("gan/version_2", "gan/version_1")):
            enter_page(chromium, number)
            assert name in find(chromium, "h1")[0].text
        enter(chromium)
        find(chromium, "button")[-1].click()
        assert values(chromium) == ["gan/version_2"]


def test_a_page_follows_the_theme_of_tensorboard_not_of_the_browser(tmp_path, address, dark):
    with tab(tmp_path, address, dark) as chromium:
        shade = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        for place in (enter, enter_page):
            place(chromium)
            assert all((value < 64) == dark for value in chromium.execute_script(shade))


def test_a_new_evaluation_appears_where_the_reader_was(tmp_path, logdir, address):
    folder = logdir / "gan" / "version_2" / "genmonitor"
    with tab(tmp_path, address) as chromium:
        enter_page(chromium)
        unfold = "document.querySelectorAll('details').forEach((part) => { part.open = true; });"
        chromium.execute_script(f"{unfold} document.querySelector('input[type=range]').value = 1;")
        wait(lambda: chromium.execute_script("return [...document.images].every((image) => image.complete)"))
        chromium.execute_script("scrollTo(0, 500); window.before = true;")
        look = "return [window.scrollY, document.querySelectorAll('details:not([open])').length, "
        look += "document.querySelector('input[type=range]').value]"
        before = chromium.execute_script(look)
        assert before[:2] == [500, 0]
        write_evaluation(folder, 4)
        write_report(folder)
        wait(lambda: chromium.execute_script("return document.querySelector('input[type=range]').max") == "3")
        assert chromium.execute_script("return window.before") is None
        assert chromium.execute_script(look) == before


def test_a_page_reaches_neither_tensorboard_nor_the_network(tmp_path, address):
    with tab(tmp_path, address) as chromium:
        enter_page(chromium)
        with pytest.raises(Exception, match="cross-origin"):
            chromium.execute_script("return parent.document.title")
        answer = "const done = arguments[0]; fetch('/data/runs').then(() => done('read'), () => done('refused'))"
        assert chromium.execute_async_script(answer) == "refused"


def test_without_a_page_the_tab_says_what_it_waits_for(tmp_path):
    logdir = tmp_path / "runs"
    logdir.mkdir()
    with tensorboard(logdir, tmp_path / "said") as address, browser(tmp_path, width=1300) as chromium:
        chromium.get(f"{address}#genmonitor")
        chromium.switch_to.frame(wait(lambda: find(chromium, "iframe")[0]))
        text = wait(lambda: find(chromium, ".empty")[0].text)
        assert text.startswith(f"There is no report below {logdir} yet.")
        assert not find(chromium, "select")
        write_report(make_run(logdir / "first"))
        wait(lambda: values(chromium) == ["first"])
