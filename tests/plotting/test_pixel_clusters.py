# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from genmonitor.plotting import pixel_clusters as figures
from genmonitor.plotting.style import boundaries, cluster_color, region_alone, to_array, to_tiles

ROWS = ["03332555", "13311455", "13111445", "11111441", "01111440", "11111221", "11111222", "13332222"]
LABELS = np.array([[int(digit) for digit in row] for row in ROWS])
EPOCHS = [1, 2, 3]
CURVES = {k: [0.9, 0.99, 1 - 0.001 * k] for k in range(1, 6)} | {0: [1.0, 1.0, 1.0]}
BASELINE = dict.fromkeys(range(1, 6), (0.9965, 0.9975, 0.9985))


def pixels(figure: Figure) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).astype(int)


def texts(figure: Figure) -> list[str]:
    """Everything written outside the axes, and on them."""
    on_axes = [text for ax in figure.axes for text in ax.texts]
    return [text.get_text() for text in [*figure.texts, *on_axes]]


def all_figures() -> dict[str, Figure]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(5, 1, 8, 8, generator=generator)
    matrix = torch.rand(64, 64, generator=generator)
    return {
        "map": figures.cluster_map(LABELS),
        "overlay": figures.cluster_overlay(LABELS, images[0]),
        "cka": figures.cka_matrix(matrix, LABELS),
        "curves": figures.cluster_curves(EPOCHS, CURVES, BASELINE, LABELS),
        "grid": figures.sample_grid(images, LABELS, worst=3, p="p = 0.005"),
    }


def test_twelve_clusters_have_twelve_colors_none_of_them_grey():
    colors = [cluster_color(label) for label in range(1, 13)]
    assert len({*colors, cluster_color(0)}) == 13
    assert all(np.ptp(to_rgb(color)) > 0.2 for color in colors)
    assert np.ptp(to_rgb(cluster_color(0))) == 0
    assert [cluster_color(label) for label in range(13, 25)] == colors


def test_a_cluster_has_one_color_in_every_figure():
    drawn = all_figures()
    legend = dict(zip(*legend_colors(drawn["map"]), strict=True))
    strip = drawn["cka"].axes[2].images[0].get_array()[0]
    small_map = drawn["curves"].axes[2].images[0].get_array()
    for label, size in [(1, 29), (3, 9)]:
        color = cluster_color(label).lower()
        curve = next(line for line in drawn["curves"].axes[0].lines if line.get_label() == f"cluster {label}")
        assert legend[f"cluster {label} ({size} px)"] == curve.get_color().lower() == color
        assert {to_hex(pixel) for pixel in strip[np.sort(LABELS[LABELS > 0]) == label]} == {color}
        assert {to_hex(pixel) for pixel in small_map[label == LABELS]} == {color}
    assert drawn["grid"].texts[0].get_color() == cluster_color(3)


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


def test_map_without_constant_sites_does_not_name_them():
    names, _ = legend_colors(figures.cluster_map([[1, 1], [1, 2]]))
    assert names == ["cluster 1 (3 px)", "cluster 2 (1 px)"]


def test_numbers_stand_inside_their_region():
    ax = figures.cluster_map(LABELS).axes[0]
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert set(places) == {"1", "2", "3", "4", "5"}
    for number, (x, y) in places.items():
        assert LABELS[int(y), int(x)] == int(number)


def test_overlay_shows_the_image_under_the_colors():
    labels = np.ones((4, 4), int)
    image = torch.linspace(-3, 5, 16).reshape(1, 4, 4)
    shown = figures.cluster_overlay(labels, image).axes[0].images[0].get_array()
    assert (np.diff(np.asarray(shown).reshape(16, 3), axis=0) > 0).all()
    assert shown.min() >= 0
    assert shown.max() <= 1


def test_overlay_refuses_another_size():
    with pytest.raises(ValueError, match=r"\[1, 4, 4\] with labels \[8, 8\]"):
        figures.cluster_overlay(LABELS, torch.zeros(1, 4, 4))


def test_overlay_of_an_even_image_has_no_warning():
    drawn = pixels(figures.cluster_overlay(LABELS, torch.zeros(3, 8, 8)))
    assert len(np.unique(drawn.reshape(-1, 4), axis=0)) > 3  # the regions' colors


