# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor import GaussianKernel
from genmonitor.encoders.fidelity import NEIGHBORS, FidelityMetrics, check_neighbors
from genmonitor.functional import precision_recall_density_coverage, rke_score, vendi_score
from genmonitor.kernels import CosineKernel

REAL, FAKE, OTHER = (torch.randn(20, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))


def test_fidelity_is_that_of_prdc():
    metrics = FidelityMetrics(REAL, CosineKernel(), None)
    metrics.update(FAKE)
    expected = precision_recall_density_coverage(FAKE, REAL, k=NEIGHBORS)
    found = metrics.compute()
    assert {name: found[name] for name in expected} == {name: float(value) for name, value in expected.items()}


def test_fidelity_of_an_evaluation_replaces_the_last():
    first, second = FidelityMetrics(REAL, CosineKernel(), None), FidelityMetrics(REAL, CosineKernel(), None)
    first.update(OTHER)
    first.update(FAKE)
    second.update(FAKE)
    assert first.compute() == second.compute()


def test_fidelity_scores_the_real_images_too():
    found = FidelityMetrics(REAL, CosineKernel(), None).of_real
    assert found == {
        "real_vendi": pytest.approx(float(vendi_score(REAL)), rel=1e-5),
        "real_rke": pytest.approx(float(rke_score(REAL)), rel=1e-5),
    }


def test_fidelity_takes_random_features_for_a_gaussian_only():
    # those of a cosine kernel are the prompts' kernel's
    assert FidelityMetrics(REAL, CosineKernel(), 8).of_real == FidelityMetrics(REAL, CosineKernel(), None).of_real
    with_few = FidelityMetrics(REAL, GaussianKernel(0.1), 4).of_real
    assert with_few != FidelityMetrics(REAL, GaussianKernel(0.1), None).of_real


@pytest.mark.parametrize(("real", "generated"), [(5, 9), (9, 5)])
def test_check_neighbors_refuses_too_few_on_either_side(real, generated):
    with pytest.raises(ValueError, match=f"more than 5 real and generated images, .* but got {real} and {generated}"):
        check_neighbors(real, generated)


def test_check_neighbors_lets_six_pass():
    check_neighbors(6, 6)
