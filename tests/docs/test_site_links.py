# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from _helpers.pages import PAGES, ROOT

pytestmark = pytest.mark.skipif(not PAGES, reason="needs the repository: docs/ is not beside the tests")
sys.path.insert(0, str(ROOT / "docs" / "_ext"))


def site(folder, body, css=""):
    (folder / "sub").mkdir()
    (folder / "index.html").write_text(f"<html><head><link rel='stylesheet' href='site.css'></head>{body}</html>")
    (folder / "sub" / "other page.html").write_text("<h2 id='here'>Here</h2><a href='../index.html'>back</a>")
    (folder / "site.css").write_text(css)
    from site_links import problems

    return problems(folder)


@pytest.mark.parametrize(
    "body",
    [
        "<a href='sub/other%20page.html#here'>there</a>",
        "<a href='https://example.org/paper#page'>a paper</a>",
        "<img src='data:image/png;base64,AAAA'>",
    ],
)
def test_good_links_are_no_problem(tmp_path, body):
    assert site(tmp_path, body, "p { background: url(data:image/png;base64,AAAA) }") == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<img src='missing.png'>", "index.html links to missing.png, but there is no such file"),
        ("<a href='sub/'>x</a>", "index.html links to sub/, but there is no such file"),
        (
            "<a href='sub/other%20page.html#there'>x</a>",
            "index.html links to sub/other%20page.html#there, but there is no such place on that page",
        ),
        (
            "<script src='https://cdn.example.org/x.js'></script>",
            "index.html loads https://cdn.example.org/x.js from the network",
        ),
    ],
)
def test_bad_links_are_named(tmp_path, body, problem):
    assert site(tmp_path, body) == [problem]


def test_fonts_from_the_network_are_named(tmp_path):
    css = "@import 'https://fonts.example.org/css'; p { src: url(//fonts.example.org/f.woff2) }"
    assert site(tmp_path, "", css) == [
        "site.css loads https://fonts.example.org/css from the network",
        "site.css loads //fonts.example.org/f.woff2 from the network",
    ]


PARTS = {  # what axe-core found on the theme's pages, and what it takes
    '<p class="caption" role="heading">': 'aria-level="2"',
    '<aside class="sidebar-drawer">': 'aria-label="All pages"',
    '<aside class="toc-drawer no-toc">': 'aria-label="On this page"',
    '<div class="content-icon-container">': 'role="navigation"',
    '<th class="head"><p></p></th>': "<td></td>",
    "<pre>": "tabindex",
    '<div class="table-wrapper docutils">': "tabindex",
    '<article role="main" id="furo-main-content">\n  <noscript>': "<h1>",
    '<dl>\n<dd><em class="sig-param">n</em>,</dd>\n</dl>': '<div><em class="sig-param">n</em>,</div>',
}


@pytest.mark.parametrize("written", PARTS)
def test_pages_are_open_to_keyboards_and_screen_readers(written):
    from accessible import repaired

    assert PARTS[written] in repaired(written)
    assert repaired(f"{written}<p>x</p>").endswith("<p>x</p>")