def test_boundaries_enclose_exactly_the_region():
    mask = LABELS == 3
    segments = boundaries(mask, border=True)
    length = np.abs(segments[:, 1] - segments[:, 0]).sum()
    padded = np.pad(mask, 1).astype(int)
    assert length == np.abs(np.diff(padded, axis=0)).sum() + np.abs(np.diff(padded, axis=1)).sum()
    corners = segments.reshape(-1, 2)
    assert corners.min(0).tolist() == [0.5, -0.5]  # columns 1 to 3, rows 0 to 7
    assert corners.max(0).tolist() == [3.5, 7.5]


def test_cka_is_ordered_by_cluster_without_constant_sites():
    same = (LABELS.ravel()[:, None] == LABELS.ravel()[None]) * 0.81
    figure = figures.cka_matrix(torch.from_numpy(same).float(), LABELS)
    shown = np.asarray(figure.axes[0].images[0].get_array())
    order = np.sort(LABELS[LABELS > 0])
    assert shown.shape == (61, 61)
    np.testing.assert_allclose(shown, (order[:, None] == order[None]) * 0.81, atol=1e-6)
    edges = [segment[0][1] for segment in figure.axes[0].collections[0].get_segments()]
    assert edges == [29, 39, 48, 55]
    bar = figure.axes[-1]
    assert bar.get_ylabel().startswith("CKA")
    assert bar.get_ylim() == (0, 1)


def test_large_cka_is_averaged_not_sampled():
    matrix = np.zeros((1200, 1200), np.float32)
    matrix[::3] = 0.9
    shown = np.asarray(figures.cka_matrix(matrix, np.ones(1200, int)).axes[0].images[0].get_array())
    assert shown.shape == (400, 400)
    np.testing.assert_allclose(shown, 0.3, atol=1e-6)


@pytest.mark.parametrize("labels", [np.ones(3, int), np.zeros(4, int)])
def test_cka_refuses_labels_that_do_not_fit(labels):
    with pytest.raises(ValueError, match="`matrix`"):
        figures.cka_matrix(np.eye(4), labels)


def test_curves_are_read_in_cms_with_equal_steps_towards_one():
    figure = figures.cluster_curves(EPOCHS, CURVES, BASELINE, LABELS)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "CMS (higher is better)")
    line = next(line for line in ax.lines if line.get_label() == "cluster 2")
    assert list(line.get_ydata()) == CURVES[2]
    ticks = [label.get_text() for label in ax.get_yticklabels()]
    assert {"0.9", "0.99", "0.999", "1"} <= set(ticks)
    heights = ax.transData.transform([(1, cms) for cms in (0.9, 0.99, 0.999)])[:, 1]
    assert heights[2] - heights[1] == pytest.approx(heights[1] - heights[0])
    assert heights[0] < heights[1]


def test_note_of_the_curves_is_the_finding():
    figure = figures.cluster_curves(EPOCHS, CURVES, BASELINE, LABELS, "cluster_2 differs from real images")
    assert figure.texts[1].get_text() == "cluster_2 differs from real images"
    assert figure.texts[0].get_text() == "CMS per cluster, epoch 3"


def test_points_are_filled_where_the_baseline_is_reached():
    ax = figures.cluster_curves(EPOCHS, CURVES, BASELINE, LABELS).axes[0]
    fill = {c.get_edgecolor()[0].tobytes(): [to_hex(f) for f in c.get_facecolor()] for c in ax.collections}
    three = to_hex(cluster_color(3)).lower()
    assert ["#ffffff", "#ffffff", three] in fill.values()
    assert ["#ffffff"] * 3 in fill.values()


def test_the_constant_region_is_drawn_like_any_other():
    curves = {1: [0.9, 0.99], 0: [0.9999, 0.99999]}
    figure = figures.cluster_curves([1, 2], curves, {0: (0.99995, 0.99997, 1.0)}, LABELS)
    ax, strip, _ = figure.axes
    points = ax.collections[1]
    assert [to_hex(color) for color in points.get_facecolor()] == ["#ffffff", cluster_color(0).lower()]
    top = ax.transData.transform([(1, cms) for cms in (0.9999, 0.99999, ax.get_ylim()[1])])[:, 1]
    assert (np.diff(top) > 10).all()  # each below the axis' end, not at it
    assert len(strip.patches) == 1


