# SPDX-License-Identifier: Apache-2.0

import pytest
import torch
from _helpers.evaluations import halves

from genmonitor import GaussianKernel, LaplacianKernel, PixelPartition, compare
from genmonitor.encoders.frozen import SiteEncoder
from genmonitor.evaluation.regions.clustering import content_order
from genmonitor.evaluation.regions.search import (
    WIDE,
    RegionFinder,
    Regions,
    constant_apart,
)
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional import pixel_cka
from genmonitor.functional.discrepancy import view_kernels, views_state
from genmonitor.images.image_set import ImageSet
from genmonitor.images.split import split_reference
from genmonitor.partition import load_partition

COLUMNS = PixelPartition.grid((4, 6), 1, 2)
IMAGES = halves(80)
CPU = torch.device("cpu")


def finder(to_sites=None, **settings):
    defaults = {"n_clusters": 2, "n_cluster_images": 40, "n_samples": 24}
    if "partition" in settings:
        del defaults["n_clusters"]
    return RegionFinder(RegionSettings(**(defaults | settings)), to_sites or SiteEncoder(None, 100))


def split():
    return split_reference(ImageSet(IMAGES), 40, 24, None, 0)


def find(**settings):
    return finder(**settings).find(split(), CPU)


@pytest.fixture(scope="module")
def found():
    return find()


def test_region_finder_finds_what_varies_together(found):
    labels = found.partition.labels
    assert len(labels[:, :3].unique()) == len(labels[:, 3:].unique()) == 1
    assert labels[0, 0] != labels[0, 5]


def test_region_finder_takes_the_kernels_width_from_real_images(found):
    used = split()
    assert found.kernel == GaussianKernel().resolved(used.regions.read().flatten(1))


def test_region_finder_keeps_the_average_and_the_range(found):
    used = split()
    images = used.regions.read()
    images = images[content_order(images)]
    assert torch.equal(found.average, images.mean(0))
    assert found.value_range == (float(images.min()), float(images.max()))


def test_region_finder_takes_the_mean_of_mini_batches(found):
    fitted = find(batch_estimator=10)
    images = split().regions.read()
    images = images[content_order(images)]
    matrix = pixel_cka(images, kernel=found.kernel, batch_estimator=10)
    assert fitted.partition == PixelPartition.from_cka(matrix, (4, 6), 2)


def test_region_finder_measures_a_baseline_of_every_value(found):
    assert found.baseline.keys() == {"image", "product", "cluster_1", "cluster_2", "mmd"}
    low, median, high = found.baseline["image"]
    assert 0.8 < low < median < high <= 1


def test_baseline_is_the_same_in_one_pass_and_draw_by_draw(found, monkeypatch):
    monkeypatch.setattr("genmonitor.evaluation.regions.search.one_pass", lambda *_: False)
    one_by_one = find()
    for name, band in one_by_one.baseline.items():
        assert found.baseline[name] == pytest.approx(band, abs=1e-6)
    assert found.chance == pytest.approx(one_by_one.chance, rel=1e-5)


@pytest.mark.parametrize("together", [True, False])
def test_images_of_draws_that_overlap_are_read_once(together, monkeypatch):
    monkeypatch.setattr("genmonitor.evaluation.regions.search.one_pass", lambda *_: together)
    used, read = split(), []
    loader = type(used.baseline).loader

    def counting(images, indices, size):
        read.extend(indices if images is used.baseline else [])
        return loader(images, indices, size)

    monkeypatch.setattr(type(used.baseline), "loader", counting)
    finder().find(used, CPU)
    assert len(read) <= 2 * len(used.baseline)  # for the views too


def test_views_come_from_real_images_that_are_not_compared(found):
    used = split()
    assert not set(used.baseline.indices) & set(used.comparison.indices)
    images = used.baseline.read()
    kernels = view_kernels([images], found.partition)
    expected = views_state({view: of.balanced(images, WIDE) for view, of in kernels.items()})
    for view, tensors in expected.items():
        assert all(torch.equal(found.views[view][name], tensor) for name, tensor in tensors.items())


def test_region_finder_takes_given_regions_and_kernel():
    given = find(partition=COLUMNS, kernel=LaplacianKernel(0.5))
    assert given.partition is COLUMNS
    assert given.kernel == LaplacianKernel(0.5)


def test_region_finder_clusters_the_maps_of_an_encoder():
    maps = find(to_sites=SiteEncoder(lambda images: images[:, :, ::2, ::2], 100))
    assert maps.partition.labels.shape == (2, 3)


def test_region_finder_says_what_it_does():
    said = []

    def progress(iterable, description):
        said.append(description)
        return iter(iterable)

    finder().find(split(), CPU, progress)
    assert said == ["clusters", "stability of the clusters", "baseline"]


