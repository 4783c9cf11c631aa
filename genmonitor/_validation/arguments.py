# SPDX-License-Identifier: Apache-2.0
"""Checks of what a metric and its functional twin take: kernels, patches, neighbors, prompts and calibrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genmonitor._validation.numbers import check_at_least, check_at_most, check_positive
from genmonitor._validation.tensors import check_features, check_integers, check_same_length
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.base import check_kernel
from genmonitor.kernels.product import feature_size, have_joint_features

if TYPE_CHECKING:
    from genmonitor.functional.w1kp.calibration import W1KPCalibration

FEATURE_BUDGET = 2**32
"""Bytes that PromptSplit's covariances of random features may take, those of both sides: 4 GiB."""


def check_pair_kernels(
    output_kernel: Kernel | None, prompt_kernel: Kernel | None, num_features: int | None = None
) -> None:
    """Refuse what is not a kernel, and random features of a product of kernels that has none."""
    check_kernel("output_kernel", output_kernel)
    check_kernel("prompt_kernel", prompt_kernel)
    if num_features is None:
        return
    check_at_least("num_features", num_features, 1)
    kernels = output_kernel or GaussianKernel(), prompt_kernel or GaussianKernel()
    if not have_joint_features(*kernels):
        names = [type(kernel).__name__ for kernel in kernels]
        raise ValueError(
            "Expected kernels whose product has random features with `num_features`, such as two Gaussian or two "
            f"cosine kernels, but got {names[0]} for outputs and {names[1]} for prompts. Leave `num_features` out."
        )


def check_prompt_split_arguments(
    output_kernel: Kernel | None, prompt_kernel: Kernel | None, eta: float, num_modes: int, num_features: int | None
) -> None:
    """Refuse arguments of PromptSplit that no samples could make right."""
    check_pair_kernels(output_kernel, prompt_kernel, num_features)
    check_positive("eta", eta)
    check_at_least("num_modes", num_modes, 1)
    if num_features is not None:
        covariances, bytes_per_entry = 2, 8
        largest = int((FEATURE_BUDGET / (covariances * bytes_per_entry)) ** 0.5) // feature_size(output_kernel, 1)
        check_at_most("num_features", num_features, largest, f"{FEATURE_BUDGET / 2**30:.3g} GiB")


def check_cka_arguments(kernel: Kernel | None, patch_size: int, tolerance: float, batch_estimator: int | None) -> None:
    """Refuse arguments of the CKA of pixels that no images could make right."""
    check_kernel("kernel", kernel, with_gamma=True)
    check_at_least("patch_size", patch_size, 1)
    check_positive("tolerance", tolerance)
    if batch_estimator is not None:
        check_at_least("batch_estimator", batch_estimator, 2)


def check_patches(name: str, images: Tensor, patch_size: int) -> None:
    """Refuse images that patches of that size do not tile."""
    h, w = images.shape[2:]
    if h % patch_size or w % patch_size:
        raise ValueError(f"Expected `patch_size` to divide the size {h}×{w} of `{name}`, but got {patch_size}.")


def check_neighbors(k: int, fake: Tensor, real: Tensor) -> None:
    """Refuse sides in which a sample has no k neighbors."""
    check_at_least("k", k, 1)
    for name, side in (("fake", fake), ("real", real)):
        if len(side) <= k:
            raise ValueError(
                f"Expected more than `k`={k} {name} samples, but got {len(side)}. Add samples or lower `k`."
            )


def check_calibration(calibration: W1KPCalibration | None, k: int | None) -> W1KPCalibration:
    """Refuse to go without a calibration, and subsets too small to hold a pair.

    The calibration is known by its attributes, since its class is defined a layer above.
    """
    if calibration is None or not hasattr(calibration, "heights"):
        raise ValueError(
            f"Expected `calibration` to be a W1KPCalibration, but got {calibration!r}: distances of one embedding mean "
            "nothing in another. Fit one with calibrate(features, prompt_index) on outputs of many prompts, or load "
            "one with W1KPCalibration.load(path, dim=...)."
        )
    if k is not None:
        check_at_least("k", k, 2)
    return calibration


def check_prompted_outputs(
    features: object, prompt_index: object, calibration: W1KPCalibration
) -> tuple[Tensor, Tensor]:
    """Return outputs [N, D] of the calibrated embedding and the prompt of each, 0 where `prompt_index` is None."""
    x = check_features("features", features).detach()
    calibration.check("features", x)
    if prompt_index is None:
        return x, torch.zeros(len(x), dtype=torch.long, device=x.device)
    index = check_integers("prompt_index", prompt_index)
    check_same_length("features", x, "prompt_index", index)
    return x, index


def check_names(index: Tensor, count: int) -> None:
    """Refuse prompt indices that have no name."""
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < count:
        raise ValueError(
            f"Expected `names` to name every prompt, but got {count} names for prompts "
            f"{int(index.min())} to {int(index.max())}. Give one name for each index from 0 on."
        )
