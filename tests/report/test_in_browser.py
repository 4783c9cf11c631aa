# SPDX-License-Identifier: Apache-2.0
"""The report as a person sees it: a real browser opens it from file:// and points at things."""

import io
import re
from xml.etree import ElementTree

import pytest
import torch
from _helpers.browser import browser, complaints, inaccessible, requested
from _helpers.runs import (
    BASELINE,
    COMPARED,
    add_diversity,
    changed,
    make_run,
    record,
    write_evaluation,
    write_notes,
    write_strip,
)
from matplotlib.figure import Figure
from PIL import Image

from genmonitor._formatting import format_cms, significant
from genmonitor.findings.finding import Area, FaultKind, Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.report import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of 200 evaluations whose prompts would run a script, and of two monitors with a figure of one name."""
    run = tmp_path_factory.mktemp("run")
    folder = make_run(run, evaluations=200)
    write_notes(folder, [(199, "cluster 2 fell")])
    write_strip(folder, "real", [0.1, 0.2])
    for number in (1, 100, 200):
        captions = ["a cat", "<b>a dog</b>"]
        write_strip(folder, "images", [number / 200, 0.0], number, nearest=True, captions=captions)
    add_diversity(folder, ["<script>document.title = 'run'</script>", "<img src=x onerror=\"document.title='run'\">"])
    for prefix in ("cms", "diversity"):
        Figure(figsize=(2, 1)).savefig(folder / f"{prefix}_modes.png")
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
    assert len(find(opened, ".chart path.curve")) > 5


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


def test_page_writes_sizes_as_the_terminal_does(opened):
    sizes = [0.0, 3.21e-8, -2.5e-5, 0.03125, 12.345678, 123456.7]
    assert opened.execute_script("return arguments[0].map(shown)", sizes) == [significant(x, 5) for x in sizes]


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
    point_at(opened, row)  # not behind the slider at the bottom
    row.click()
    point_at(opened, find(opened, "h1")[0])
    assert lit(opened, ".map") == {"1"}
    point_at(opened, row)
    row.click()
    point_at(opened, find(opened, "h1")[0])
    assert lit(opened, ".map") == set()


def brightness(opened, canvas):
    """Return the red of a canvas at the middle of its left half."""
    script = "const c = arguments[0]; return c.getContext('2d').getImageData(c.width >> 2, c.height >> 1, 1, 1).data[0]"
    return opened.execute_script(script, canvas)


def until(opened, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(opened, 20).until(condition)


def test_one_slider_moves_everything_on_the_page(opened, page):
    from selenium.webdriver.common.keys import Keys

    opened.get(page)
    (slider,) = find(opened, 'input[type="range"]')
    said = find(opened, ".moment output")[0]
    assert said.text == "epoch 199, step 1999"
    now = [chart.find_element("css selector", ".now").rect["x"] for chart in find(opened, ".chart")[:3]]
    until(opened, lambda page: [brightness(page, x) for x in find(page, ".side:last-child canvas")] == [255, 0])
    slider.send_keys(Keys.HOME)
    assert said.text == slider.get_attribute("aria-valuetext") == "epoch 0, step 9"
    earlier = [chart.find_element("css selector", ".now").rect["x"] for chart in find(opened, ".chart")[:3]]
    assert all(before > after for before, after in zip(now, earlier, strict=True))
    until(opened, lambda page: [brightness(page, x) for x in find(page, ".side:last-child canvas")] == [1, 0])
    assert find(opened, ".side:last-child h4")[0].text == "Generated images, epoch 0"
    (text,) = find(opened, "#findings article:first-of-type .texts p")
    assert text.get_attribute("textContent") == "largest contributor at epoch 0: cluster_2"
    find(opened, '.moment [data-by="1"]')[0].click()
    assert said.text == "epoch 1, step 19"
    assert opened.current_url == f"{page}#epoch=1"
    find(opened, "#findings .go")[0].click()
    assert said.text == "epoch 198, step 1989"
    shown = find(opened, ".side:last-child h4")[0].text
    assert shown == "Generated images, epoch 99: the last before the evaluation shown"


def test_address_names_the_evaluation(opened, page):
    opened.get("about:blank")
    opened.get(f"{page}#epoch=7")
    assert find(opened, ".moment output")[0].text == "epoch 7, step 79"


def test_first_screen_answers_with_figures_of_the_same_evaluation(opened, tmp_path):
    folder, wide = make_run(tmp_path, evaluations=0), torch.tensor([[False] * 4, [True, True, False, False]])
    for number, ratio in enumerate((40.0, 28.0, 67.0), 1):
        kinds = (FaultKind("noisy", number / 10, "of the range", 0.6),)
        area = Area("lower left", mask=wide)
        finding = Finding("Noise.", area, "", None, False, 0.001, kinds=kinds).to_dict()
        values = record(number, error_ratio_image=ratio)
        write_evaluation(folder, number, evaluation=values, headlines=[finding], findings=[finding])
        if number != 2:
            write_strip(folder, "diagnosis", [0.2, 0.9], number, captions=["real", "generated"])
    page = write_report(folder).as_uri()
    opened.get("about:blank")
    opened.get(page)
    strip = find(opened, ".strip")[0]
    for answer in (
        "Worse than best (28 at epoch 1)",
        "40 → 67 × real",
        "lower left",
        "noise 0.3 of the range",
        "60 % explained",
    ):
        assert answer in strip.text
    for answer in ("yes", "p = 0.001", "epoch 1", "28 × real"):
        assert answer in strip.text
    until(opened, lambda page: len(find(page, ".examples canvas")) == 2)
    assert find(opened, ".tile path")[0].get_attribute("d") == "M0 1L0 2M2 1L2 2M0 1L2 1M0 2L2 2"
    assert find(opened, ".diagnosis > figcaption")[0].text == ""
    assert find(opened, ".shares .legend")[0].text.split("\n") == ["noise 0.3 of the range 60 %", "not explained 40 %"]
    find(opened, '.moment [data-by="-1"]')[0].click()
    assert "40 → 28 × real" in strip.text
    assert find(opened, ".diagnosis > figcaption")[0].text.startswith("Pictures of epoch 0, step 9")
    assert "noise 0.1 of the range 60 %" in find(opened, ".shares")[0].text
    assert complaints(opened) == []


def test_click_on_a_chart_moves_the_slider(opened, page):
    opened.get(page)
    point_at(opened, find(opened, ".chart svg")[1], right=0.5)
    find(opened, ".chart svg")[1].click()
    assert 60 < int(find(opened, ".moment output")[0].text.split()[1].strip(",")) < 140


def test_real_images_stand_beside_generated_ones(opened, page):
    opened.get(page)
    until(opened, lambda page: len(find(page, ".side")) == 2)
    real, generated = find(opened, ".side")
    assert [real.text, generated.text.splitlines()[0]] == ["Real images", "Generated images, epoch 199"]
    assert [brightness(opened, x) for x in real.find_elements("css selector", "canvas")] == [26, 51]
    captions = generated.find_elements("css selector", "figcaption")
    assert [caption.text for caption in captions] == ["a cat", "<b>a dog</b>"]
    assert real.rect["y"] == generated.rect["y"]
    assert real.rect["x"] + real.rect["width"] <= generated.rect["x"]


def choose(opened, number, text):
    from selenium.webdriver.support.ui import Select

    Select(find(opened, ".choices select")[number]).select_by_visible_text(text)


def test_nearest_real_image_of_each_sample_is_shown(opened, page):
    opened.get(page)
    choose(opened, 1, "the nearest real image of each")
    pairs = until(opened, lambda page: find(page, ".pairs figure"))
    seen = [[brightness(opened, x) for x in pair.find_elements("css selector", "canvas")] for pair in pairs]
    assert seen == [[255, 0], [0, 255]]
    assert [pair.text for pair in pairs] == ["a cat, 0.00 × usual", "<b>a dog</b>, 0.50 × usual"]


def test_zoom_shows_one_region_alone(opened, page):
    opened.get(page)
    choose(opened, 0, "cluster 2 (upper right) alone")
    size = "return [arguments[0].width / arguments[0].height]"  # columns 2 and 3, rows 0 to 1 of 3
    assert until(opened, lambda page: page.execute_script(size, find(page, ".side canvas")[0]) == [1.0])
    choose(opened, 0, "whole images")
    assert until(opened, lambda page: page.execute_script(size, find(page, ".side canvas")[0]) == [4 / 3])


def downloaded(opened, page, kind):
    """Return the bytes that the button of the second chart for a kind of file saves."""
    opened.get(page)
    opened.execute_script("""
        window.files = [];
        URL.createObjectURL = (blob) => {
          blob.arrayBuffer().then((bytes) => window.files.push(Array.from(new Uint8Array(bytes))));
          return "data:,";
        };
    """)
    (button,) = find(opened, f'#cms .chart[data-chart="1"] [aria-label="Download CMS of image and product as {kind}"]')
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    (file,) = until(opened, lambda page: page.execute_script("return window.files"))
    return bytes(file)


def test_chart_is_downloaded_as_csv(opened, page):
    head, first, *_, last = downloaded(opened, page, "CSV").decode().splitlines()
    assert head == "epoch,image,product"
    assert [float(x) for x in first.split(",")] == pytest.approx([0, 0.45, 0.45])
    assert [float(x) for x in last.split(",")] == pytest.approx(
        [199, record(200)["image"], record(200)["image"]], abs=1e-6
    )


def test_chart_is_downloaded_as_a_drawing_that_needs_no_page(opened, page):
    root = ElementTree.fromstring(downloaded(opened, page, "SVG").decode())
    curves = [node for node in root.iter("{http://www.w3.org/2000/svg}path") if "curve" in node.get("class", "")]
    assert len(curves) == 2
    styles = [dict(part.split(":", 1) for part in curve.get("style").split(";")) for curve in curves]
    assert all(style["fill"] == "none" and style["stroke-width"] == "2px" for style in styles)
    assert len({style["stroke-dasharray"] for style in styles}) == 2
    assert all(re.fullmatch(r"rgb\(\d+, \d+, \d+\)", style["stroke"]) for style in styles)
    assert not any(re.search(r"var\(|oklab", node.get("style", "")) for node in root.iter())


def test_chart_is_downloaded_as_pixels(opened, page):
    picture = Image.open(io.BytesIO(downloaded(opened, page, "PNG")), formats=["PNG"]).convert("RGB")
    width = opened.execute_script("return document.querySelector('.chart[data-chart=\"1\"] svg').viewBox.baseVal.width")
    assert picture.width == pytest.approx(3 * width, abs=3)
    assert len(picture.getcolors(10**6)) > 10


@pytest.mark.parametrize("clipboard", [True, False])
def test_charts_and_tables_are_copied_by_keyboard(opened, page, clipboard):
    """A frame of a notebook or of TensorBoard has no clipboard: there the browser's own copying is heard."""
    opened.get(page)
    opened.execute_script(
        """
        window.copied = [];
        const taken = {writeText: (text) => { window.copied.push(text); return Promise.resolve(); }};
        Object.defineProperty(navigator, "clipboard", {value: arguments[0] ? taken : undefined});
        document.addEventListener("copy", () => window.copied.push(document.activeElement.value));
        """,
        clipboard,
    )
    names = ("Copy CMS of image and product", "Copy Regions at the last evaluation (cms)")
    for number, name in enumerate(names, 1):
        (button,) = find(opened, f'[aria-label="{name}"]')
        opened.execute_script("arguments[0].focus()", button)
        opened.switch_to.active_element.send_keys("\n")
        until(opened, lambda page, number=number: page.execute_script("return window.copied.length") == number)
        assert button.text == "Copied"
        assert opened.switch_to.active_element == button
    chart, table = opened.execute_script("return window.copied")
    assert chart.splitlines()[0] == "epoch\timage\tproduct"
    assert len(chart.splitlines()) == 201
    head, *rows = table.splitlines()
    assert head.startswith("region\twhere\tsites\tagainst real images\t")
    assert [row.split("\t")[0] for row in rows] == ["cluster 2", "cluster 1", "constant"]


