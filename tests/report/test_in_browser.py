# SPDX-License-Identifier: Apache-2.0
"""The report as a person sees it: a real browser opens it from file:// and points at things."""

import io

import pytest
from _helpers.browser import browser, complaints, requested
from _helpers.runs import BASELINE, COMPARED, add_diversity, make_run, record, write_evaluation, write_notes
from PIL import Image

from genmonitor._formatting import format_cms
from genmonitor.report import write_report


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of 200 evaluations whose prompts would run a script."""
    run = tmp_path_factory.mktemp("run")
    folder = make_run(run, evaluations=200)
    write_notes(folder, [(199, "cluster 2 fell")])
    add_diversity(folder, ["<script>document.title = 'run'</script>", "<img src=x onerror=\"document.title='run'\">"])
    return write_report(folder).as_uri()


@pytest.fixture(scope="module")
def opened(page, tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as chromium:
        chromium.get(page)
        yield chromium


def find(opened, selector):
    return opened.find_elements("css selector", selector)


def point_at(opened, node, right=0.5, down=0.5):
    from selenium.webdriver.common.action_chains import ActionChains

    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", node)
    x, y = int((right - 0.5) * node.rect["width"]), int((down - 0.5) * node.rect["height"])
    ActionChains(opened, duration=0).move_to_element_with_offset(node, x, y).perform()


def lit(opened, place):
    return {node.get_attribute("data-region") for node in find(opened, f"{place} [data-region].lit")}


def test_page_opens_without_complaint_and_network(opened, page):
    opened.get(page)
    assert complaints(opened) == []
    assert {address for address in requested(opened) if not address.startswith("data:")} == {page}
    assert opened.title.endswith("genmonitor")
    assert len(find(opened, ".chart path.curve")) > 10


def test_chart_shows_the_values_under_the_pointer(opened):
    chart = find(opened, ".chart")[0]
    point_at(opened, chart.find_element("css selector", "svg"), right=0.3)
    (tip,) = find(opened, '.chart[data-chart="0"] .tip:not([hidden])')[:1]
    head, *rows = [row.text.split("\n") for row in tip.find_elements("css selector", ":scope > div")]
    number = int(head[0].removeprefix("epoch ")) + 1
    assert 20 < number < 120
    assert dict(rows) == {
        "constant": "1",
        "cluster 1": "0.9000",
        "cluster 2": format_cms(record(number)["cluster_2"]),  # the page and the command line write alike
    }


def test_chart_takes_arrow_keys(opened):
    from selenium.webdriver.common.keys import Keys

    point_at(opened, find(opened, "h1")[0])
    chart = find(opened, ".chart")[0]
    opened.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert chart.find_element("css selector", ".tip div").text == "epoch 198"  # from the last
    assert chart.find_element("css selector", ".tip .said").text == "cluster 2 fell"
    assert chart.find_element("css selector", ".alarm").rect["x"] > chart.rect["x"]
    opened.execute_script("arguments[0].blur()", chart)
    assert not find(opened, ".tip:not([hidden])")


def test_map_and_curves_light_up_each_other(opened):
    (region,) = find(opened, '.map path[data-region="2"]')
    point_at(opened, region)
    for place in (".map", ".regions", '.chart[data-chart="0"]', '.chart[data-chart="2"]'):
        assert lit(opened, place) == {"2"}, place
    assert find(opened, '.chart[data-chart="0"] rect.band.lit')[0].is_displayed()  # its baseline
    point_at(opened, find(opened, "h1")[0])
    assert lit(opened, "section") == set()
    assert not find(opened, ".off")
    svg = find(opened, ".chart svg")[0]
    curve = find(opened, '.chart[data-chart="0"] path.curve[data-region="1"]')[0]
    middle = curve.rect["y"] + curve.rect["height"] / 2 - svg.rect["y"]
    point_at(opened, svg, right=0.3, down=middle / svg.rect["height"])
    assert lit(opened, ".map") == {"1"}


def test_table_row_lights_up_its_region_until_clicked(opened):
    point_at(opened, find(opened, "h1")[0])
    row = find(opened, '.regions tr[data-region="1"]')[0]
    row.click()
    point_at(opened, find(opened, "h1")[0])
    assert lit(opened, ".map") == {"1"}
    row.click()
    point_at(opened, find(opened, "h1")[0])
    assert lit(opened, ".map") == set()


def test_slider_shows_the_samples_of_another_epoch(opened):
    from selenium.webdriver.common.keys import Keys

    slider = find(opened, ".slider")[0]
    picture, said = slider.find_element("css selector", "img"), slider.find_element("css selector", "output")
    last = picture.get_attribute("src")
    assert said.text == "epoch 199, step 1999"
    slider.find_element("css selector", "input").send_keys(Keys.HOME)
    assert said.text == "epoch 0, step 9"
    assert picture.get_attribute("src") != last
    assert opened.execute_script("return arguments[0].naturalWidth", picture) == 40


def test_page_shows_prompts_and_runs_none(opened):
    texts = [cell.text for cell in find(opened, "section td")]
    assert "<script>document.title = 'run'</script>" in texts
    assert opened.title.endswith("genmonitor")


def test_page_of_two_hundred_evaluations_stays_small(opened, page):
    opened.get(page)
    assert len(find(opened, ".chart *")) < 3000
    assert opened.execute_script("return document.documentElement.outerHTML.length") < 1_000_000


def shade(opened):
    with Image.open(io.BytesIO(opened.get_screenshot_as_png())) as picture:
        return picture.convert("L").getpixel((3, 3))


def test_page_is_dark_where_the_system_is(opened, page, tmp_path):
    assert shade(opened) > 240
    with browser(tmp_path, dark=True) as dark:
        dark.get(page)
        assert shade(dark) < 40
        ink = find(dark, "h1")[0].value_of_css_property("color")
        assert min(int(part) for part in ink.strip("rgba()").split(",")[:3]) > 200


def test_page_fits_a_phone(page, tmp_path):
    with browser(tmp_path, width=390, height=844) as phone:
        phone.get(page)
        assert phone.execute_script("return document.documentElement.scrollWidth") <= 390
        chart, where = find(phone, ".chart svg")[0].rect, find(phone, ".map")[0].rect
        assert chart["width"] > 340
        assert where["y"] > chart["y"] + chart["height"]  # below, not beside
        assert complaints(phone) == []


def test_page_of_a_damaged_folder_draws_what_is_left(opened, tmp_path):
    folder = make_run(tmp_path, evaluations=3)
    (folder / "cms_evaluation_00002.json").write_text("{half")
    lacking = {name: value for name, value in record(4).items() if name not in ("constant", "share_1")}
    band = [0.9, float("nan"), 0.99]
    write_evaluation(folder, 4, evaluation=lacking, baseline={"cluster_1": band, "cluster_2": [0.96, 0.97, 0.98]})
    (folder / "x_evaluation_00001.json").write_text('{"evaluation": {}}')
    opened.get(write_report(folder).as_uri())
    assert complaints(opened) == []
    assert len(find(opened, '.chart[data-chart="0"] path.curve')) == 3
    assert all(chart.find_elements("css selector", "svg > *") for chart in find(opened, ".chart"))
    assert (
        find(opened, ".alert")[0].text
        == "cms_evaluation_00002.json could not be read, so what it holds is missing here."
    )


def test_page_of_a_comparison_draws_regions_without_baseline(opened, tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    values = {name: value for name, value in record(2).items() if name not in ("epoch", "step", "images_seen")}
    write_evaluation(folder, 1, evaluation=values, **COMPARED, baseline={"cluster_2": BASELINE["cluster_2"]})
    opened.get(write_report(folder).as_uri())
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(opened, 20).until(lambda page: find(page, ".chart .disc"))  # drawn after the page has loaded
    assert complaints(opened) == []
    assert len(find(opened, ".chart .disc")) == 3
    assert len(find(opened, ".chart g > rect.bar")) == 1
