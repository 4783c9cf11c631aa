# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.evaluations import halves
from _helpers.golden import digits

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.evaluation.regions.clustering import (
    MAX_SITES,
    choose,
    content_order,
    cuts,
    find_clusters,
    halvings,
    is_lopsided,
    on_a_grid,
    patch_notes,
    region_notes,
)
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional import pixel_cka
from genmonitor.linalg.clustering import LINKAGES, adjusted_rand_index


def three_regions(n, seed=0, side=12):
    """Return images [n, 1, side, side] of three regions that vary each by itself: a disc, its surround and a bar."""
    y, x = torch.meshgrid(*2 * [torch.linspace(-1, 1, side)], indexing="ij")
    labels = torch.ones(side, side, dtype=torch.long)
    labels[(x / 0.7) ** 2 + (y / 0.9) ** 2 < 1] = 2
    labels[(x.abs() < 0.4) & (y > 0.2) & (y < 0.6)] = 3
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randn(n, 4, generator=generator)
    images = levels[:, labels] + 0.3 * levels[:, :1, None]
    return images[:, None] + 0.5 * torch.randn(n, 1, side, side, generator=generator), labels


def found_in(images, n_clusters=None, patch_size=1, **settings):
    kernel = GaussianKernel().resolved(images.flatten(1))
    return find_clusters(images, kernel, RegionSettings(n_clusters=n_clusters, patch_size=patch_size, **settings))


@pytest.mark.parametrize("n", [150, 600])
def test_three_regions_do_not_become_two(n):
    images, labels = three_regions(n)
    found = found_in(images)
    assert found.partition.num_clusters == 3
    assert adjusted_rand_index(found.partition.labels.flatten(), labels.flatten()) > 0.9
    assert found.stability["overall"] > 0.9
    assert region_notes(found.partition, found.stability) == ()


def test_regions_of_large_images_are_found_in_averages_over_their_sites():
    small, labels = three_regions(150)
    images = small.repeat_interleave(12, 2).repeat_interleave(12, 3)
    images += torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    found = found_in(images, patch_size=None).partition
    assert (found.patch_size, found.labels.shape) == (6, (24, 24))
    at = torch.arange(24) // 2
    assert adjusted_rand_index(found.labels.flatten(), labels[at][:, at].flatten()) > 0.9
    assert patch_notes(found, None) == ("a site of these images is a patch of 6×6 pixels; `patch_size` gives others",)
    assert patch_notes(found, 3) == patch_notes(PixelPartition(labels), None) == ()


def test_cells_give_the_clusters_of_pixels_where_these_are_alike():
    small, _ = three_regions(60, side=24)
    images = small.repeat_interleave(2, 2).repeat_interleave(2, 3)
    found, expected = (found_in(x, 3, patch).partition for x, patch in ((images, 2), (small, 1)))
    assert torch.equal(found.labels, expected.labels)


def test_halves_of_three_regions_agree():
    images, _ = three_regions(400)
    first, second = (found_in(part).partition.labels.flatten() for part in images.split(200))
    assert adjusted_rand_index(first, second) > 0.9


def test_halves_of_the_digits_agree():
    images = digits()[torch.randperm(1797, generator=torch.Generator().manual_seed(1))]
    first, second = (found_in(part).partition.labels.flatten() for part in images.split(899))
    varying = (first > 0) & (second > 0)
    assert adjusted_rand_index(first[varying], second[varying]) > 0.8


def test_found_clusters_do_not_depend_on_the_order():
    images = digits()[:300]
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    first, second = found_in(images, 3), found_in(images[order], 3)
    assert first.partition == second.partition
    assert first.stability == second.stability


def test_finding_clusters_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = found_in(halves(40))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert found_in(halves(40)).stability == first.stability


@pytest.mark.parametrize("linkage", [None, *LINKAGES])
@pytest.mark.parametrize("n_clusters", [None, 1, 2, 5])
def test_stability_is_a_share_whatever_is_asked_for(linkage, n_clusters):
    found = found_in(digits()[:200], n_clusters, linkage=linkage)
    assert linkage in (None, found.linkage)
    assert found.partition.num_clusters == (n_clusters or found.partition.num_clusters)
    assert -0.5 < found.stability["overall"] <= 1
    of_regions = {name: x for name, x in found.stability.items() if name != "overall"}
    assert of_regions.keys() == found.partition.regions().keys() - {"constant"}
    assert all(0 <= value <= 1 for value in of_regions.values())