def test_contents_lead_to_every_part(opened, page):
    opened.get(page)
    links = [link.get_attribute("href").rpartition("#")[2] for link in find(opened, "nav a, .skip")]
    assert {"findings", "cms", "cms-curves", "cms-regions", "cms-images", "diversity"} <= set(links)
    assert all(find(opened, f'[id="{link}"]') for link in links)
    nav, first = find(opened, "nav")[0].rect, find(opened, "h1")[0].rect
    assert nav["x"] + nav["width"] <= first["x"]  # at the side


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1300])
def test_page_is_accessible_and_legible(page, tmp_path, dark, width):
    with browser(tmp_path, dark=dark, width=width) as opened:
        opened.get(page)
        choose(opened, 1, "the nearest real image of each")
        until(opened, lambda page: find(page, ".pairs figure"))
        assert inaccessible(opened) == []  # as it opens, with charts that are not drawn yet
        opened.execute_script("document.querySelectorAll('details').forEach((x) => { x.open = true; })")
        assert inaccessible(opened) == []
        sizes = opened.execute_script("""
            const texts = [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility()
                && [...node.childNodes].some((x) => x.nodeType === 3 && x.textContent.trim()));
            const plain = texts.filter((node) => !node.closest(".map"));
            return plain.map((node) => parseFloat(getComputedStyle(node).fontSize));
        """)
        assert min(sizes) >= 11
        assert opened.execute_script("return document.documentElement.scrollWidth") <= width


