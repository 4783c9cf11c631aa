# SPDX-License-Identifier: Apache-2.0
import math

import torch

from genmonitor import GaussianKernel, PixelPartition, diagnose
from genmonitor.evaluation.regions.findings import RegionFindings
from genmonitor.evaluation.regions.presenter import diagnosis_figures, fit_figures, side_by_side
from genmonitor.evaluation.regions.search import Regions
from genmonitor.evaluation.results import curve

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]))
BAND = (0.9, 0.95, 1.0)
NAMES = ("image", "product", "cluster_1", "cluster_2", "constant", "mmd")
IMAGES = torch.rand(70, 1, 4, 6)


def regions(**found):
    return Regions(PARTITION, GaussianKernel(1.0), dict.fromkeys(NAMES, BAND), (0.0, 1.0), **found)


def record(epoch, **values):
    shares = {"share_1": 0.2, "share_2": 0.8, "share_constant": 0.0}
    tested = {f"p_{name}": 0.3 for name in ("image", "1", "constant")} | {"p_2": 0.005}
    ratios = {f"error_ratio_{name}": 4.0 for name in ("image", "1", "2", "constant")}
    return {"epoch": epoch, "step": epoch, **dict.fromkeys(NAMES, 0.8), **shares, **tested, **ratios, **values}


HISTORY = [record(0), record(1, gap=0.5, cluster_1=0.7)]


def figures(history, images=IMAGES):
    return side_by_side({"real": images, "generated": images}, RegionFindings.of(PARTITION).find(history), (0.0, 1.0))()


def titles(figure):
    return [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]


def test_curve_has_nan_where_an_evaluation_lacks_the_value():
    missing, found = curve(HISTORY, "gap")
    assert math.isnan(missing)
    assert found == 0.5


def test_fit_figures_of_regions_from_a_saved_state():
    assert fit_figures(regions(), (4, 6)).keys() == {"clusters"}


def test_fit_figures_are_as_large_as_the_image():
    drawn = fit_figures(regions(), (4, 6))["clusters"].axes[0].get_images()[0].get_array()
    assert drawn.shape[:2] == (4, 6)


def words_of_samples(history):
    return " ".join(part.get_text() for part in figures(history).findobj(lambda part: hasattr(part, "get_text")))


def test_samples_name_the_region_that_differs_most():
    assert "cluster_2 (upper right) differs from real images" in words_of_samples(HISTORY)


def test_samples_name_no_region_where_none_differs():
    assert "cluster" not in words_of_samples([record(0, p_2=0.06)])


def bars(fake, real, **options):
    """Return how many legends of shares the figure of a diagnosis has."""
    found = diagnose(fake=fake, real=real, **options)
    figure = diagnosis_figures(found, found.findings[0], (0.0, 1.0))["diagnosis"]()
    return sum(ax.get_legend() is not None for ax in figure.axes)


def test_shares_are_drawn_of_what_differs_alone():
    images = torch.rand(240, 1, 4, 6, generator=torch.Generator().manual_seed(1))
    fake, real = images[:120], images[120:]
    assert bars(fake, real) == 0
    assert bars(real.clone(), real) == 0  # copies, which are at no distance
    assert bars(0.5 * fake, real) == 1
    assert bars(fake.flip(3) * torch.linspace(0.2, 1, 6), real, fault_models=[]) == 0  # by no kind, whatever is near
