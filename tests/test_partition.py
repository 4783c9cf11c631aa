# SPDX-License-Identifier: Apache-2.0
import pickle

import numpy as np
import pytest
import torch
from _helpers.golden import CONSTANT, GAMMA, LABELS_5, SIZES_5, digits
from _helpers.meta_tensor import Returned
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.functional import pixel_cka
from genmonitor.functional.cka import CLUSTER_TOLERANCE


@pytest.fixture(scope="module")
def digits_cka():
    return pixel_cka(digits()[:1000], kernel=GaussianKernel(GAMMA))


def planted(sizes: list[int], constant: int = 0, within: float = 0.6, seed: int = 0) -> tuple[torch.Tensor, list[int]]:
    """A CKA matrix with one bright block per cluster and some noise, its sites shuffled; and their true labels."""
    labels = torch.tensor([0] * constant + [k for k, size in enumerate(sizes, 1) for _ in range(size)])
    generator = torch.Generator().manual_seed(seed)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    same = labels[:, None] == labels
    noise = 0.05 * torch.rand(len(labels), len(labels), generator=generator)
    matrix = within * same + (noise + noise.T) / 2
    matrix.fill_diagonal_(1)
    matrix[labels == 0] = matrix[:, labels == 0] = 0
    return matrix, labels.tolist()


def test_five_clusters_of_the_digits(digits_cka):
    partition = PixelPartition.from_cka(digits_cka, (8, 8), n_clusters=5)
    assert partition.sizes() == SIZES_5
    assert torch.equal(partition.labels, LABELS_5)
    assert (partition.labels.flatten() == 0).nonzero().flatten().tolist() == CONSTANT


@pytest.mark.parametrize("n_clusters", [2, 3, 5, 8])
def test_the_tolerance_for_clusters_changes_no_cluster(digits_cka, n_clusters):
    quick = pixel_cka(digits()[:1000], kernel=GaussianKernel(GAMMA), tolerance=CLUSTER_TOLERANCE)
    assert 1e-6 < (quick - digits_cka).abs().max() < 1e-3
    found = PixelPartition.from_cka(quick, (8, 8), n_clusters).labels
    assert torch.equal(found, PixelPartition.from_cka(digits_cka, (8, 8), n_clusters).labels)


@pytest.mark.parametrize("sizes", [[9, 5, 2], [12, 8, 6, 4], [5, 3]])
@pytest.mark.parametrize("automatic", [True, False])
def test_planted_blocks_are_found(sizes, automatic):
    matrix, labels = planted(sizes, constant=2)
    partition = PixelPartition.from_cka(matrix, (1, len(labels)), None if automatic else len(sizes))
    assert partition.labels[0].tolist() == labels


def test_at_most_twelve_clusters_are_found_by_themselves():
    matrix, labels = planted([4] * 14)
    assert PixelPartition.from_cka(matrix, (len(labels), 1)).num_clusters == 12
    assert PixelPartition.from_cka(matrix, (len(labels), 1), n_clusters=14).num_clusters == 14


def test_labels_go_by_size_and_then_by_reading_order():
    matrix, _ = planted([1, 1])  # only their sizes matter below
    matrix = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3), torch.ones(2, 2), torch.ones(1, 1))
    order = [7, 0, 2, 5, 1, 3, 6, 4]
    partition = PixelPartition.from_cka(matrix[order][:, order], (2, 4), n_clusters=4)
    assert partition.labels.tolist() == [[4, 2, 1, 3], [2, 1, 3, 1]]


def test_one_varying_site_is_one_cluster():
    matrix = torch.diag(torch.tensor([0.0, 1.0, 0.0, 0.0]))
    for n_clusters in (None, 1):
        assert PixelPartition.from_cka(matrix, (2, 2), n_clusters).labels.tolist() == [[0, 1], [0, 0]]


def test_two_varying_sites_stay_together_unless_asked():
    assert PixelPartition.from_cka(torch.eye(2), (1, 2)).labels.tolist() == [[1, 1]]
    assert PixelPartition.from_cka(torch.eye(2), (1, 2), 2).labels.tolist() == [[1, 2]]


def test_the_partition_does_not_follow_its_argument():
    labels = torch.ones(2, 2, dtype=torch.uint8)
    partition = PixelPartition(labels)
    labels.zero_()
    assert partition.labels.tolist() == [[1, 1], [1, 1]]
    assert partition.labels.dtype == torch.int64


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(-3, 4), min_size=6, max_size=6))
def test_from_mask_keeps_what_belongs_together(values):
    mask = torch.tensor(values).reshape(2, 3)
    partition = PixelPartition.from_mask(mask)
    ours, theirs = partition.labels.flatten(), mask.flatten()
    assert torch.equal(ours[:, None] == ours, theirs[:, None] == theirs)
    constant, *sizes = partition.sizes()
    assert constant == 0
    assert sizes == sorted(sizes, reverse=True)