def test_clusters_of_patches_have_their_size():
    found = found_in(halves(80), 2, patch_size=2)
    assert (found.partition.patch_size, found.partition.labels.shape) == (2, (2, 3))


@pytest.mark.parametrize("few", [torch.zeros(12, 1, 2, 2), torch.eye(12)[:, None, :, None]])
def test_clusters_of_images_that_hardly_vary(few):
    if not few.any():
        with pytest.raises(ValueError, match="every site is constant"):
            find_clusters(few, GaussianKernel(1.0), RegionSettings(patch_size=1))
    else:
        assert find_clusters(few, GaussianKernel(1.0), RegionSettings(patch_size=1)).partition.num_clusters >= 1


def test_noise_has_no_stable_regions():
    noise = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = found_in(noise)
    (note,) = region_notes(found.partition, found.stability)
    assert "the regions are unstable" in note
    assert all(
        way in note for way in ("`n_clusters`", "more images", "PixelPartition.from_mask", "PixelPartition.grid")
    )


@pytest.mark.parametrize(
    ("sizes", "lopsided"), [([50, 50], False), ([78, 22], False), ([85, 15], True), ([60, 39, 1], True)]
)
def test_lopsided_partitions_are_told_and_good_ones_not(sizes, lopsided):
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes, 1)]).reshape(10, 10)
    partition = PixelPartition(labels)
    assert is_lopsided(partition) == lopsided
    notes = region_notes(partition, {"overall": 0.95})
    assert bool(notes) == lopsided
    assert all(
        f"the largest holds {max(sizes)} of 100 varying sites, the smallest {min(sizes)}" in note for note in notes
    )


def test_one_cluster_is_not_lopsided():
    assert not is_lopsided(PixelPartition(torch.tensor([[1, 1, 0]])))


def test_choice_is_the_finest_of_the_most_stable():
    stable = {("average", 2): 1.0, ("average", 3): 0.99, ("average", 4): 0.98, ("average", 5): 0.6, ("average", 6): 1.0}
    assert choose(stable, dict.fromkeys(stable, False)) == ("average", 4)


def test_choice_leaves_lopsided_ones_out_where_it_can():
    stable = {("average", 2): 1.0, ("average", 3): 0.5, ("smoothed", 2): 0.8}
    only_first = {option: option == ("average", 2) for option in stable}
    assert choose(stable, only_first) == ("smoothed", 2)
    assert choose(stable, dict.fromkeys(stable, True)) == ("average", 2)


def test_choice_changes_the_linkage_only_for_a_clearly_better_one():
    for smoothed, expected in ((0.84, "average"), (0.9, "smoothed")):
        stable = {("average", 2): 0.8, ("smoothed", 2): smoothed}
        assert choose(stable, dict.fromkeys(stable, False)) == (expected, 2)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_cuts_of_one_tree_are_those_of_one_tree_each(linkage):
    images = digits()[:200]
    matrix = pixel_cka(images, tolerance=0.02)
    found = cuts(matrix, (8, 8), [2, 3, 6], 1, linkage)
    assert found == {count: PixelPartition.from_cka(matrix, (8, 8), count, linkage=linkage) for count in (2, 3, 6)}


def test_content_order_is_the_same_for_images_in_any_order():
    images = digits()[:50]
    shuffled = images[torch.randperm(50, generator=torch.Generator().manual_seed(0))]
    assert torch.equal(images[content_order(images)], shuffled[content_order(shuffled)])


def test_halvings_are_disjoint_and_within_their_budget():
    numbers = torch.arange(101.0)[:, None, None, None]
    splits = list(halvings(numbers, 1))
    assert len(splits) == 16
    for first, second in splits:
        assert len(first) == len(second) == 50
        assert not set(first.flatten().tolist()) & set(second.flatten().tolist())
    assert len(list(halvings(torch.zeros(2, 3, 512, 512), 1))) == 4


@pytest.mark.parametrize(("side", "patch_size"), [(8, 1), (64, 1), (100, 2), (66, 1)])
def test_grid_keeps_whole_sites(side, patch_size):
    sites = torch.arange(side // patch_size).repeat_interleave(patch_size).expand(1, 2, side, side).float()
    smaller, (h, w) = on_a_grid(sites, patch_size)
    assert smaller.shape == (1, 2, h * patch_size, w * patch_size)
    assert h * w <= MAX_SITES
    kept = smaller[0, 0, 0].reshape(w, patch_size)
    assert (kept == kept[:, :1]).all()
