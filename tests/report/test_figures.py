# SPDX-License-Identifier: Apache-2.0
import io
import signal
from functools import partial

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from genmonitor.evaluation.results import ShownImages
from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report.figures import RenderedFigure, describe_strip, encode_strip


def test_rendered_figure_has_the_figures_own_size():
    rendered = RenderedFigure.of(cluster_map([[1, 2], [0, 1]]))
    with Image.open(io.BytesIO(rendered.png)) as picture:
        assert picture.size == (760, 600)
        assert len(picture.convert("RGB").getcolors(10_000)) > 3


def test_rendered_figure_of_a_function_is_what_it_draws():
    labels = [[1, 2], [0, 1]]
    assert RenderedFigure.of(partial(cluster_map, labels)).png == RenderedFigure.of(cluster_map(labels)).png


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
        RenderedFigure.of(drawing)
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
