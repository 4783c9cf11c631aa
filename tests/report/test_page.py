# SPDX-License-Identifier: Apache-2.0
import csv
import json
import re
from html.parser import HTMLParser

import pytest
from _helpers.pages import ROOT
from _helpers.runs import (
    COMPARED,
    add_diversity,
    changed,
    found,
    make_run,
    record,
    write_evaluation,
    write_notes,
)

from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.findings.finding import Area, FaultKind, Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.functional.diagnosis.kinds import KINDS
from genmonitor.report import write_report
from genmonitor.report.answers import DOCS

EVIL = '</script><script>alert("x")</script>{{ 7 * 7 }}<img src=x onerror=alert(1)>'


class Tags(HTMLParser):
    """The tags of a page, and the text of its elements."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)


def parsed(folder):
    return Tags(write_report(folder).read_text())


def drawn(folder):
    text = write_report(folder).read_text()
    return json.loads(re.search(r'id="drawn">(.*?)</script>', text, re.DOTALL)[1])["sections"]


def test_write_report_gives_the_same_page_again(tmp_path):
    folder = make_run(tmp_path)
    before = {path.name for path in folder.iterdir()}
    path = write_report(folder)
    text = path.read_text()
    assert path == folder / "report.html"
    assert write_report(folder).read_text() == text
    assert {path.name for path in folder.iterdir()} == before | {"report.html", "history.csv"}


def test_page_loads_nothing_from_elsewhere(tmp_path):
    page = parsed(make_run(tmp_path))
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert links
    assert all(link.startswith(("data:", "#", DOCS)) for link in links)  # pages are opened by a click alone
    assert all(value.startswith("data:") for _, x in page.tags for name, value in x.items() if name == "src")
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy


def test_page_shows_text_of_the_users_as_text(tmp_path):
    folder = make_run(tmp_path / "<script>alert(2)<" / "script>")  # a logger's name is a folder's
    add_diversity(folder, [EVIL, "a dog"])
    write_evaluation(folder, 4, title=EVIL, findings=found(EVIL))
    changed(folder, tables={EVIL: {"columns": [EVIL], "rows": [["&lt;b&gt;"]]}})
    page = parsed(folder)
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{}, {"type": "application/json", "id": "drawn"}, {}]
    assert not any("onerror" in attributes for _, attributes in page.tags)
    texts = "".join(page.texts)
    assert texts.count(EVIL) >= 3
    assert "<script>alert(2)</script>" in texts
    assert "&lt;b&gt;" in texts


def test_write_report_that_fails_leaves_the_old_page(tmp_path, monkeypatch):
    folder = make_run(tmp_path)
    before = write_report(folder).read_text()

    def half(*_):
        raise OSError("disk full")

    monkeypatch.setattr("genmonitor._io.os.replace", half)
    with pytest.raises(OSError, match="disk full"):
        write_report(folder)
    assert (folder / "report.html").read_text() == before
    assert not list(folder.glob("*.part*"))


def test_page_without_partition_has_no_map(tmp_path):
    folder = tmp_path / "genmonitor"
    folder.mkdir()
    add_diversity(folder, ["a cat"])
    (section,) = drawn(folder)
    assert section["map"] is None
    titles = [chart["title"] for chart in section["charts"]]
    assert titles[0] == "Modes of 100 images"
    assert "Seconds per evaluation" in titles


def test_page_begins_with_notes_and_the_latest_alerts(tmp_path):
    folder = make_run(tmp_path / "run", evaluations=9)
    alerts = [(number, f"alert {number} <b>") for number in range(1, 9)]
    write_notes(folder, [(None, "the band is too narrow <script>"), *alerts])
    page = write_report(folder).read_text()
    assert '<p class="note">the band is too narrow &lt;script&gt;</p>' in page
    assert re.findall(r'class="note alert">alert (\d)', page) == list("87654321")
    assert page.index("alert 8") < page.index("alert 4") < page.index("Earlier alerts (3)") < page.index("alert 3")
    assert page.index("alert 1") < page.index("Regions of the image (cms)</h2>")
    assert re.findall(r'data-step="(\d+)"', page) == [str(10 * number - 1) for number in range(8, 0, -1)]
    (drawn,) = json.loads(re.search(r'id="drawn">(.*?)</script>', page)[1])["sections"]
    assert [alert["x"] for alert in drawn["charts"][0]["alerts"]] == list(range(8))
    assert not any(chart["alerts"] for chart in drawn["charts"][1:])
    assert "alert 1 <b>" not in page
    assert "notes" not in re.findall(r"<h2>(.*?)</h2>", page)  # no table of them beside


def test_page_begins_with_the_finding_of_each_monitor(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    write_evaluation(folder, 3, findings=found("cluster_2 is <wrong>."))
    add_diversity(folder, ["a cat"])  # without findings
    text = write_report(folder).read_text()
    assert re.findall(r'<div class="texts"><p>(.*?)</p>', text)[:1] == ["cluster_2 is &lt;wrong&gt;."]
    assert "3 evaluations, the last at epoch\n    2 after\n    3,000 training images." in text


def test_page_says_an_alert_once_unless_it_is_the_finding(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    write_evaluation(folder, 3, findings=[found("too dark.")[0], found("got worse.")[0]])
    for alert, others in ("got worse.", []), ("too dark.", ["got worse."]):
        write_notes(folder, [(2, alert)])
        text = write_report(folder).read_text()
        assert re.findall(r'<div class="texts">(.*?)</div>', text) == [
            "".join(f"<p>{x}</p>" for x in ("too dark.", *others))
        ]
        assert f'class="note alert">{alert}' in text


@pytest.mark.parametrize(
    ("standing", "end"), [([True, True, True], None), ([True, False, True], 2), ([True, True, False], 3)]
)
def test_alert_is_over_at_the_first_later_evaluation_without_it(tmp_path, standing, end):
    folder = make_run(tmp_path, evaluations=1)
    for number, stands in enumerate(standing, 2):
        write_evaluation(folder, number, wrong=["cluster_1", *(["cluster_2"] if stands else [])])
    write_notes(folder, [(2, "cluster_2 got worse.")])
    text = write_report(folder).read_text()
    assert ('class="note alert">cluster_2 got worse.' in text) == (end is None)
    assert re.findall(r"Over since epoch (\d)", text) == ([] if end is None else [str(end)])


def test_note_about_an_evaluation_is_no_alert(tmp_path):
    folder = make_run(tmp_path)
    changed(folder, notes=[{"epoch": 1, "step": 19, "text": "The evaluation of epoch 1 failed and was skipped."}])
    text = write_report(folder).read_text()
    assert '<p class="note">The evaluation of epoch 1 failed and was skipped.</p>' in text
    assert "<h3>Alerts</h3>" not in text


@pytest.mark.parametrize(("fine", "mark"), [(True, "fine"), (False, "wrong"), (None, "")])
def test_page_gives_the_verdict_of_any_evaluator(tmp_path, fine, mark):
    """It knows no monitor by name: one of the user's own has title, verdict and charts as it declares them."""
    folder = tmp_path / "genmonitor"
    folder.mkdir()
    verdict = Finding("The left half is too dark.", Area("left half"), "too dark", "left", fine).to_dict()
    values = {"epoch": 0, "step": 9, "left": -0.2}
    mine = {"monitor": "Mine", "title": "Brightness of my images", "findings": [verdict], "partition": None}
    declared = [ValueSpec("left", scale="signed", chart="Brightness").to_dict()]
    write_evaluation(folder, 1, "mine", evaluation=values, baseline={}, declared=declared, **mine)
    text = write_report(folder).read_text()
    assert f'class="finding {mark}"' in text
    assert '<div class="texts"><p>The left half is too dark.</p></div>' in text
    assert "Brightness of my images (mine)</h2>" in text
    (section,) = drawn(folder)
    assert [(chart["title"], chart["scale"]) for chart in section["charts"]] == [("Brightness", "signed")]


