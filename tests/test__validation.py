# SPDX-License-Identifier: Apache-2.0
"""Each refusal names the argument, what came and what to do; those that a user meets first are in test_bad_input.py."""

import pytest
import torch

from genmonitor import CosineKernel
from genmonitor._validation import (
    check_at_least,
    check_features,
    check_images,
    check_positive_norms,
    check_samples,
    check_tensor,
)
from genmonitor.functional.promptsplit import check_prompt_split_arguments
from genmonitor.functional.w1kp import check_names
from genmonitor.kernels.product import check_pair_kernels

ones = torch.ones
nan = float("nan")

REFUSALS = {
    # call, argument, what came, remedy or what is allowed
    "complex": (lambda: check_tensor("x", ones(1) * 1j), "`x`", "torch.complex64", "real numbers"),
    "channels last": (lambda: check_images("x", ones(2, 8, 9, 3)), "`x`", "[2, 8, 9, 3]", "x.permute(0, 3, 1, 2)"),
    "no pixel": (lambda: check_images("x", ones(2, 1, 0, 5)), "`x`", "[2, 1, 0, 5]", "at least one pixel"),
    "integers": (
        lambda: check_images("x", torch.tensor([-1, 300]).reshape(2, 1, 1, 1)),
        "`x` within 0..255",
        "-1..300",
        "Scale them",
    ),
    "no feature": (lambda: check_features("x", ones(2, 0)), "`x`", "[2, 0]", "[N, D]"),
    "no kind": (lambda: check_samples("x", ones(2, 3, 4)), "`x` as images [N, C, H, W]", "[2, 3, 4]", "features"),
    "a boolean number": (lambda: check_at_least("k", True, 0), "`k`", "True", "a whole number"),
    "kernels without features": (
        lambda: check_pair_kernels(CosineKernel(), None, 5),
        "`num_features`",
        "CosineKernel for outputs and GaussianKernel for prompts",
        "Leave `num_features` out",
    ),
    "features beyond memory": (
        lambda: check_prompt_split_arguments(CosineKernel(), CosineKernel(), 1.0, 10, 16385),
        "`num_features`",
        "got 16385",
        "at most 16384 to stay within 4 GiB",
    ),
    "prompts without names": (
        lambda: check_names(torch.tensor([0, 2]), 2),
        "`names`",
        "2 names for prompts 0 to 2",
        "Give one name for each index",
    ),
    "no direction": (
        lambda: check_positive_norms(torch.tensor([1.0, -0.5])),
        "positive squared norms",
        "-0.5",
        "`unbiased=False`",
    ),
    "no direction, nan": (lambda: check_positive_norms(torch.tensor([nan])), "squared norms", "nan", "more samples"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_argument_value_and_remedy(case):
    call, *parts = REFUSALS[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    message = str(caught.value)
    assert [part for part in parts if part not in message] == []
    assert message.endswith(".")


@pytest.mark.parametrize(
    "kind", [[1], ones(1) * 1j, ones(1).bool(), ones(1).to(torch.float8_e4m3fn), ones(1).to(torch.uint16)]
)
def test_the_wrong_type_is_a_type_error(kind):
    with pytest.raises(TypeError):
        check_tensor("x", kind)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_small_floats_become_float32(dtype):
    assert check_images("x", ones(2, 1, 3, 3, dtype=dtype)).dtype == torch.float32
    assert check_features("x", ones(2, 3, dtype=dtype)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_integers_in_images_are_scaled(dtype):
    x = check_images("x", torch.tensor([0, 51, 255], dtype=dtype).reshape(3, 1, 1, 1))
    assert x.flatten().tolist() == [0.0, pytest.approx(0.2), 1.0]


def test_what_fits_comes_back_as_it_is():
    image, feature = torch.rand(2, 3, 4, 4, dtype=torch.float64), torch.rand(2, 3)
    assert check_samples("x", image, (3, 4, 4)) is image
    assert check_samples("x", feature, (3,)) is feature
    assert check_images("x", image[:0]).shape == (0, 3, 4, 4)


@pytest.mark.parametrize("shape", [(2, 16, 4, 4), (2, 512, 1, 1), (2, 3, 5, 3), (2, 4, 7, 1)])
def test_maps_of_many_channels_are_not_taken_for_channels_last(shape):
    assert check_images("x", torch.rand(shape)).shape == shape