def test_numbers_in_discs_stand_out_from_their_colors(opened, page):
    opened.get(page)
    pairs = opened.execute_script("""
        return [...document.querySelectorAll(".chart .disc + text")].filter((text) => text.textContent).map((text) =>
            [text, text.previousSibling].map((node) => getComputedStyle(node).fill));
    """)
    assert len(pairs) >= 2
    for ink, paper in pairs:
        assert contrast(opened, ink, paper) >= 4.5


def contrast(opened, *colors):
    """Return the ratio of WCAG 2 between two colors of CSS."""
    pixel = """
        const context = new OffscreenCanvas(1, 1).getContext("2d");
        context.fillStyle = arguments[0]; context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    """
    lights = []
    for color in colors:
        parts = [x / 255 for x in opened.execute_script(pixel, color)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_table_on_a_phone_shows_every_column(page, tmp_path):
    with browser(tmp_path, width=390, height=844) as phone:
        phone.get(page)
        row = find(phone, '.regions tr[data-region="2"]')[0]
        for name in ("share", "CMS"):
            (cell,) = row.find_elements("css selector", f'td[data-label="{name}"]')
            assert cell.is_displayed()
            assert cell.text
            assert 0 <= cell.rect["x"] < cell.rect["x"] + cell.rect["width"] <= 390


def test_pictures_fit_a_phone(tmp_path):
    folder = make_run(tmp_path, evaluations=2, pictures=0)
    Figure(figsize=(9, 5), dpi=100).savefig(folder / "cms_cka.png")
    page = write_report(folder).as_uri()
    with browser(tmp_path, width=390, height=844) as phone:
        phone.get(page)
        phone.execute_script("document.querySelectorAll('details').forEach((x) => { x.open = true; })")
        (image,) = find(phone, "details img")
        assert 300 < image.rect["width"] <= 390
        assert phone.execute_script("return document.documentElement.scrollWidth") <= 390


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
        find(dark, ".lamp")[0].click()
        assert shade(dark) > 240
        find(dark, ".lamp")[0].click()
        assert shade(dark) < 40


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
    lacking = {name: value for name, value in record(4).items() if name not in ("constant", "share_1")}
    band = [0.9, float("nan"), 0.99]
    write_evaluation(folder, 4, evaluation=lacking, baseline={"cluster_1": band, "cluster_2": [0.96, 0.97, 0.98]})
    changed(folder, "x", evaluations=[{"values": {}, "message": ""}])
    (folder / "y_run.json").write_text("{half")
    opened.get(write_report(folder).as_uri())
    assert complaints(opened) == []
    assert len(find(opened, '.chart[data-chart="0"] path.curve')) == 3
    shown = [chart for chart in find(opened, ".chart") if chart.is_displayed()]
    assert all(chart.find_elements("css selector", "svg > *") for chart in shown)
    assert find(opened, ".alert")[0].text.startswith("Missing here: Expected the file of a run, but ")


def test_evaluation_without_a_diagnosis_is_a_gap(opened, tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    specs = [ValueSpec(key, scale="share", chart="What the diagnosis explains") for key in ("explained", "proportions")]
    changed(folder, declared=[spec.to_dict() for spec in specs])
    for number, explained in enumerate((0.5, None, 0.6, 0.7), 1):
        found = {} if explained is None else {"explained": explained, "proportions": 0.1}
        write_evaluation(folder, number, evaluation=record(number) | found)
    opened.get(write_report(folder).as_uri())
    script = "return [...document.querySelectorAll('.chart path.area')].map((x) => [x.style.getPropertyValue('--c'), "
    script += "x.getBBox().width])"
    areas = opened.execute_script(script)
    assert len(areas) == 4  # of each value one for the first evaluation and one for the last two
    assert complaints(opened) == []


def test_figure_says_of_which_evaluation_it_is(opened, tmp_path):
    folder = make_run(tmp_path, evaluations=3, pictures=1)
    opened.get(write_report(folder).as_uri())
    (told,) = (x.text for x in find(opened, ".slider output"))
    assert told == "epoch 0, step 9: the last before the evaluation shown"


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
