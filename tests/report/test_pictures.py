# SPDX-License-Identifier: Apache-2.0
import base64
import io
import signal
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest
from _helpers.runs import make_run, write_picture, write_strip
from matplotlib.figure import Figure
from PIL import Image

from genmonitor.evaluation.results import ShownImages
from genmonitor.plotting.diversity import mode_samples
from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report import RunFolder
from genmonitor.report import pictures as module
from genmonitor.report.pictures import Pictures, _shown, describe_strip, encode_strip, render
from genmonitor.report.run import read_run


def embedded(path):
    return _shown(path)["source"]


def of(folder):
    (run,) = read_run(folder).monitors
    return Pictures([run]), run


def decoded(source):
    return Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))


@pytest.mark.parametrize("count", [1, 2, 24, 25, 200])
def test_sliders_have_the_first_the_last_and_not_too_many(tmp_path, count):
    pictures, run = of(make_run(tmp_path, evaluations=count))
    (slider,) = pictures.sliders(run)
    epochs = [picture["epoch"] for picture in slider["pictures"]]
    assert (len(epochs), slider["of"]) == (min(count, 24), count)
    assert (epochs[0], epochs[-1]) == (0, count - 1)
    assert epochs == sorted(set(epochs))


def test_pictures_are_the_files_pixel_by_pixel(tmp_path):
    write_picture(tmp_path / "gray.png", 0.25)
    with Image.open(tmp_path / "gray.png") as file, decoded(embedded(tmp_path / "gray.png")) as shown:
        assert np.array_equal(np.asarray(file.convert("RGB")), np.asarray(shown.convert("RGB")))


def test_what_is_no_picture_does_not_stop_the_page(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"half a picture")
    assert embedded(tmp_path / "broken.png") == f"data:image/png;base64,{base64.b64encode(b'half a picture').decode()}"


def test_fewer_evaluations_are_shown_where_pictures_are_large(tmp_path, monkeypatch):
    folder = make_run(tmp_path, evaluations=20)
    size = len(base64.b64decode(embedded(next(folder.glob("cms_samples*.png"))).partition(",")[2]))
    monkeypatch.setattr(module, "MAX_BYTES", 5 * size + size + 10)  # the CKA matrix is as large
    pictures, run = of(folder)
    assert [p["epoch"] for p in pictures.sliders(run)[0]["pictures"]] == [0, 5, 10, 14, 19]


def test_strips_count_as_they_are_on_the_page(tmp_path, monkeypatch):
    """What other kinds leave of the room is for them."""
    folder, noise = make_run(tmp_path, evaluations=20), np.random.default_rng(0).random((8, 32, 32, 3))
    for number in range(1, 21):
        RunFolder(folder).write_images("cms", "images", ShownImages(noise), 10 * number - 1, number - 1)
    size = next(folder.glob("cms_images*.webp")).stat().st_size
    monkeypatch.setattr(module, "MAX_BYTES", 8 * size)
    pictures, run = of(folder)
    shown = pictures.images(run)["strips"]
    assert len(shown) == 7
    assert sum(len(base64.b64decode(x["source"].partition(",")[2])) for x in shown) <= 8 * size


def test_images_are_shown_in_place_of_the_figure_of_them(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    write_strip(folder, "real", [0.0, 1.0])
    for number in (1, 2):
        write_strip(folder, "images", [0.2, 0.4], number, nearest=True, captions=["a cat", "a dog"])
    pictures, run = of(folder)
    assert pictures.sliders(run) == []
    images = pictures.images(run)
    assert (images["of"], images["captions"]) == (2, ["a cat", "a dog"])
    assert [(x["epoch"], x["height"], x["nearest"], x["distances"]) for x in images["strips"]] == [
        (epoch, 3, True, [0.0, 0.5]) for epoch in (0, 1)
    ]
    with decoded(images["strips"][0]["source"]) as strip:
        shades = np.asarray(strip.convert("L"))
    assert shades.shape == (6, 8)
    assert shades[[0, 5], 0].tolist() == [51, 102]  # the images below each other
    assert shades[[0, 5], 7].tolist() == [204, 153]  # what is nearest to them at the right
    assert len(images["real"]) == 1


def test_rendered_figure_has_the_figures_own_size():
    rendered = render(cluster_map([[1, 2], [0, 1]]))
    with Image.open(io.BytesIO(rendered)) as picture:
        assert picture.size == (760, 600)
        assert len(picture.convert("RGB").getcolors(10_000)) > 3


def test_rendered_figure_of_a_function_is_what_it_draws():
    labels = [[1, 2], [0, 1]]
    assert render(partial(cluster_map, labels)) == render(cluster_map(labels))


def test_figure_on_the_page_is_light_on_dark_where_the_page_is(tmp_path):
    modes = partial(mode_samples, [1.0], np.full((1, 2, 3, 8, 8), 0.5), [["<a dog>", "in #222222"]])
    path = RunFolder(tmp_path).write_figures("diversity", {"modes": modes}, step=1)["modes"]
    kind, _, content = embedded(path).partition(",")
    root = ElementTree.fromstring(base64.b64decode(content))
    texts = [node for node in root.iter("{http://www.w3.org/2000/svg}text") if node.text]
    assert (kind, [x.text for x in texts][-2:]) == ("data:image/svg+xml;base64", ["<a dog>", "in #222222"])
    # all but the words in the colors of modes
    assert sum("fill: var(--c" in x.get("style") for x in texts) == len(texts) - 2
    (style,) = root.iter("{http://www.w3.org/2000/svg}style")
    assert style.text.endswith("@media(prefers-color-scheme:dark){:root{--c0:#e8e8e8;--c1:#b0b0b0;}}")
    pictures = [
        node.get("{http://www.w3.org/1999/xlink}href") for node in root.iter("{http://www.w3.org/2000/svg}image")
    ]
    assert [x.partition(",")[0] for x in pictures] == ["data:image/webp;base64"] * 2


@pytest.fixture
def interruptible():
    """Ctrl-C raises, also where the tests run under nohup."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_until_the_figure_is_drawn(interruptible):
    finished = []

    def drawing():
        signal.raise_signal(signal.SIGINT)
        finished.append(True)
        return Figure()

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        render(drawing)
    assert finished
    assert signal.getsignal(signal.SIGINT) is before


def test_small_images_are_kept_bit_for_bit():
    levels = np.random.default_rng(0).integers(0, 256, (3, 8, 6, 3))
    shown = ShownImages(levels / 255, ["a", "b", "c"], levels[::-1] / 255, [1.0, 0.25, 0.12345])
    with Image.open(io.BytesIO(encode_strip(shown))) as file:
        pixels = np.asarray(file.convert("RGB"))
    assert np.array_equal(pixels[:, :6], levels.reshape(24, 6, 3))
    assert np.array_equal(pixels[:, 6:], levels[::-1].reshape(24, 6, 3))
    about = {"height": 8, "nearest": True, "captions": ["a", "b", "c"], "distances": [1.0, 0.25, 0.123]}
    assert describe_strip(shown) == about