def test_exactly_one_reaches_a_baseline_of_exactly_one():
    ax = figures.cluster_curves([1, 2], {0: [1 - 1e-8, 0.9]}, {0: (1.0, 1.0, 1.0)}, LABELS).axes[0]
    assert [to_hex(color) for color in ax.collections[0].get_facecolor()] == [cluster_color(0).lower(), "#ffffff"]


def test_bars_are_the_baselines_bands():
    figure = figures.cluster_curves(EPOCHS, CURVES, BASELINE, LABELS)
    strip = figure.axes[1]
    bars = [patch for patch in strip.patches if isinstance(patch, Rectangle)]
    assert len(bars) == 5
    for label, bar in enumerate(bars, 1):
        assert to_hex(bar.get_facecolor()).lower() == cluster_color(label).lower()
        assert (bar.get_y(), bar.get_y() + bar.get_height()) == pytest.approx((0.9965, 0.9985))
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["latest", "baseline: real images", "constant pixels"]
    figure.draw_without_rendering()
    assert not any(ax.get_tightbbox().overlaps(key.get_window_extent()) for ax in figure.axes)


def test_nan_leaves_a_gap_and_the_latest_known_value_counts():
    curves = {1: [0.5, float("nan"), 0.9, float("nan")], 2: [float("nan")] * 4}
    figure = figures.cluster_curves([1, 2, 3, 4], curves, {}, [[1, 2]])
    pixels(figure)
    one, two = figure.axes[0].lines
    assert np.isnan(one.get_ydata()).tolist() == [False, True, False, True]
    assert np.isnan(two.get_ydata()).all()
    assert [(text.get_text(), text.get_position()[1]) for text in figure.axes[1].texts] == [("1", 0.9)]


@pytest.mark.parametrize("value", [1.0, 1 + 1e-7, 0.3, -0.2, float("nan")])
def test_one_check_of_any_value_is_drawn(value):
    curves = {1: [value], 0: [1.0]}
    figure = figures.cluster_curves([0], curves, {1: (1.0, 1.0, 1.0)}, [[0, 1]])
    pixels(figure)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0"]
    low, high = figure.axes[0].get_ylim()
    assert low < high <= 1


def test_without_a_baseline_nothing_is_said_about_one():
    figure = figures.cluster_curves(EPOCHS, CURVES, {}, LABELS)
    assert not any("perfect" in text or "baseline" in text for text in texts(figure))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["latest", "constant pixels"]
    assert not figure.axes[1].patches


def test_grid_shows_the_worst_region_alone_and_the_samples_as_they_are():
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    figure = figures.sample_grid(images, LABELS, worst=3, p="p = 0.005")
    assert figure.texts[0].get_text() == "cluster 3 differs from real images, p = 0.005"
    assert figure.texts[1].get_text() == "first row: cluster 3 alone, of the samples below it"
    (ax,) = figure.axes
    grid = np.asarray(ax.images[0].get_array())
    tile, gap = 96, 8
    assert grid.shape == (3 * tile + 3 * gap, 2 * tile + gap, 3)
    whole = figures.to_tiles(to_array(images), (0, 1))
    below = tile + 2 * gap
    np.testing.assert_array_equal(grid[below : below + tile, :tile], whole[0])
    np.testing.assert_array_equal(grid[below + tile + gap :, :tile], whole[2])
    inside = np.kron(LABELS == 3, np.ones((12, 12))).astype(bool)
    for number, x in enumerate((0, tile + gap)):
        alone = grid[:tile, x : x + tile]
        np.testing.assert_array_equal(alone[inside], whole[number][inside])
        np.testing.assert_allclose(alone[~inside], 0.8 + 0.2 * whole[number][~inside])
    assert not ax.collections  # nothing is drawn over them
    assert not ax.lines


def test_grid_names_the_class_below_each_sample():
    figure = figures.sample_grid(torch.zeros(4, 1, 8, 8), LABELS, captions=["a cat", "a $dog$", "3", "x" * 99])
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == ["a cat", "a $dog$", "3", f"{'x' * 12}…"]
    grid = np.asarray(ax.images[0].get_array())
    for text in ax.texts:
        box = text.get_window_extent()
        (left, top), (right, bottom) = ax.transData.inverted().transform([(box.x0, box.y1), (box.x1, box.y0)])
        under = grid[max(0, int(top)) : int(bottom) + 1, max(0, int(left)) : int(right) + 1]
        assert (under == 1).all()  # white: no pixel of an image


