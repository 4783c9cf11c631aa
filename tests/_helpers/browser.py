# SPDX-License-Identifier: Apache-2.0
"""A real headless browser for the tests: Chromium, driven by selenium."""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
)


@contextmanager
def browser(folder, dark=False, width=1200, height=900):
    """Open a browser with a profile of its own in a folder; skip where there is none, unless one is demanded."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    missing = None if program and driver else "needs a browser: apt-get install chromium chromium-driver"
    try:
        from selenium import webdriver
    except ImportError:
        missing = "needs selenium"
    if missing:
        if os.environ.get("GENMONITOR_NEEDS_BROWSER"):
            pytest.fail(f"GENMONITOR_NEEDS_BROWSER is set, but the test {missing}")
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (*ARGUMENTS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        opened.get("about:blank")
        opened.get_log("performance")  # what the browser's own first page asked for
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        # a window cannot be made narrower than 500 px, a page can
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield opened
    finally:
        opened.quit()


def requested(opened):
    """Return the addresses that the pages asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def complaints(opened):
    """Return what the console says of errors and warnings since the last call."""
    return [entry["message"] for entry in opened.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def inaccessible(opened):
    """Return what axe-core finds wrong with the page by WCAG 2, levels A and AA: rule, and the first element."""
    import axe_core_python

    opened.execute_script((Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = opened.execute_async_script(
        "const done = arguments[0]; axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'best-practice']})"
        ".then((result) => done(result.violations.map((x) => [x.id, x.nodes[0].html.slice(0, 200)])))"
    )
    return [tuple(each) for each in found]
