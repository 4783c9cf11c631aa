# SPDX-License-Identifier: Apache-2.0
"""What every function of tensors owes its callers, checked on all of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from _helpers.citizens import HALVES, features, images
from _helpers.meta_tensor import MetaTensor, Wrapper
from torch import Tensor

from genmonitor import GaussianKernel, functional

GAUSS = GaussianKernel(0.7)
IMAGES, FAKE_IMAGES = images(40, 1), images(24, 2) ** 2
X, Y, T = features(40, 1), features(24, 2) ** 2, features(40, 3, 3)
PROMPTS = torch.arange(40) % 7
GRAM = GAUSS(X, X)

CALLS: dict[str, Callable[[Callable[[Tensor], Tensor]], Any]] = {
    "authenticity": lambda c: functional.authenticity(c(Y), c(X)),
    "calibrate": lambda c: functional.calibrate(c(X), c(PROMPTS)).distances,
    "centered_kernel_alignment": lambda c: functional.centered_kernel_alignment(c(X), c(T)),
    "conditional_vendi_score": lambda c: functional.conditional_vendi_score(c(X), c(T)),
    "cosine_mean_similarity": lambda c: functional.cosine_mean_similarity(c(FAKE_IMAGES), c(IMAGES), partition=HALVES),
    "data_copying_test": lambda c: functional.data_copying_test(c(Y), c(X[:20]), c(X[20:])),
    "discrepancy_map": lambda c: functional.discrepancy_map(c(FAKE_IMAGES), c(IMAGES)),
    "joint_diversity": lambda c: functional.joint_diversity(c(X), c(T)),
    "maximum_mean_discrepancy": lambda c: functional.maximum_mean_discrepancy(c(Y), c(X)),
    "mmd_influence": lambda c: functional.mmd_influence(c(Y), c(X)).fake,
    "uncovered_test": lambda c: functional.uncovered_test(c(FAKE_IMAGES), c(IMAGES[:20]), c(IMAGES[20:])).share,
    "odd_samples_test": lambda c: functional.odd_samples_test(c(FAKE_IMAGES), c(IMAGES[:20]), c(IMAGES[20:])).scores,
    "pixel_cka": lambda c: functional.pixel_cka(c(IMAGES)),
    "precision_recall_density_coverage": lambda c: functional.precision_recall_density_coverage(c(Y), c(X)),
    "prompt_fidelity": lambda c: functional.prompt_fidelity(c(X), c(Y[:7]), c(PROMPTS)).score,
    "prompt_reusability": lambda c: functional.prompt_reusability(c(X), calibration=functional.calibrate(c(Y))),
    "prompt_split": lambda c: functional.prompt_split(c(X), c(T), c(Y), c(T[:24]), num_features=16).eigenvalues,
    "prompt_split_energy": lambda c: functional.prompt_split_energy(c(X), c(T), c(Y), c(T[:24])),
    "relative_similarity_test": lambda c: functional.relative_similarity_test(c(Y), c(Y + 0.1), c(X)),
    "rke_score": lambda c: functional.rke_score(c(X)),
    "scendi_score": lambda c: functional.scendi_score(c(X), c(T)),
    "significant_areas": lambda c: functional.significant_areas({"map": c(X), "p_map": c(0 * X)})[0],
    "two_sample_test": lambda c: functional.two_sample_test(c(FAKE_IMAGES), c(IMAGES), partition=HALVES),
    "two_sample_test_by_class": lambda c: functional.two_sample_test_by_class(
        c(FAKE_IMAGES), c(IMAGES), c(torch.arange(24) % 2), c(torch.arange(40) % 2)
    ),
    "vendi_from_covariance": lambda c: functional.vendi_from_covariance(c(X.T @ X / X.square().sum())),
    "vendi_from_gram": lambda c: functional.vendi_from_gram(c(GRAM)),
    "vendi_score": lambda c: functional.vendi_score(c(X), kernel=GAUSS, num_features=16),
    "w1kp_by_prompt": lambda c: functional.w1kp_by_prompt(c(X), c(PROMPTS), calibration=functional.calibrate(c(Y))),
    "w1kp_score": lambda c: functional.w1kp_score(c(X), c(PROMPTS), calibration=functional.calibrate(c(Y)), k=3),
}
OF_NO_TENSOR = {"rank_prompts", "relative_similarity_from_influences", "similarity_level"}

every = pytest.mark.parametrize("name", CALLS)


@pytest.fixture
def float64_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, (Tensor, dict, tuple)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        for value in found.values() if isinstance(found, dict) else found if isinstance(found, tuple) else [found]:
            assert type(value) in (Tensor, float)
    else:
        assert found == expected


def test_every_function_is_called():
    assert {name for name in functional.__all__ if name.islower()} - OF_NO_TENSOR == set(CALLS)


@every
def test_subclasses_of_tensor_are_taken_as_tensors(name):
    same(CALLS[name](MetaTensor), CALLS[name](lambda x: x))


@every
def test_the_default_dtype_does_not_matter(name, request):
    expected = CALLS[name](lambda x: x)
    request.getfixturevalue("float64_by_default")
    same(CALLS[name](lambda x: x), expected)


@every
def test_tensors_without_values_of_their_own_are_refused_by_name(name):
    with pytest.raises(TypeError, match=r"to be a dense tensor, but got layout torch.sparse_coo. Use x.to_dense\(\)"):
        CALLS[name](lambda x: x.to_sparse())
    with pytest.raises(TypeError, match="to hold values, but got a tensor on the device meta"):
        CALLS[name](lambda x: x.to("meta"))
    with pytest.raises(TypeError, match=r"to hold its values itself, but got Wrapper, which wraps other tensors"):
        CALLS[name](Wrapper)