@pytest.mark.parametrize("name", [*KINDS, "mine"])
def test_page_shows_where_a_kind_of_fault_is_pictured(tmp_path, name):
    folder = make_run(tmp_path)
    kind = FaultKind(name, 0.8, "px", 0.9)
    verdict = Finding("Wrong.", Area("left half"), name, None, False, kinds=(kind,), cause="Usual cause: one.")
    write_evaluation(folder, 3, findings=[verdict.to_dict()])
    page = parsed(folder)
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a" and "kinds" in attributes["href"]]
    assert links == (
        [] if name == "mine" else [f"https://github.com/genmonitor/genmonitor/blob/main/docs/pictures/kinds/{name}.png"]
    )
    pictures = ROOT / "docs" / "pictures" / "kinds"
    assert not pictures.exists() or name == "mine" or (pictures / f"{name}.png").exists()


def test_page_draws_what_a_broken_band_leaves(tmp_path):
    folder = make_run(tmp_path)
    write_evaluation(folder, 3, baseline={"cluster_1": [0.9, float("nan"), 0.99], "cluster_2": [0.96, 0.97, 0.98]})
    (section,) = drawn(folder)
    assert [series["band"] for series in section["charts"][0]["series"]] == [None, [0.96, 0.97, 0.98], None]
    data = re.search(r'id="drawn">(.*?)</script>', (folder / "report.html").read_text(), re.DOTALL)[1]
    assert not re.search(r"\b(NaN|Infinity)\b", data)  # which no browser reads


