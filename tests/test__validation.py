# SPDX-License-Identifier: Apache-2.0
"""Each refusal names the argument, what came and what to do."""

import pytest
import torch

from genmonitor import CosineKernel
from genmonitor._validation import (
    check_at_least,
    check_features,
    check_finite,
    check_images,
    check_min_samples,
    check_one_of,
    check_pairs,
    check_positive,
    check_positive_norms,
    check_same_length,
    check_samples,
    check_tensor,
    check_whole_blocks,
)
from genmonitor.functional.cka import check_cka_arguments, check_patches
from genmonitor.functional.prdc import check_neighbors
from genmonitor.functional.promptsplit.split import check_prompt_split_arguments
from genmonitor.functional.w1kp.calibration import check_calibration
from genmonitor.functional.w1kp.score import check_names
from genmonitor.kernels.base import check_kernel
from genmonitor.kernels.product import check_pair_kernels

ones = torch.ones
nan = float("nan")

REFUSALS = {
    # call, argument, what came, remedy or what is allowed
    "not a tensor": (lambda: check_tensor("x", [1]), "`x`", "list", "Convert it first"),
    "complex": (lambda: check_tensor("x", ones(1) * 1j), "`x`", "torch.complex64", "real numbers"),
    "boolean": (lambda: check_tensor("x", ones(1).bool()), "`x`", "torch.bool", "real numbers"),
    "nan": (lambda: check_finite("x", torch.tensor([1, nan, float("inf")])), "`x`", "2 of its 3", "where they come"),
    "gray": (lambda: check_images("x", ones(5, 8, 8)), "`x`", "[5, 8, 8]", "x[:, None]"),
    "channels last": (lambda: check_images("x", ones(2, 8, 9, 3)), "`x`", "[2, 8, 9, 3]", "x.permute(0, 3, 1, 2)"),
    "no pixel": (lambda: check_images("x", ones(2, 1, 0, 5)), "`x`", "[2, 1, 0, 5]", "at least one pixel"),
    "another shape": (
        lambda: check_images("x", ones(2, 1, 8, 8), (1, 4, 4)),
        "`x` of shape [N, 1, 4, 4]",
        "[2, 1, 8, 8]",
        "Resize",
    ),
    "integers": (
        lambda: check_images("x", torch.tensor([-1, 300]).reshape(2, 1, 1, 1)),
        "`x` within 0..255",
        "-1..300",
        "Scale them",
    ),
    "nan in images": (lambda: check_images("x", nan * ones(2, 1, 2, 2)), "`x`", "8 of its 8", "where they come"),
    "features": (lambda: check_features("x", ones(2, 1, 2, 2)), "`x`", "[2, 1, 2, 2]", "x.flatten(1)"),
    "no feature": (lambda: check_features("x", ones(2, 0)), "`x`", "[2, 0]", "[N, D]"),
    "other features": (lambda: check_features("x", ones(2, 3), 4), "`x` with 4 features", "[2, 3]", "one encoder"),
    "nan in features": (lambda: check_features("x", nan * ones(2, 3)), "`x`", "6 of its 6", "where they come"),
    "other kind": (lambda: check_samples("x", ones(2, 3), (1, 4, 4)), "`x` of shape [N, 1, 4, 4]", "[2, 3]", "like"),
    "no kind": (lambda: check_samples("x", ones(2, 3, 4)), "`x` as images [N, C, H, W]", "[2, 3, 4]", "features"),
    "too small": (lambda: check_at_least("k", 1, 2), "`k`", "got 1", ">= 2"),
    "not whole": (lambda: check_at_least("k", 2.5, 2), "`k`", "2.5", "a whole number"),
    "a boolean number": (lambda: check_at_least("k", True, 0), "`k`", "True", "a whole number"),
    "not positive": (lambda: check_positive("eta", 0.0), "`eta`", "0.0", "a positive finite number"),
    "not in the list": (lambda: check_one_of("how", "c", ("a", "b")), "`how`", "'c'", "one of 'a', 'b'"),
    "too few": (lambda: check_min_samples("x", ones(1, 2)), "`x`", "got 1", "Add more"),
    "part of a block": (
        lambda: check_whole_blocks("fake", 7, 3),
        "number of fake samples",
        "got 7",
        "Use 6 samples or another block size",
    ),
    "unpaired": (lambda: check_same_length("x", ones(2), "y", ones(3)), "`x` and `y`", "2 and 3", "row i of"),
    "pairs of another kind": (
        lambda: check_pairs("x", ones(2, 3), "y", ones(2, 4), (3, 5)),
        "`y` with 5 features",
        "[2, 4]",
        "one encoder",
    ),
    "pairs of two lengths": (lambda: check_pairs("x", ones(2, 3), "y", ones(4, 3)), "`x` and `y`", "2 and 4", "row i"),
    "not a kernel": (lambda: check_kernel("k", "rbf"), "`k`", "'rbf'", "such as GaussianKernel()"),
    "not a prompt kernel": (
        lambda: check_pair_kernels(None, 3),
        "`prompt_kernel`",
        "got 3",
        "such as GaussianKernel()",
    ),
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
    "not a product of sites": (
        lambda: check_cka_arguments(CosineKernel(), 1, 1e-6, None),
        "`kernel`",
        "CosineKernel",
        "a GaussianKernel or LaplacianKernel",
    ),
    "patches": (lambda: check_patches("x", ones(1, 1, 4, 6), 4), "`patch_size`", "got 4", "divide the size 4×6 of `x`"),
    "too few neighbors": (lambda: check_neighbors(3, fake=ones(4, 1), real=ones(3, 1)), "`k`=3", "3", "lower `k`"),
    "no calibration": (lambda: check_calibration(None, 2), "`calibration`", "got None", "W1KPCalibration.load"),
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


@pytest.mark.parametrize("kind", [[1], ones(1) * 1j, ones(1).bool()])
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
