# SPDX-License-Identifier: Apache-2.0
import io

from PIL import Image

from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report.figures import RenderedFigure


def test_rendered_figure_has_the_figures_own_size():
    figure = cluster_map([[1, 2], [0, 1]])
    rendered = RenderedFigure.of(figure)
    assert rendered.figure is figure
    with Image.open(io.BytesIO(rendered.png)) as picture:
        assert picture.size == (760, 600)
        assert len(picture.convert("RGB").getcolors(10_000)) > 3
