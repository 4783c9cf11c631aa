# SPDX-License-Identifier: Apache-2.0
"""Pictures that are none: all are named at once, may be left out, and none starts another program."""

import os
import re
from contextlib import suppress

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from genmonitor._io import no_progress
from genmonitor.cli.outputs import FORMATS, IMAGE_SUFFIXES, PictureError, find_pictures, read_outputs

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n%%Page: 1 1\nshowpage\n%%EOF\n"
GOOD = 4


def read(where, **settings):
    return read_outputs(str(where), None, no_progress, **settings)


@pytest.fixture
def folder(tmp_path):
    """A folder of pictures [4, 6, 3] that can be read."""
    place = tmp_path / "photos"
    place.mkdir()
    for i in range(GOOD):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (4, 6, 3), dtype=np.uint8)).save(place / f"{i}.png")
    return place


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
    """A program that Pillow takes for Ghostscript; return a function that says how often it was started."""
    (tmp_path / "bin").mkdir()
    program, started = tmp_path / "bin" / "gs", tmp_path / "started"
    program.write_text(f"#!/bin/sh\necho $* >> {started}\necho 10.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    return lambda: len(started.read_text().splitlines()) if started.exists() else 0


def test_postscript_would_start_a_program(folder, ghostscript):
    (folder / "x.png").write_bytes(POSTSCRIPT)
    with suppress(Exception), Image.open(folder / "x.png") as image:  # what the program gives back is no picture
        image.load()
    assert ghostscript() > 0


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
def test_postscript_in_a_folder_starts_no_program(folder, ghostscript, suffix):
    (folder / f"x{suffix}").write_bytes(POSTSCRIPT)
    with pytest.raises(ValueError, match=rf"x\{suffix} cannot be read as an image"):
        read(folder)
    with pytest.raises(PictureError, match="cannot be read as an image"):
        find_pictures(folder)[-1].pixels((3, 4, 6))
    assert ghostscript() == 0


def test_formats_are_those_of_the_suffixes():
    known = {suffix: name for suffix, name in Image.registered_extensions().items() if suffix in IMAGE_SUFFIXES}
    assert known.keys() == IMAGE_SUFFIXES
    assert {*known.values()} == {*FORMATS}


def spoil(folder):
    """Put what is no picture into a folder, in every way that is known; return the names."""
    whole = (folder / "0.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    Image.open(folder / "0.png").save(folder / "cut.jpg")
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:-20])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("no picture")
    Image.fromarray(np.zeros((4, 6), dtype=np.uint16)).save(folder / "deep.png")
    frames = [Image.new("L", (6, 4), shade) for shade in (0, 255)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    return ["cut.jpg", "cut.png", "deep.png", "empty.png", "moving.gif", "text.jpg"]


def test_all_that_is_wrong_is_named_at_once(folder):
    names = spoil(folder)
    with pytest.raises(ValueError, match=r"but 6 of 10 files are none: .*; and 1 more\. .*--skip-bad") as caught:
        read(folder)
    assert [name for name in names if f"/{name} " in f"{caught.value} "] == names[:5]


def test_what_is_wrong_may_be_left_out(folder):
    names = spoil(folder)
    found = read(folder, skip_bad=True)
    assert found.names == [f"{i}.png" for i in range(GOOD)]
    assert found.images.read(range(GOOD)).shape == (GOOD, 3, 4, 6)
    (note,) = found.notes
    assert re.match(rf"left out 6 of 10 files of .*photos: .*{names[0]}.*; and 1 more$", note)


def test_a_folder_of_nothing_else_is_refused_all_the_same(tmp_path):
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x\.png cannot be read as an image"):
        read(tmp_path, skip_bad=True)


def test_hidden_files_are_no_pictures(folder):
    (folder / "._0.png").write_bytes(b"\0\5\x16\7")
    assert [name.rpartition("/")[2] for name in read(folder).names] == [f"{i}.png" for i in range(GOOD)]


@pytest.mark.timeout(60)  # a pipe is read for ever
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_picture(folder, make):
    make(folder / "x.png")
    assert len(read(folder).names) == GOOD


def test_gray_images_among_colored_ones_are_noted(folder):
    Image.new("L", (6, 4)).save(folder / "gray.png")
    assert read(folder).notes == (f"1 of 5 images of {folder} are gray, and read as colored ones like the others",)


def test_a_name_behind_a_folder_is_refused(folder):
    with pytest.raises(ValueError, match=r"without a name behind a colon, but got .*photos:images"):
        read(f"{folder}:images")
