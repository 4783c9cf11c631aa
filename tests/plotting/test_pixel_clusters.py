# SPDX-License-Identifier: Apache-2.0

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from genmonitor.plotting import pixel_clusters as figures
from genmonitor.plotting.style import boundaries, cluster_color, to_tiles

ROWS = ["03332555", "13311455", "13111445", "11111441", "01111440", "11111221", "11111222", "13332222"]
LABELS = np.array([[int(digit) for digit in row] for row in ROWS])


def pixels(figure: Figure) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).astype(int)


def all_figures() -> dict[str, Figure]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(5, 1, 8, 8, generator=generator)
    return {
        "map": figures.cluster_map(LABELS),
        "overlay": figures.cluster_map(LABELS, image=images[0]),
        "grid": figures.side_by_side({"generated": images}, title="cluster 3 differs"),
    }


def test_a_cluster_has_one_color_in_every_figure():
    drawn = all_figures()
    legend = dict(zip(*legend_colors(drawn["map"]), strict=True))
    small_map = drawn["map"].axes[0].images[0].get_array()
    for label, size in [(1, 29), (3, 9)]:
        color = cluster_color(label).lower()
        assert legend[f"cluster {label} ({size} px)"] == color
        assert {to_hex(pixel) for pixel in small_map[label == LABELS]} == {color}


def legend_colors(figure: Figure) -> tuple[list[str], list[str]]:
    legend = figure.legends[0]
    return (
        [text.get_text() for text in legend.get_texts()],
        [to_hex(patch.get_facecolor()) for patch in legend.get_patches()],
    )


def test_map_names_every_region_with_its_size_constant_last():
    names, colors = legend_colors(figures.cluster_map(torch.from_numpy(LABELS)))
    sizes = {1: 29, 2: 10, 3: 9, 4: 7, 5: 6}
    assert names == [*(f"cluster {label} ({size} px)" for label, size in sizes.items()), "constant (3 px)"]
    assert colors == [cluster_color(label).lower() for label in (1, 2, 3, 4, 5, 0)]


def test_numbers_stand_inside_their_region():
    ax = figures.cluster_map(LABELS).axes[0]
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert set(places) == {"1", "2", "3", "4", "5"}
    for number, (x, y) in places.items():
        assert LABELS[int(y), int(x)] == int(number)


def test_overlay_shows_the_image_under_the_colors():
    labels = np.ones((4, 4), int)
    image = torch.linspace(-3, 5, 16).reshape(1, 4, 4)
    shown = figures.cluster_map(labels, image=image).axes[0].images[0].get_array()
    assert (np.diff(np.asarray(shown).reshape(16, 3), axis=0) > 0).all()
    assert shown.min() >= 0
    assert shown.max() <= 1


def test_boundaries_enclose_exactly_the_region():
    mask = LABELS == 3
    segments = boundaries(mask, border=True)
    length = np.abs(segments[:, 1] - segments[:, 0]).sum()
    padded = np.pad(mask, 1).astype(int)
    assert length == np.abs(np.diff(padded, axis=0)).sum() + np.abs(np.diff(padded, axis=1)).sum()
    corners = segments.reshape(-1, 2)
    assert corners.min(0).tolist() == [0.5, -0.5]  # columns 1 to 3, rows 0 to 7
    assert corners.max(0).tolist() == [3.5, 7.5]


def test_images_map_the_value_range_to_black_and_white():
    images = torch.tensor([-1.0, 1.0, 7.0, 0.0]).reshape(1, 1, 2, 2)
    shown = figures.side_by_side({"": images}, (-1, 1)).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown[::48, ::48, 0], [[0, 1], [1, 0.5]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8])
def test_tensors_of_any_dtype_and_graph_are_drawn(dtype):
    images = torch.ones(2, 3, 8, 8, dtype=dtype)
    if dtype.is_floating_point:
        images.requires_grad_()
    drawn = pixels(figures.side_by_side({"": images}, title="ones"))
    assert len(np.unique(drawn.reshape(-1, 4), axis=0)) > 3


def test_the_users_plot_style_changes_nothing():
    plain = {name: pixels(figure) for name, figure in all_figures().items()}
    dark = {"axes.facecolor": "black", "text.color": "white", "axes.labelcolor": "white", "axes.grid": True}
    dark |= {"xtick.color": "white", "ytick.color": "white", "axes.edgecolor": "white", "figure.facecolor": "black"}
    with matplotlib.rc_context(dark):
        styled = {name: pixels(figure) for name, figure in all_figures().items()}
    assert {name for name in plain if np.abs(plain[name] - styled[name]).max() > 8} == set()


SETS = {"real": torch.rand(20, 1, 8, 8), "new.npy": torch.rand(3, 1, 8, 8), "old.npy": torch.rand(16, 1, 8, 8)}


def test_every_set_has_its_name_and_its_images():
    figure = figures.side_by_side(SETS)
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(SETS)
    widths = [ax.images[0].get_array().shape[1] for ax in figure.axes]
    assert widths[0] == widths[2] > widths[1]


def test_images_are_shown_as_they_are():
    for ax, name in zip(figures.side_by_side(SETS).axes, SETS, strict=True):
        canvas = np.asarray(ax.images[0].get_array())
        np.testing.assert_array_equal(canvas[:96, :96], to_tiles(SETS[name].numpy(), (0, 1))[0])
