# SPDX-License-Identifier: Apache-2.0
"""What a person sees in TensorBoard of a short run of the demo: a real server, a real browser."""

import json
import re
import sys
import time
import urllib.request
import warnings

import dcgan
import pytest
from _helpers.browser import browser
from _helpers.tensorboard import tensorboard

pytestmark = pytest.mark.slow

# TensorBoard's page is made of shadow trees: go through all of them, and number the elements that are looked for
DEEP = """
const all = (root) => [...root.querySelectorAll('*')].flatMap((n) => n.shadowRoot ? [n, ...all(n.shadowRoot)] : [n]);
const [selector] = arguments;
const found = all(document).filter((n) => n.matches(selector) && n.getClientRects().length);
const text = (n) => n.shadowRoot ? text(n.shadowRoot) + ' ' + [...n.childNodes].map(text).join(' ')
  : ['STYLE', 'SCRIPT', 'TEMPLATE', 'DOM-MODULE'].includes(n.nodeName) ? ''
  : n.nodeType === 3 ? n.textContent : [...n.childNodes].map(text).join(' ');
return found.map((n) => text(n).replace(/\\s+/g, ' ').trim());
"""

LINES = """
const all = (root) => [...root.querySelectorAll('*')].flatMap((n) => n.shadowRoot ? [n, ...all(n.shadowRoot)] : [n]);
const [card] = all(document).filter((n) => n.matches('tf-custom-scalar-multi-line-chart-card'));
const lines = all(card.shadowRoot ?? card).filter((n) => n.matches('path.line'));
return lines.map((n) => n.getAttribute('d')).filter(Boolean);
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A function that opens a tab of TensorBoard on a run of three epochs."""
    folder = tmp_path_factory.mktemp("demo")
    with browser(tmp_path_factory.mktemp("browser"), width=1400, height=1100) as chromium:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr("data._workers", lambda: {"num_workers": 0})
            patch.setattr(sys, "argv", ["dcgan.py", "--epochs", "3", "--out", str(folder / "run")])
            dcgan.main()
        with tensorboard(folder, folder / "said") as address:
            yield lambda tab: open_tab(chromium, address, tab)


def open_tab(chromium, url, tab):
    chromium.get("about:blank")
    chromium.get(f"{url}#{tab}")
    return chromium


def shown(chromium, selector, until):
    """Return the texts of the elements that match, once `until` says that they are all there."""
    for _ in range(150):
        found = chromium.execute_script(DEEP, selector)
        if until(found):
            return found
        time.sleep(0.2)
    raise TimeoutError(f"{selector}: {found}")


def test_all_clusters_are_drawn_in_one_chart(opened):
    chromium = opened("custom_scalars")
    loaded = re.compile(r"Matches \([1-9]")
    card = "tf-custom-scalar-multi-line-chart-card"
    charts = shown(chromium, card, lambda x: len(x) == 8 and all(loaded.search(text) for text in x))
    clusters = [f"cms/cluster_{number} (" for number in range(1, 6)]
    assert charts[0].startswith("CMS by region")
    assert all(name in charts[0] for name in clusters)
    regions = ("image", 1, 2, 3, 4, 5)
    for start, names in {
        "CMS of image and product": ["image", "product"],
        "p-value": ["p"],
        "Variety": ["spread"],
        "Single samples": ["uncovered_images", "copied"],
        "Error ratio": [f"error_ratio_{name}" for name in regions],
        "Structure": ["structure_image"],
        "Texture": ["texture_image"],
    }.items():
        (chart,) = [text for text in charts if text.startswith(start)]
        assert f"Matches ({len(names)})" in chart
        assert all(f"cms/{name} (" in chart for name in names)
    for _ in range(150):  # drawn, not only named: each as it is, and smoothed
        lines = set(chromium.execute_script(LINES))
        if len(lines) >= 6:
            break
        time.sleep(0.2)
    assert len(lines) >= 6


def test_the_figures_are_among_the_images(opened):
    names = ("clusters", "diagnosis", "samples", "single_samples")
    texts = shown(opened("images"), "tf-image-loader", lambda x: len(x) == len(names))
    assert [text.split()[0] for text in texts] == [f"cms/{name}" for name in names]


def test_the_text_says_what_was_found(opened):
    (finding,) = shown(opened("text"), "tf-text-loader", lambda x: len(x) == 1 and "step" in x[0])
    assert "Whole image: " in finding


def test_scalars_are_the_main_values(opened):
    url = opened("scalars").current_url.partition("#")[0]
    with urllib.request.urlopen(f"{url}data/plugin/scalars/tags") as answer:
        (tags,) = [tags for tags in json.load(answer).values() if "cms/mmd" in tags]
    assert sorted(tags)[-1] == "summary/best_error_ratio"  # one dot, below the curves
    assert {"cms/cluster_1", "cms/error_ratio_1", "cms/error_ratio_image", "cms/p", "cms/structure_image"} <= set(tags)


def test_hyperparameters_stand_beside_the_best_value(opened):
    row = re.compile(r"summary/best_error_ratio .*version_0 .* (\d+\.?\d*)$")
    (text,) = shown(opened("hparams"), "tf-hparams-table-view", lambda x: len(x) == 1 and row.search(x[0]))
    assert float(row.search(text)[1]) > 0.5
    assert "generator_features" in text
    assert "hp_metric" not in text


def test_the_report_has_a_tab_of_its_own(opened):
    chromium = opened("genmonitor")
    shown(chromium, "iframe", lambda frames: len(frames) == 1)
    chromium.switch_to.frame(chromium.find_element("css selector", "iframe"))
    (run,) = shown(chromium, "select", lambda found: len(found) == 1 and found[0])
    assert run == "run/version_0"
    chromium.switch_to.frame(chromium.find_element("css selector", "iframe"))
    shown(chromium, "body", lambda found: found and "error" in found[0] and "real images" in found[0])
    chromium.switch_to.default_content()