@pytest.mark.parametrize(("size", "shown"), [(8, 64), (64, 36), (256, 36)])
def test_grid_shows_pixels_sharply_at_any_size(size, shown):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(70, 3, size, size, generator=generator)
    figure = figures.sample_grid(images, np.ones((size, size), int))
    assert figure.texts[0].get_text() == f"{shown} generated samples"
    ax = figure.axes[0]
    canvas = np.asarray(ax.images[0].get_array())
    box = ax.get_window_extent()
    assert (round(box.width), round(box.height)) == (canvas.shape[1], canvas.shape[0])
    first = figures.to_tiles(to_array(images[:1]), (0, 1))[0]
    np.testing.assert_array_equal(canvas[: len(first), : first.shape[1]], first)


def test_grid_maps_the_value_range_to_black_and_white():
    images = torch.tensor([-1.0, 1.0, 7.0, 0.0]).reshape(1, 1, 2, 2)
    shown = figures.sample_grid(images, [[1, 1], [1, 1]], value_range=(-1, 1)).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown[::48, ::48, 0], [[0, 1], [1, 0.5]])


def test_grid_names_the_constant_sites():
    assert "constant" in figures.sample_grid(torch.zeros(1, 1, 8, 8), LABELS, worst=0).texts[0].get_text()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8])
def test_tensors_of_any_dtype_and_graph_are_drawn(dtype):
    images = torch.ones(2, 3, 8, 8, dtype=dtype)
    if dtype.is_floating_point:
        images.requires_grad_()
    drawn = pixels(figures.sample_grid(images, torch.from_numpy(LABELS), worst=1))
    assert len(np.unique(drawn.reshape(-1, 4), axis=0)) > 3


def test_the_users_plot_style_changes_nothing():
    plain = {name: pixels(figure) for name, figure in all_figures().items()}
    dark = {"axes.facecolor": "black", "text.color": "white", "axes.labelcolor": "white", "axes.grid": True}
    dark |= {"xtick.color": "white", "ytick.color": "white", "axes.edgecolor": "white", "figure.facecolor": "black"}
    with matplotlib.rc_context(dark):
        styled = {name: pixels(figure) for name, figure in all_figures().items()}
    assert {name for name in plain if np.abs(plain[name] - styled[name]).max() > 8} == set()


STRIPES = np.repeat([[0, 1, 1, 2]], 4, axis=0)
SETS = {"real": torch.rand(20, 1, 8, 8), "new.npy": torch.rand(3, 1, 8, 8), "old.npy": torch.rand(16, 1, 8, 8)}


def test_every_set_has_its_name_and_its_images():
    figure = figures.side_by_side(SETS, STRIPES)
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(SETS)
    widths = [ax.images[0].get_array().shape[1] for ax in figure.axes]
    assert widths[0] == widths[2] > widths[1]


@pytest.mark.parametrize("region", [0, 1, 2])
def test_a_region_alone_is_above_every_set(region):
    for ax, name in zip(figures.side_by_side(SETS, STRIPES, region).axes, SETS, strict=True):
        canvas = np.asarray(ax.images[0].get_array())
        whole = to_tiles(SETS[name].numpy(), (0, 1))[0]
        np.testing.assert_array_equal(canvas[96 + 16 : 2 * 96 + 16, :96], whole)  # the images as they are
        np.testing.assert_array_equal(canvas[:96, :96], region_alone(whole[None], STRIPES, region)[0])


def test_no_region_is_shown_where_nothing_differs():
    for ax, name in zip(figures.side_by_side(SETS, STRIPES).axes, SETS, strict=True):
        canvas = np.asarray(ax.images[0].get_array())
        np.testing.assert_array_equal(canvas[:96, :96], to_tiles(SETS[name].numpy(), (0, 1))[0])


def test_words_too_long_for_the_figure_are_cut():
    figure = figures.side_by_side({"real": SETS["real"]}, STRIPES, 1, title="differs " * 40, note="images " * 60)
    figure.canvas.draw()
    right = [text.get_window_extent().x1 for text in figure.texts]
    assert max(right) <= figure.bbox.width


def test_sets_do_not_overlap():
    axes = figures.side_by_side(SETS, STRIPES).axes
    places = [ax.get_position() for ax in axes]
    assert all(one.x1 < other.x0 for one, other in pairwise(places))
    assert places[-1].x1 <= 1
    assert {round(place.y1, 6) for place in places} == {round(places[0].y1, 6)}
