# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.regions.clustering import Agreement, Half

LEFT = (torch.arange(36) % 6 < 3).long()


def half(labels, constant=()):
    """Return the clusterings of a half of the images in which sites of one label vary together, of 6×6."""
    matrix = 0.5 * (labels[:, None] == labels) + 0.5 * torch.eye(36)
    matrix[list(constant)] = 0
    matrix[:, list(constant)] = 0
    return Half(matrix, (6, 6), ("average",))


def test_agreement_of_the_same_clusters_is_1():
    agreement = Agreement([(half(LEFT), half(1 - LEFT))])
    assert agreement.mean_index("average", 2) == 1
    assert agreement.mean_overlaps("average", 2, LEFT.reshape(6, 6) + 1) == {"cluster_1": 1.0, "cluster_2": 1.0}


def test_agreement_of_independent_clusters_is_around_0():
    top = (torch.arange(36) < 18).long()
    agreement = Agreement([(half(LEFT), half(top))])
    assert abs(agreement.mean_index("average", 2)) < 0.1
    assert agreement.mean_overlaps("average", 2, LEFT.reshape(6, 6) + 1) == {
        "cluster_1": pytest.approx(2 / 3),
        "cluster_2": pytest.approx(2 / 3),
    }


def test_agreement_is_on_sites_that_vary_in_every_half():
    agreement = Agreement([(half(LEFT, constant=[0]), half(LEFT, constant=[35]))])
    assert agreement.mean_index("average", 2) == 1
    assert agreement.mean_overlaps("average", 2, LEFT.reshape(6, 6)) == {"cluster_1": 1.0}


@pytest.mark.parametrize("left", [0, 1])
def test_half_with_at_most_one_varying_site_has_no_tree(left):
    labels = half(LEFT, constant=range(left, 36)).labels("average", 3)
    assert labels.tolist() == [1] * left + [0] * (36 - left)
