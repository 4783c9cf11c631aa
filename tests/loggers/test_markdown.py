# SPDX-License-Identifier: Apache-2.0
import re
from html import unescape

import pytest
from _helpers.logged import shown_by_tensorboard

from genmonitor.loggers.markdown import as_markdown, markdown_table

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


@pytest.mark.parametrize("prompt", HOSTILE)
def test_markdown_table_shows_text_as_it_was_written(prompt):
    html = shown_by_tensorboard(markdown_table(["prompt", "share"], [[prompt, 0.25], ["after", 1.0]]))
    cells = [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", html, re.DOTALL)]
    assert cells == [prompt, "0.25", "after", "1"]
    assert set(re.findall(r"</?([a-z0-9]+)", html)) == {"table", "thead", "tbody", "tr", "th", "td"}


def test_as_markdown_leaves_only_letters_and_digits():
    escaped = as_markdown("".join(HOSTILE))
    assert re.fullmatch(r"(&#\d+;|[\w ]|[^\x00-\x7f])*", escaped)


def test_as_markdown_drops_breaks_and_marks_of_direction():
    assert as_markdown("a\n\n# b\u202ec\x1b[0m") == "a &#35; b\ufffdc\ufffd&#91;0m"
