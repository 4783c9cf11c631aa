# SPDX-License-Identifier: Apache-2.0
"""Pages are short, and the words that a person types into the search are on them."""

import json
import re
import sys

import pytest
from _helpers.pages import PAGES, ROOT

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

pytestmark = pytest.mark.skipif(not PAGES, reason="needs the repository: docs/ is not beside the tests")

LONGEST = 1200
"""Largest number of words of a page; papers, tables of benchmarks, the changelog and the list of keys are looked up."""
LOOKED_UP = re.compile(r"docs/(papers|api|benchmarks)/|docs/(changelog|keys)\.md")
SEARCHED = (
    *("checkerboard", "wandb", "parquet", "latex", "best checkpoint", "mode collapse", "EMA", "clip_sample"),
    *("washed out", "color cast", "ringing", "grid"),
)


def written(page):
    """Return a page as the site has it, with sections of kinds and parts of CONTRIBUTING.md."""
    import gallery

    text = gallery.PLACE.sub(
        lambda match: getattr(gallery, {"kinds": "gallery"}.get(match[1], match[1]))(match[2]), page
    )
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    pattern = r'```{include} \.\./CONTRIBUTING\.md\n:start-after: "(.+)"\n:end-before: "(.+)"\n```'
    return re.sub(pattern, lambda x: contributing.partition(x[1])[2].partition(x[2])[0], text)


def words(text):
    """Return the number of words, without table rules, addresses and pictures."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return len(re.findall(r"[^\s|]*\w[^\s|]*", shown))


@pytest.mark.parametrize("page", [page for page in PAGES if not LOOKED_UP.match(page)])
def test_no_page_is_long(page):
    assert words(written(PAGES[page])) <= LONGEST


def test_the_notebook_is_short():
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    assert words("\n".join("".join(cell["source"]) for cell in cells)) <= LONGEST


@pytest.mark.parametrize("typed", SEARCHED)
def test_what_is_typed_into_the_search_is_on_a_page(typed):
    """The search finds pages with all of the words."""
    found = [page for page, text in PAGES.items() if all(re.search(rf"\b{word}", text, re.I) for word in typed.split())]
    assert [page for page in found if not LOOKED_UP.match(page) and page != "README.md"]
