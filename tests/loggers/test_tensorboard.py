# SPDX-License-Identifier: Apache-2.0
import io
import re
from html import unescape

import lightning.pytorch.loggers
import pytest
from _helpers.logged import read_tensorboard, shown_by_tensorboard
from _helpers.loggers import CHARTS, AnyLogger, both_namespaces, cluster_figures
from PIL import Image
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from genmonitor.evaluation.results import Alert
from genmonitor.loggers.tensorboard import TensorBoardBackend, as_markdown


@pytest.fixture
def logger(tmp_path):
    return lightning.pytorch.loggers.TensorBoardLogger(tmp_path / "tb")


def read_back(logger):
    logger.experiment.flush()
    return read_tensorboard(logger.log_dir)


def layout_of(events):
    layout = Layout()
    layout.ParseFromString(events.Tensors("custom_scalars__config__")[-1].tensor_proto.string_val[0])
    return {
        category.title: {chart.title: list(chart.multiline.tag) for chart in category.chart}
        for category in layout.category
    }


def text_of(event):
    return event.tensor_proto.string_val[0].decode()


@both_namespaces
def test_figures_are_images_at_the_trainers_step(namespace, tmp_path):
    logger = namespace.TensorBoardLogger(tmp_path)
    figures = cluster_figures()
    TensorBoardBackend(logger).log_figures(figures, step=7, epoch=3)
    (image,) = read_back(logger).Images("cms/cluster_map")
    assert image.step == 7
    sent = Image.open(io.BytesIO(image.encoded_image_string)).convert("RGB")
    kept = Image.open(io.BytesIO(figures["cms/cluster_map"])).convert("RGB")
    assert sent.size == (760, 600)
    assert sent.tobytes() == kept.tobytes()


@both_namespaces
def test_layout_has_all_regions_in_one_chart(namespace, tmp_path):
    logger = namespace.TensorBoardLogger(tmp_path)
    TensorBoardBackend(logger).log_layout("cms", CHARTS)
    charts = layout_of(read_back(logger))["cms"]
    keys = [f"cms/{name}" for names in CHARTS.values() for name in names]
    matching = {title: [k for k in keys if any(re.match(p, k) for p in tags)] for title, tags in charts.items()}
    assert matching == {title: [f"cms/{name}" for name in names] for title, names in CHARTS.items()}


def test_layout_pattern_draws_one_scalar_only(logger):
    TensorBoardBackend(logger).log_layout("cms", {"first": ["cluster_1"]})
    (pattern,) = layout_of(read_back(logger))["cms"]["first"]
    assert re.match(pattern, "cms/cluster_1")
    assert not re.search(pattern, "cms/cluster_10")
    assert not re.search(pattern, "other/cms/cluster_1")


def test_layout_is_shared_by_the_monitors_of_a_run(logger):
    TensorBoardBackend(logger).log_layout("cms", {"a": ["image"]})
    TensorBoardBackend(logger).log_layout("diversity", {"b": ["rke"]})
    assert set(layout_of(read_back(logger))) == {"cms", "diversity"}


def test_keys_begin_with_the_loggers_own_prefix(tmp_path):
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path, prefix="run")
    backend = TensorBoardBackend(logger)
    logger.log_metrics({"cms/image": 0.9}, step=1)
    backend.log_layout("cms", {"image": ["image"]})
    backend.log_figures(cluster_figures(), 1, None)
    backend.log_finding("cms/finding", "cluster_1 differs", 1)
    backend.log_alert(Alert("title", "text"), 1)
    events = read_back(logger)
    (pattern,) = layout_of(events)["cms"]["image"]
    assert [tag for tag in events.Tags()["scalars"] if re.match(pattern, tag)] == ["run-cms/image"]
    assert events.Tags()["images"] == ["run-cms/cluster_map"]
    texts = {tag.removesuffix("/text_summary") for tag in events.Tags()["tensors"] if tag.endswith("/text_summary")}
    assert texts == {"run-cms/finding", "run-alerts"}


def test_alert_is_shown_as_it_is(logger):
    TensorBoardBackend(logger).log_alert(Alert("cluster_3 got worse", "*0.91*\n<b>below</b> its baseline"), step=5)
    (event,) = read_back(logger).Tensors("alerts/text_summary")
    assert event.step == 5
    lines = text_of(event).split("\n")
    assert [line.strip() for line in lines] == ["cluster_3 got worse", "", "*0.91*", "<b>below</b> its baseline"]
    html = shown_by_tensorboard(text_of(event))
    assert set(re.findall(r"</?([a-z0-9]+)", html)) == {"pre", "code"}  # nothing of the text has an effect
    assert "&lt;b&gt;below&lt;/b&gt;" in html


def test_finding_is_shown_as_it_is_a_paragraph_each(logger):
    TensorBoardBackend(logger).log_finding("cms/finding", "Corner: *red* + 0.1.\n<b>All</b> regions differ.", step=5)
    (event,) = read_back(logger).Tensors("cms/finding/text_summary")
    html = shown_by_tensorboard(text_of(event))
    assert re.findall(r"</?([a-z0-9]+)", html) == ["p", "p", "p", "p"]
    shown = unescape(html)
    assert "*red* + 0.1." in shown
    assert "<b>All</b> regions differ." in shown


def test_handles_what_writes_like_a_summary_writer(logger):
    class Writer:
        def add_figure(self): ...
        def add_text(self): ...

    assert TensorBoardBackend.handles(logger, logger.experiment)
    assert TensorBoardBackend.handles(AnyLogger(), Writer())
    assert not TensorBoardBackend.handles(AnyLogger(), None)


def test_writer_without_layout_is_enough():
    logger = AnyLogger(object())
    backend = TensorBoardBackend(logger)
    backend.log_layout("cms", CHARTS)
    assert logger.logged == []


HOSTILE = [
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](https://example.com/seen.png)",
    "a | b",
    "*a* _b_ `c` ~~d~~ # e",
    "<b onclick=alert(1)>cat</b>",
    "&lt;script&gt;",
    "| --- |",
    "=cmd|' /C calc'!A0",
    "1. one",
    "\\[x\\](y)",
    "un chat, \u732b, \U0001f408",
]


def test_as_markdown_leaves_only_letters_and_digits():
    escaped = as_markdown("".join(HOSTILE))
    assert re.fullmatch(r"(&#\d+;|[\w ]|[^\x00-\x7f])*", escaped)


def test_as_markdown_drops_breaks_and_marks_of_direction():
    assert as_markdown("a\n\n# b\u202ec\x1b[0m") == "a &#35; b\ufffdc\ufffd&#91;0m"