def test_page_shows_no_negative_zero(tmp_path):
    folder = make_run(tmp_path)
    write_evaluation(folder, 3, evaluation=record(3, share_constant=-0.001))
    text = write_report(folder).read_text()
    assert 'data-label="share" class="wide">0 %</td>' in text
    assert "-0 %" not in text


def test_page_names_a_run_that_it_could_not_read(tmp_path):
    folder = make_run(tmp_path)
    add_diversity(folder, ["a cat"])
    (folder / "cms_run.json").write_text("{half")
    text = write_report(folder).read_text()
    assert re.search(r'class="note alert">Missing here: .*cms_run.json is not: .*take it out of the folder', text)
    assert "Variety of the samples" in text


def test_page_of_regions_that_changed_is_written(tmp_path):
    folder = make_run(tmp_path)
    lacking = {name: value for name, value in record(3).items() if "constant" not in name and name != "cluster_1"}
    write_evaluation(folder, 3, evaluation=lacking)
    (section,) = drawn(folder)
    values = {series["name"]: series["values"] for series in section["charts"][0]["series"]}
    assert values["constant"] == [1.0, 1.0, None]


def test_page_of_a_manifest_with_little_in_it_is_written(tmp_path):
    folder = tmp_path / "genmonitor"
    folder.mkdir()
    changed(folder, "x", evaluations=[{"values": {}, "message": ""}])
    (section,) = drawn(folder)
    assert section["charts"] == []
    assert not any(attributes.get("class") == "chart" for _, attributes in parsed(folder).tags)  # nothing to draw there


def test_page_of_a_comparison_names_both_sets(tmp_path):
    folder = make_run(tmp_path, evaluations=0)
    values = {name: value for name, value in record(1).items() if name not in ("epoch", "step", "images_seen")}
    ratios = {"error_ratio_image": 2.0, "error_ratio_1": 1.0, "error_ratio_2": 3.0}
    write_evaluation(folder, 1, evaluation=values | ratios, **COMPARED, n_samples=500, best_key="error_ratio_image")
    changed(folder, declared=[spec.to_dict() for spec in RegionValues(["cluster_1", "cluster_2", "constant"]).specs])
    text = " ".join(write_report(folder).read_text().split())
    assert '<h2 id="cms-title">samples/ compared with real.npy</h2>' in text
    assert "500 images of each. Point at a region, its number in the chart" in text
    (section,) = drawn(folder)
    (chart,) = section["charts"]  # of what "most in" goes by
    assert (chart["title"], chart["by"], chart["rule"]) == ("Error ratio", "", 1.0)


@pytest.mark.parametrize("stability", [{}, {"overall": 0.9, "cluster_1": 0.875}])
def test_page_says_where_regions_are_and_how_stable_where_that_is_known(tmp_path, stability):
    folder = make_run(tmp_path, evaluations=1)
    write_evaluation(folder, 1, evaluation=record(1), stability=stability)
    texts = [text.strip() for text in parsed(folder).texts]
    assert "where" in texts
    assert ("stability" in texts) == ("0.88" in texts) == bool(stability)


def test_history_has_a_row_for_each_evaluation_of_any_monitor(tmp_path):
    folder = make_run(tmp_path, evaluations=3)
    add_diversity(folder, ["a cat"], evaluations=2)
    write_report(folder)
    with (folder / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "9"), ("1", "19"), ("2", "29")]
    assert [float(row["cms/cluster_2"]) for row in rows] == [record(number)["cluster_2"] for number in (1, 2, 3)]
    assert [row["diversity/vendi"] for row in rows] == ["6.0", "7.0", ""]
