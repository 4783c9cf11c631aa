# SPDX-License-Identifier: Apache-2.0
"""The gallery has a section for each kind: a picture, the diagnosis' finding, its cause and a source."""

import json
import re
import subprocess
import sys

import pytest
from _helpers.pages import PAGES, ROOT
from PIL import Image

from genmonitor.functional.diagnosis.kinds import KINDS

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

pytestmark = pytest.mark.skipif(not PAGES, reason="needs the repository: docs/ is not beside the tests")

FOLDER = ROOT / "docs" / "pictures" / "kinds"


def sections():
    """Return the gallery's sections by their titles."""
    import gallery

    places = [match for text in PAGES.values() for match in gallery.PLACE.findall(text)]
    groups = [group for what, group in places if what == "kinds"]
    assert sorted(groups) == sorted(group for what, group in set(places) if what == "links")
    text = "\n".join(map(gallery.gallery, groups))
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def words_of(kind):
    """Return the words for a kind at any strength: the longest part without a number."""
    return max(re.split(r"\{\w+\}", KINDS[kind].words), key=len).strip()


def test_every_kind_has_a_section_with_its_picture():
    found = sections()
    assert sorted(found) == sorted(name.replace("_", " ").capitalize() for name in KINDS)
    assert {path.stem for path in FOLDER.glob("*.png")} == KINDS.keys()
    for name in KINDS:
        assert f"(pictures/kinds/{name}.png)" in found[name.replace("_", " ").capitalize()]


@pytest.mark.parametrize("name", KINDS)
def test_the_diagnosis_named_the_kind_in_its_picture(name):
    said = json.loads((FOLDER / "said.json").read_text(encoding="utf-8"))[name]
    expected = {"color": "red +", "copies": "near twin", "shifted": "shifted by", "clipped": "clipped by"}
    assert expected.get(name, words_of(name)) in said
    assert re.search(r"explains \d+ %|near twin", said)
    assert said.endswith(").")


@pytest.mark.parametrize("name", KINDS)
def test_a_cause_has_a_source_and_is_shown_with_it(name):
    import gallery

    kind, text = KINDS[name], sections()[name.replace("_", " ").capitalize()]
    assert bool(kind.cause) == bool(kind.source)
    assert kind.remedy in text
    assert kind.change in text
    assert (kind.cause or gallery.UNKNOWN) in text
    for number in re.findall(r"arXiv (\d{4}\.\d{5})", kind.source):
        assert f"(https://arxiv.org/abs/{number})" in text
    years = re.findall(r"\b(?:19|20)\d\d\b(?!\.)", kind.source)
    assert years or "github.com" in kind.source or not kind.source


@pytest.mark.slow
@pytest.mark.nightly
def test_script_draws_a_kind(tmp_path):
    subprocess.run([sys.executable, ROOT / "docs" / "kinds.py", tmp_path, "noisy"], check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noisy.png", "said.json"]
    said = json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))
    assert re.match(r"Lower right corner, 16×16 px: noise 0\.1\d? of the range", said["noisy"])
    with Image.open(tmp_path / "noisy.png") as new, Image.open(FOLDER / "noisy.png") as committed:
        assert new.size == committed.size