def test_from_mask_takes_booleans_and_refuses_others():
    assert PixelPartition.from_mask(torch.tensor([[False, True, True]])).labels.tolist() == [[2, 1, 1]]
    assert PixelPartition.from_mask(torch.tensor([[5, 7, 7]]).as_subclass(Returned)).labels.tolist() == [[2, 1, 1]]
    with pytest.raises(ValueError, match=r"`mask` to be a tensor of integers or booleans \[h, w\], but got list"):
        PixelPartition.from_mask([[1, 2]])
    with pytest.raises(ValueError, match=r"but got torch.float32 \[1, 2\]"):
        PixelPartition.from_mask(torch.ones(1, 2))


def test_grid_cuts_as_evenly_as_it_can():
    partition = PixelPartition.grid((5, 7), rows=2, columns=3)
    assert partition.num_clusters == 6
    heights = {int((partition.labels == c).any(1).sum()) for c in range(1, 7)}
    widths = {int((partition.labels == c).any(0).sum()) for c in range(1, 7)}
    assert (heights, widths) == ({2, 3}, {2, 3})
    for c in range(1, 7):
        rows, columns = (partition.labels == c).nonzero().unbind(1)
        assert (rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1) == len(rows)


def test_columns_address_a_flattened_image():
    partition = PixelPartition(torch.tensor([[1, 2], [2, 0]]), patch_size=2)
    images = torch.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4)
    labels = np.kron([[1, 2], [2, 0]], np.ones((2, 2), int))
    for label in (0, 1, 2):
        expected = images.numpy()[:, :, labels == label].reshape(2, -1)
        assert torch.equal(images.flatten(1)[:, partition.columns(label, 3)], torch.from_numpy(expected))
    assert partition.regions() == {"cluster_1": 1, "cluster_2": 2, "constant": 0}
    assert partition.image_size == (4, 4)


def test_images_of_another_size_are_refused():
    partition = PixelPartition.grid((2, 3), 1, 1, patch_size=4)
    partition.check_images("images", (5, 1, 8, 12))
    with pytest.raises(ValueError, match="`images` of size 8×12 like the partition, but got 12×8"):
        partition.check_images("images", (5, 1, 12, 8))


def test_saved_and_loaded_without_pickle(tmp_path):
    partition = PixelPartition(LABELS_5, patch_size=3)
    path = tmp_path / "clusters.npz"
    partition.save(path)
    assert PixelPartition.load(str(path)) == partition
    assert list(tmp_path.iterdir()) == [path]  # no temporary file stays
    np.savez(path, labels=np.array([[object()]], dtype=object), patch_size=1)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        PixelPartition.load(path)


def test_equality_hash_and_pickle_go_by_labels_and_patch_size():
    one, same = PixelPartition.grid((4, 4), 2, 2), PixelPartition.grid((4, 4), 2, 2)
    assert one == same == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert one != PixelPartition.grid((4, 4), 2, 2, patch_size=2)
    assert one != PixelPartition.grid((4, 4), 1, 4)
    assert repr(one) == "PixelPartition(4×4 sites, patch_size=1, clusters=[4, 4, 4, 4], constant=0)"


HALVES = PixelPartition(torch.tensor([[1, 1, 1, 2, 2, 0]]))


def test_names_stand_in_the_place_of_numbers_and_are_saved(tmp_path):
    named = HALVES.named({"cluster_2": "left_eye"})
    assert named.regions() == {"cluster_1": 1, "left_eye": 2, "constant": 0}
    assert named.given_names() == {2: "left eye"}
    named.save(tmp_path / "partition.npz")
    assert PixelPartition.load(tmp_path / "partition.npz") == named != HALVES
    assert named.named({"cluster_1": "hair"}).regions() == {"hair": 1, "left_eye": 2, "constant": 0}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"cluster_3": "eyes"}, "cluster_1 to cluster_2, but got one for 'cluster_3'"),
        ({"constant": "border"}, "got one for 'constant'"),
        ({"cluster_1": "the eyes"}, "letters and digits"),
        ({"cluster_1": ""}, "letters and digits"),
        ({"cluster_1": "1"}, "letters and digits"),
        ({"cluster_1": "image"}, "image and constant have their meaning"),
        ({"cluster_1": "eyes", "cluster_2": "eyes"}, "to differ from each other"),
        ({"cluster_1": "cluster_2"}, "to differ from each other and from cluster_1"),
    ],
)
def test_names_that_cannot_be_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        HALVES.named(names)


@pytest.mark.parametrize("names", [{"cluster_1": 3}, {1: "eyes"}])
def test_names_that_are_no_strings_by_strings_are_refused(names):
    with pytest.raises(TypeError, match="strings by strings, but got"):
        HALVES.named(names)