def test_region_finder_refuses_a_set_too_small_for_clusters():
    few = split_reference(ImageSet(IMAGES[:8]), None, 24, None, 0)
    with pytest.raises(ValueError, match=r"at least 10 images, .*, but got 8"):
        finder().find(few, CPU)


@pytest.mark.parametrize(("kernel", "patch_size"), [(GaussianKernel(), 1), (LaplacianKernel(), 2)])
def test_region_fit_survives_a_checkpoint(tmp_path, kernel, patch_size):
    fitted = find(kernel=kernel, patch_size=patch_size)
    torch.save(fitted.state_dict(), tmp_path / "state.pt")
    again = Regions.from_state(torch.load(tmp_path / "state.pt", weights_only=True), kernel)
    assert again.partition == fitted.partition
    assert again.kernel == fitted.kernel
    assert again.baseline == fitted.baseline
    assert again.value_range == fitted.value_range
    assert again.views.keys() == fitted.views.keys() == {"structure", "texture"}
    for view, tensors in fitted.views.items():
        assert all(torch.equal(again.views[view][name], tensor) for name, tensor in tensors.items())
    assert again.average is None


def test_region_finder_finds_the_same_at_every_seed_and_order():
    shuffled = torch.randperm(80, generator=torch.Generator().manual_seed(3))

    def found_in(images, seed):
        used = split_reference(ImageSet(images), None, 24, None, seed)
        return finder(n_cluster_images=None, seed=seed).find(used, CPU)

    first = found_in(IMAGES, 0)
    for again in (found_in(IMAGES, 7), found_in(IMAGES[shuffled], 0)):
        assert again.partition == first.partition
        assert again.kernel == first.kernel
        assert again.stability == first.stability


def test_region_fit_keeps_how_stable_its_clusters_are(found):
    assert found.stability == {"overall": 1, "cluster_1": 1, "cluster_2": 1}
    assert found.notes() == ()
    again = Regions.from_state(found.state_dict(), GaussianKernel())
    assert (again.stability, again.linkage) == (found.stability, "average")
    assert find(partition=COLUMNS).stability == {}


def test_region_finder_takes_the_linkage_that_is_given():
    assert find(linkage="ward").linkage == "ward"


def test_regions_have_the_names_that_are_given(found):
    assert [*find(region_names={"cluster_2": "eyes"}).partition.regions()] == ["cluster_1", "eyes"]
    assert "eyes" in find(region_names={"cluster_2": "eyes"}).baseline
    with pytest.raises(ValueError, match="cluster_1 to cluster_2, but got one for 'cluster_5'"):
        find(region_names={"cluster_5": "eyes"})


def test_load_partition_takes_a_file_or_a_runs_folder(tmp_path):
    path = tmp_path / "genmonitor" / "cms_partition.npz"
    path.parent.mkdir()
    COLUMNS.save(path)
    assert load_partition(path) == load_partition(str(tmp_path)) == load_partition(path.parent) == COLUMNS


def test_load_partition_refuses_none_and_several(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is none at"):
        load_partition(tmp_path / "missing.npz")
    with pytest.raises(ValueError, match=r"a folder with one partition\.npz, but .* has none"):
        load_partition(tmp_path)
    COLUMNS.save(tmp_path / "a_partition.npz")
    COLUMNS.save(tmp_path / "b_partition.npz")
    with pytest.raises(ValueError, match=r"a_partition\.npz, .*b_partition\.npz"):
        load_partition(tmp_path)


def quiet_border(n, seed):
    """Return images whose border is hardly ever anything but zero."""
    generator = torch.Generator().manual_seed(seed)
    pixels, rare = (torch.rand(n, 1, 8, 8, generator=generator) for _ in range(2))
    border = torch.ones(8, 8, dtype=torch.bool)
    border[2:6, 2:6] = False
    return torch.where(border, pixels * (rare < 0.003), 0.1 * pixels + torch.rand(n, 1, 1, 1, generator=generator))


def test_real_images_do_not_differ_where_those_compared_with_never_vary():
    """Constant are pixels that do not vary in others: in those compared with they do as often as in generated ones."""
    for seed in range(6):
        images = quiet_border(360, seed)
        found = compare(
            real=images[:240], fake=images[240:], settings=RegionSettings(n_clusters=2, seed=seed)
        ).to_dict()["regions"]["constant"]
        assert found["sites"] > 20
        assert found["p_value"] > 0.1


def test_a_cluster_keeps_sites_that_vary_only_in_images_compared_with_where_it_has_no_others():
    maps = torch.tensor([[[[0.0, 0.0, 0.0]]], [[[1.0, 0.0, 0.0]]], [[[2.0, 1.0, 1.0]]]])
    partition, apart = PixelPartition(torch.tensor([[1, 1, 2]])), torch.tensor([True, True, False])
    assert constant_apart(partition, maps, apart).labels.tolist() == [[1, 0, 2]]
    assert constant_apart(partition, maps, torch.zeros(3, dtype=torch.bool)) is partition
